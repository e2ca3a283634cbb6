"""The schema, as numbered steps. A step that was released never changes; a change is a new step."""

from __future__ import annotations

import sqlite3
import time
from typing import NamedTuple

from burnish.proxy.http.errors import ConfigError
from burnish.proxy.log import search

SCHEMA = """
-- Whatever repeats: messages, parameters, tool definitions. Digest: BLAKE2b-128 of the body (JSON).
CREATE TABLE content (id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, body BLOB NOT NULL);
-- parent 0 = the root.
CREATE TABLE node (
    id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, parent INTEGER NOT NULL,
    content INTEGER NOT NULL REFERENCES content
);
-- Whether a message may go with the last completion that uses it. (A prompt is always on the path as well.)
CREATE INDEX node_parent ON node (parent);
CREATE INDEX node_content ON node (content);

CREATE TABLE completion (
    n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, conversation_id TEXT NOT NULL, response_id TEXT,
    surface TEXT NOT NULL, created_at REAL NOT NULL, outcome TEXT NOT NULL, status INTEGER, error TEXT,
    finish_reason TEXT, model_asked TEXT NOT NULL, model_served TEXT NOT NULL, upstream TEXT NOT NULL,
    adapter_version INTEGER, caller TEXT NOT NULL, session TEXT, retry INTEGER NOT NULL, usage TEXT,
    prompt_tokens INTEGER, completion_tokens INTEGER, first_byte_s REAL, total_s REAL NOT NULL,
    node INTEGER REFERENCES node, settings INTEGER REFERENCES content, definitions INTEGER REFERENCES content,
    prompt INTEGER REFERENCES content, reply INTEGER REFERENCES content, reply_key BLOB, reply_identity BLOB,
    choices INTEGER REFERENCES content,
    -- A version number says nothing of the base under it, which may be replaced by another one of the same name.
    base_digest TEXT,
    instructions INTEGER REFERENCES content, continues TEXT, begins_turn INTEGER NOT NULL DEFAULT 1,
    sub_agent INTEGER NOT NULL DEFAULT 0, choice_count INTEGER NOT NULL DEFAULT 1,
    holds_credential INTEGER NOT NULL DEFAULT 0, upstream_table TEXT, agent TEXT,
    -- Its version numbers are those of another registry, so training must not take the answer for one of ours.
    imported_from TEXT,
    best_of TEXT, reward REAL, rewarded_by TEXT, rollout TEXT
);
CREATE INDEX completion_conversation ON completion (conversation_id, id);
CREATE INDEX completion_caller ON completion (caller, id);
CREATE INDEX completion_version ON completion (adapter_version, id) WHERE adapter_version IS NOT NULL;
CREATE INDEX completion_agent ON completion (agent, id) WHERE agent IS NOT NULL;
CREATE INDEX completion_failed ON completion (id) WHERE outcome IN ('cut', 'failed') OR coalesce(status, 0) >= 400;
CREATE INDEX completion_response ON completion (response_id) WHERE response_id IS NOT NULL;
CREATE INDEX completion_reply_key ON completion (reply_key) WHERE reply_key IS NOT NULL;
CREATE INDEX completion_reply ON completion (reply_identity) WHERE reply_identity IS NOT NULL;
CREATE INDEX completion_continues ON completion (continues) WHERE continues IS NOT NULL;
CREATE INDEX completion_rollout ON completion (rollout, n) WHERE rollout IS NOT NULL;
CREATE INDEX completion_rewarded ON completion (rewarded_by) WHERE rewarded_by IS NOT NULL;
CREATE INDEX completion_node ON completion (node) WHERE node IS NOT NULL;
CREATE INDEX completion_reply_content ON completion (reply) WHERE reply IS NOT NULL;
CREATE INDEX completion_settings ON completion (settings) WHERE settings IS NOT NULL;
CREATE INDEX completion_definitions ON completion (definitions) WHERE definitions IS NOT NULL;
CREATE INDEX completion_choices ON completion (choices) WHERE choices IS NOT NULL;
CREATE INDEX completion_instructions ON completion (instructions) WHERE instructions IS NOT NULL;

-- What could not be understood, as it came.
CREATE TABLE raw (
    completion TEXT PRIMARY KEY, request BLOB NOT NULL, content_encoding TEXT NOT NULL, response BLOB NOT NULL
);
-- Packed numbers; or, instead of all of them, why there are none.
CREATE TABLE token_capture (
    completion TEXT PRIMARY KEY, prompt BLOB, reply BLOB, logprobs BLOB, missing TEXT
);

-- Requests that are no completions: figures, no bodies.
CREATE TABLE passthrough (
    n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, created_at REAL NOT NULL, method TEXT NOT NULL,
    path TEXT NOT NULL, model TEXT, upstream TEXT NOT NULL, status INTEGER, outcome TEXT NOT NULL, error TEXT,
    caller TEXT NOT NULL, session TEXT, request_bytes INTEGER NOT NULL, response_bytes INTEGER NOT NULL,
    prompt_tokens INTEGER, completion_tokens INTEGER, first_byte_s REAL, total_s REAL NOT NULL
);
CREATE INDEX passthrough_caller ON passthrough (caller);

CREATE TABLE feedback (
    id TEXT PRIMARY KEY, created_at REAL NOT NULL, completion_id TEXT NOT NULL, conversation_id TEXT NOT NULL,
    target TEXT NOT NULL, reward REAL, scale TEXT, comment TEXT, correction TEXT, preferred_over TEXT,
    scope TEXT NOT NULL, source TEXT NOT NULL, rater TEXT NOT NULL, weight REAL NOT NULL, tags TEXT NOT NULL,
    idempotency_key TEXT, given_with TEXT, choice INTEGER NOT NULL DEFAULT 0,
    UNIQUE (rater, idempotency_key)
);
CREATE INDEX feedback_completion ON feedback (completion_id, rater, scope);
CREATE INDEX feedback_conversation ON feedback (conversation_id);
CREATE INDEX feedback_rater ON feedback (rater, completion_id);
CREATE INDEX feedback_comment ON feedback (rater, id) WHERE comment IS NOT NULL;
CREATE INDEX feedback_preferred ON feedback (preferred_over) WHERE preferred_over IS NOT NULL;
CREATE INDEX feedback_good ON feedback (completion_id) WHERE reward > 0;
CREATE INDEX feedback_bad ON feedback (completion_id) WHERE reward < 0;
CREATE INDEX feedback_commented ON feedback (completion_id) WHERE comment IS NOT NULL;
-- Feedback is append-only: taking one back is a row of its own.
CREATE TABLE undo (feedback TEXT PRIMARY KEY, undone_at REAL NOT NULL);
-- What users wrote by hand; the other instructions are the comments themselves. text NULL = removed.
CREATE TABLE instruction (
    id TEXT PRIMARY KEY, caller TEXT NOT NULL, text TEXT, by_hand INTEGER NOT NULL, created_at REAL NOT NULL
);
CREATE INDEX instruction_caller ON instruction (caller);

CREATE TABLE run (
    id TEXT PRIMARY KEY, started_at REAL NOT NULL, ended_at REAL, status TEXT NOT NULL, reason TEXT NOT NULL,
    version INTEGER, ratings INTEGER NOT NULL
);
CREATE TABLE curve (run TEXT PRIMARY KEY, points TEXT NOT NULL);

CREATE TABLE duel (
    id TEXT PRIMARY KEY, created_at REAL NOT NULL, asked_by TEXT NOT NULL, left_version INTEGER NOT NULL,
    right_version INTEGER NOT NULL, left TEXT, right TEXT, choice TEXT, judged_at REAL, rater TEXT, feedback_id TEXT
);
CREATE INDEX duel_left ON duel (left) WHERE left IS NOT NULL;
CREATE INDEX duel_right ON duel (right) WHERE right IS NOT NULL;
CREATE INDEX duel_open ON duel (id) WHERE choice IS NULL;

CREATE TABLE rollout (
    id TEXT PRIMARY KEY, created_at REAL NOT NULL, ends_at REAL NOT NULL, task TEXT NOT NULL, "group" TEXT,
    seed INTEGER, tags TEXT NOT NULL, version INTEGER, held_out INTEGER NOT NULL, caller TEXT NOT NULL,
    ended_at REAL, status TEXT NOT NULL, learnt_in TEXT
);
CREATE INDEX rollout_task ON rollout (task, id);
CREATE INDEX rollout_group ON rollout ("group", id) WHERE "group" IS NOT NULL;
CREATE INDEX rollout_open ON rollout (id) WHERE status = 'open';
CREATE INDEX rollout_ready ON rollout (task, id) WHERE learnt_in IS NULL AND status != 'open' AND NOT held_out;
CREATE TABLE rollout_reward (
    rollout TEXT NOT NULL, created_at REAL NOT NULL, value REAL NOT NULL, completion_id TEXT, reason TEXT
);
CREATE INDEX rollout_reward_rollout ON rollout_reward (rollout);
"""


class Migration(NamedTuple):
    number: int
    name: str
    statements: str
    """Between two of them, ``;`` and a line break."""


MIGRATIONS = (
    Migration(23, "schema of 28 November 2026", SCHEMA + search.CREATE),
    Migration(
        24,
        "a search whose index lags",
        """CREATE TABLE search_end (n INTEGER NOT NULL);
        INSERT INTO search_end SELECT coalesce(max(n), 0) FROM completion""",
    ),
    Migration(
        25,
        "duels of the gate's replies",
        """ALTER TABLE duel ADD COLUMN quotes TEXT;
        ALTER TABLE duel ADD COLUMN sampled BLOB;
        CREATE INDEX duel_quotes ON duel (quotes) WHERE quotes IS NOT NULL""",
    ),
    Migration(
        26,
        "ids of the items of responses",
        """CREATE TABLE response_item (
            id TEXT NOT NULL, completion TEXT NOT NULL, PRIMARY KEY (id, completion)
        ) WITHOUT ROWID;
        CREATE INDEX response_item_completion ON response_item (completion)""",
    ),
    Migration(
        27,
        "which answers were asked in chat",
        "ALTER TABLE completion ADD COLUMN in_chat INTEGER NOT NULL DEFAULT 0",
    ),
)
"""Those before 23 were in no release; only logs of checkouts of that time have them."""


def applied(connection: sqlite3.Connection) -> int:
    """Return the number of the last step that this database has seen, 0 when it is new."""
    connection.execute(
        """CREATE TABLE IF NOT EXISTS migration (
            number INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at REAL NOT NULL
        )"""
    )
    (number,) = connection.execute("SELECT coalesce(max(number), 0) FROM migration").fetchone()
    return int(number)


def migrate(connection: sqlite3.Connection) -> None:
    """Bring a database (in autocommit mode) to the latest schema, each step in a transaction of its own.

    Raises ConfigError if the database was written by a newer burnish, or by a checkout from before 28 November 2026.
    """
    version, first, latest = applied(connection), MIGRATIONS[0].number, MIGRATIONS[-1].number
    if version > latest:
        raise ConfigError(
            f"the log was written by a newer burnish (schema {version}, this one knows {latest}): update burnish"
        )
    if 0 < version < first:
        raise ConfigError(
            f"the log was written by a checkout from before 28 November 2026 (schema {version}, this one reads {first} "
            f"and later). Check out the commit d032cc1 and start it once with this log, which brings it to {first}; or "
            "name another folder with --data-dir"
        )
    for migration in MIGRATIONS:
        if migration.number > version:
            _apply(connection, migration)


def _apply(connection: sqlite3.Connection, migration: Migration) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in migration.statements.split(";\n"):
            connection.execute(statement)
        row = (migration.number, migration.name, time.time())
        connection.execute("INSERT INTO migration VALUES (?, ?, ?)", row)
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
