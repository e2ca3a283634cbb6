"""The schema, as numbered steps. A step that was released never changes; a change is a new step."""

from __future__ import annotations

import sqlite3
import time
from typing import NamedTuple

from burnish.proxy.http.errors import ConfigError
from burnish.proxy.log import search
from burnish.proxy.log.credentials import holds_credential


class Migration(NamedTuple):
    """One step; its number is its place in the list, from 1."""

    name: str
    statements: tuple[str, ...]


WAY_UP = """WITH RECURSIVE way (parent, content, role, height) AS (
    SELECT parent, content, json_extract(CAST(body AS TEXT), '$.role'), 0
        FROM node JOIN content ON content.id = node.content WHERE node.id = completion.node
    UNION ALL
    SELECT node.parent, node.content, json_extract(CAST(body AS TEXT), '$.role'), height + 1
        FROM way JOIN node ON node.id = way.parent JOIN content ON content.id = node.content
        WHERE way.role IS NOT 'assistant'
)"""
"""The messages of a completion's context from the last one up to the nearest of an assistant."""
NEAREST_ANSWER = f"""{WAY_UP} SELECT earlier.id FROM way JOIN completion AS earlier
    ON earlier.node = way.parent AND earlier.reply = way.content
    WHERE way.role = 'assistant' AND earlier.caller = completion.caller AND earlier.n < completion.n
    ORDER BY earlier.n DESC LIMIT 1"""  # noqa: S608 – names of our own
LAST_SPOKE = f"""{WAY_UP} SELECT role = 'user' FROM way WHERE role IN ('user', 'assistant')
    ORDER BY height LIMIT 1"""  # noqa: S608

MIGRATIONS: tuple[Migration, ...] = (
    Migration(
        "message tree and completions",
        (
            # Whatever repeats: messages, parameters, tool definitions. Digest: BLAKE2b-128 of the body (JSON).
            "CREATE TABLE content (id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, body BLOB NOT NULL)",
            # parent 0 = the root.
            """CREATE TABLE node (
                id INTEGER PRIMARY KEY,
                digest BLOB NOT NULL UNIQUE,
                parent INTEGER NOT NULL,
                content INTEGER NOT NULL REFERENCES content
            )""",
            """CREATE TABLE completion (
                n INTEGER PRIMARY KEY,
                id TEXT NOT NULL UNIQUE,
                conversation_id TEXT NOT NULL,
                response_id TEXT,
                surface TEXT NOT NULL,
                created_at REAL NOT NULL,
                outcome TEXT NOT NULL,
                status INTEGER,
                error TEXT,
                finish_reason TEXT,
                model_asked TEXT NOT NULL,
                model_served TEXT NOT NULL,
                upstream TEXT NOT NULL,
                adapter_version INTEGER,
                caller TEXT NOT NULL,
                session TEXT,
                retry INTEGER NOT NULL,
                usage TEXT,
                prompt_tokens INTEGER,
                completion_tokens INTEGER,
                first_byte_s REAL,
                total_s REAL NOT NULL,
                node INTEGER REFERENCES node,
                settings INTEGER REFERENCES content,
                definitions INTEGER REFERENCES content,
                prompt INTEGER REFERENCES content,
                turn_key BLOB,
                reply INTEGER REFERENCES content,
                reply_key BLOB,
                reply_identity BLOB,
                choices INTEGER REFERENCES content
            )""",
            "CREATE INDEX completion_conversation ON completion (conversation_id, id)",
            "CREATE INDEX completion_response ON completion (response_id) WHERE response_id IS NOT NULL",
            "CREATE INDEX completion_reply_key ON completion (reply_key) WHERE reply_key IS NOT NULL",
            "CREATE INDEX completion_reply ON completion (reply_identity) WHERE reply_identity IS NOT NULL",
            # What could not be understood, as it came.
            """CREATE TABLE raw (
                completion TEXT PRIMARY KEY,
                request BLOB NOT NULL,
                content_encoding TEXT NOT NULL,
                response BLOB NOT NULL
            )""",
        ),
    ),
    Migration(
        "feedback",
        (
            """CREATE TABLE feedback (
                id TEXT PRIMARY KEY,
                created_at REAL NOT NULL,
                completion_id TEXT NOT NULL,
                conversation_id TEXT NOT NULL,
                target TEXT NOT NULL,
                reward REAL,
                scale TEXT,
                comment TEXT,
                correction TEXT,
                preferred_over TEXT,
                scope TEXT NOT NULL,
                source TEXT NOT NULL,
                rater TEXT NOT NULL,
                weight REAL NOT NULL,
                tags TEXT NOT NULL,
                idempotency_key TEXT,
                UNIQUE (rater, idempotency_key)
            )""",
            "CREATE INDEX feedback_completion ON feedback (completion_id, rater, scope)",
            "CREATE INDEX feedback_conversation ON feedback (conversation_id)",
            # Feedback is append-only: taking one back is a row of its own.
            "CREATE TABLE undo (feedback TEXT PRIMARY KEY, undone_at REAL NOT NULL)",
        ),
    ),
    Migration(
        "training runs",
        (
            """CREATE TABLE run (
                id TEXT PRIMARY KEY,
                started_at REAL NOT NULL,
                ended_at REAL,
                status TEXT NOT NULL,
                reason TEXT NOT NULL,
                version INTEGER,
                ratings INTEGER NOT NULL
            )""",
        ),
    ),
    # A version number says nothing of the base under it, which may be replaced by another one of the same name.
    Migration("base weights", ("ALTER TABLE completion ADD COLUMN base_digest TEXT",)),
    Migration(
        "wishes",
        (
            # What users wrote by hand; the other wishes are the comments themselves. text NULL = removed.
            """CREATE TABLE wish (
                id TEXT PRIMARY KEY,
                caller TEXT NOT NULL,
                text TEXT,
                by_hand INTEGER NOT NULL,
                created_at REAL NOT NULL
            )""",
            "CREATE INDEX wish_caller ON wish (caller)",
            "CREATE INDEX feedback_comment ON feedback (rater, id) WHERE comment IS NOT NULL",
            # What was added to the system prompt of a request.
            "ALTER TABLE completion ADD COLUMN instant INTEGER REFERENCES content",
        ),
    ),
    Migration(
        "who uses what",
        (
            # Whether a message may go with the last completion that uses it. (A prompt is always on the path as well.)
            "CREATE INDEX node_parent ON node (parent)",
            "CREATE INDEX node_content ON node (content)",
            "CREATE INDEX completion_node ON completion (node) WHERE node IS NOT NULL",
            "CREATE INDEX completion_reply_content ON completion (reply) WHERE reply IS NOT NULL",
            "CREATE INDEX completion_settings ON completion (settings) WHERE settings IS NOT NULL",
            "CREATE INDEX completion_definitions ON completion (definitions) WHERE definitions IS NOT NULL",
            "CREATE INDEX completion_choices ON completion (choices) WHERE choices IS NOT NULL",
            "CREATE INDEX completion_instant ON completion (instant) WHERE instant IS NOT NULL",
            "CREATE INDEX feedback_preferred ON feedback (preferred_over) WHERE preferred_over IS NOT NULL",
            # A caller's latest answer.
            "CREATE INDEX completion_caller ON completion (caller, id)",
        ),
    ),
    Migration(
        "what was passed through",
        (
            # Requests that are no completions: figures, no bodies.
            """CREATE TABLE passed (
                n INTEGER PRIMARY KEY,
                id TEXT NOT NULL UNIQUE,
                created_at REAL NOT NULL,
                method TEXT NOT NULL,
                path TEXT NOT NULL,
                model TEXT,
                upstream TEXT NOT NULL,
                status INTEGER,
                outcome TEXT NOT NULL,
                error TEXT,
                caller TEXT NOT NULL,
                session TEXT,
                request_bytes INTEGER NOT NULL,
                response_bytes INTEGER NOT NULL,
                prompt_tokens INTEGER,
                completion_tokens INTEGER,
                first_byte_s REAL,
                total_s REAL NOT NULL
            )""",
            "CREATE INDEX passed_caller ON passed (caller)",
        ),
    ),
    Migration(
        "turns",
        (
            # The completion that it goes on from, and whether a person spoke since.
            "ALTER TABLE completion ADD COLUMN continues TEXT",
            "ALTER TABLE completion ADD COLUMN begins_turn INTEGER NOT NULL DEFAULT 1",
            # What was logged before is linked where the reply came back as it was.
            f"""UPDATE completion SET continues = ({NEAREST_ANSWER}),
                begins_turn = coalesce(({LAST_SPOKE}), 1)""",  # noqa: S608
            "CREATE INDEX completion_continues ON completion (continues) WHERE continues IS NOT NULL",
            "ALTER TABLE completion DROP COLUMN turn_key",
        ),
    ),
    # Whose headers say that an agent's own agent asks; of what was logged before, nobody knows.
    Migration("sub-agents", ("ALTER TABLE completion ADD COLUMN sub_agent INTEGER NOT NULL DEFAULT 0",)),
    # One word for one thing, in the tables as in the code.
    Migration(
        "plain names",
        (
            "DROP INDEX wish_caller",
            "ALTER TABLE wish RENAME TO instruction",
            "UPDATE instruction SET id = 'inst_' || substr(id, 6)",
            "CREATE INDEX instruction_caller ON instruction (caller)",
            "DROP INDEX completion_instant",
            "ALTER TABLE completion RENAME COLUMN instant TO instructions",
            "CREATE INDEX completion_instructions ON completion (instructions) WHERE instructions IS NOT NULL",
            "DROP INDEX passed_caller",
            "ALTER TABLE passed RENAME TO passthrough",
            "CREATE INDEX passthrough_caller ON passthrough (caller)",
        ),
    ),
    # Which key a rater was named with; of what was rated before, nobody knows.
    Migration("keys of ratings", ("ALTER TABLE feedback ADD COLUMN given_with TEXT",)),
    Migration(
        "choices",
        (
            "ALTER TABLE completion ADD COLUMN choice_count INTEGER NOT NULL DEFAULT 1",
            """UPDATE completion SET choice_count = max(1, (
                SELECT json_array_length(CAST(body AS TEXT)) FROM content WHERE content.id = completion.choices
            )) WHERE choices IS NOT NULL""",
            "ALTER TABLE feedback ADD COLUMN choice INTEGER NOT NULL DEFAULT 0",
        ),
    ),
    Migration(
        "keys and tokens in texts",
        (
            "ALTER TABLE completion ADD COLUMN holds_credential INTEGER NOT NULL DEFAULT 0",
            "CREATE TEMP TABLE suspect AS SELECT id FROM content WHERE holds_credential(CAST(body AS BLOB))",
            # Each context that goes through one of them.
            """WITH RECURSIVE below (id) AS (
                SELECT node.id FROM node WHERE content IN suspect
                UNION SELECT node.id FROM node JOIN below ON node.parent = below.id
            )
            UPDATE completion SET holds_credential = 1 WHERE node IN below OR reply IN suspect
                OR choices IN suspect OR settings IN suspect OR definitions IN suspect OR instructions IN suspect""",
            "DROP TABLE suspect",
        ),
    ),
    Migration(
        "filters of the history",
        (
            "CREATE INDEX completion_version ON completion (adapter_version, id) WHERE adapter_version IS NOT NULL",
            "CREATE INDEX feedback_rater ON feedback (rater, completion_id)",
            "CREATE INDEX feedback_good ON feedback (completion_id) WHERE reward > 0",
            "CREATE INDEX feedback_bad ON feedback (completion_id) WHERE reward < 0",
            "CREATE INDEX feedback_commented ON feedback (completion_id) WHERE comment IS NOT NULL",
        ),
    ),
    Migration("further upstreams", ("ALTER TABLE completion ADD COLUMN upstream_table TEXT",)),
    Migration(
        "agents and failures",
        (
            # What asked; of what was logged before, nobody knows.
            "ALTER TABLE completion ADD COLUMN agent TEXT",
            "CREATE INDEX completion_agent ON completion (agent, id) WHERE agent IS NOT NULL",
            """CREATE INDEX completion_failed ON completion (id)
                WHERE outcome IN ('cut', 'failed') OR coalesce(status, 0) >= 400""",
        ),
    ),
    Migration("curves of runs", ("CREATE TABLE curve (run TEXT PRIMARY KEY, points TEXT NOT NULL)",)),
    Migration(
        "duels",
        (
            """CREATE TABLE duel (
                id TEXT PRIMARY KEY,
                created_at REAL NOT NULL,
                asked_by TEXT NOT NULL,
                left_version INTEGER NOT NULL,
                right_version INTEGER NOT NULL,
                left TEXT,
                right TEXT,
                choice TEXT,
                judged_at REAL,
                rater TEXT,
                feedback_id TEXT
            )""",
            "CREATE INDEX duel_left ON duel (left) WHERE left IS NOT NULL",
            "CREATE INDEX duel_right ON duel (right) WHERE right IS NOT NULL",
            "CREATE INDEX duel_open ON duel (id) WHERE choice IS NULL",
        ),
    ),
    Migration("search", (search.CREATE, search.FILL)),
    # Its version numbers are those of another registry, so training must not take the answer for one of ours.
    Migration("imported answers", ("ALTER TABLE completion ADD COLUMN imported_from TEXT",)),
    Migration(
        "reward models",
        (
            "ALTER TABLE completion ADD COLUMN best_of TEXT",
            "ALTER TABLE completion ADD COLUMN reward REAL",
            "ALTER TABLE completion ADD COLUMN rewarded_by TEXT",
            "CREATE INDEX completion_rewarded ON completion (rewarded_by) WHERE rewarded_by IS NOT NULL",
        ),
    ),
    Migration(
        "rollouts",
        (
            """CREATE TABLE rollout (
                id TEXT PRIMARY KEY,
                created_at REAL NOT NULL,
                ends_at REAL NOT NULL,
                task TEXT NOT NULL,
                "group" TEXT,
                seed INTEGER,
                tags TEXT NOT NULL,
                version INTEGER,
                held_out INTEGER NOT NULL,
                caller TEXT NOT NULL,
                ended_at REAL,
                status TEXT NOT NULL,
                learnt_in TEXT
            )""",
            "CREATE INDEX rollout_task ON rollout (task, id)",
            'CREATE INDEX rollout_group ON rollout ("group", id) WHERE "group" IS NOT NULL',
            "CREATE INDEX rollout_open ON rollout (id) WHERE status = 'open'",
            """CREATE INDEX rollout_ready ON rollout (task, id)
                WHERE learnt_in IS NULL AND status != 'open' AND NOT held_out""",
            """CREATE TABLE rollout_reward (
                rollout TEXT NOT NULL,
                created_at REAL NOT NULL,
                value REAL NOT NULL,
                completion_id TEXT,
                reason TEXT
            )""",
            "CREATE INDEX rollout_reward_rollout ON rollout_reward (rollout)",
            "ALTER TABLE completion ADD COLUMN rollout TEXT",
            "CREATE INDEX completion_rollout ON completion (rollout, n) WHERE rollout IS NOT NULL",
        ),
    ),
    Migration(
        "token ids",
        (
            # Packed numbers; or, instead of all of them, why there are none.
            """CREATE TABLE token_capture (
                completion TEXT PRIMARY KEY,
                prompt BLOB,
                reply BLOB,
                logprobs BLOB,
                missing TEXT
            )""",
        ),
    ),
    Migration(
        "a search whose index lags",
        (
            "CREATE TABLE search_end (n INTEGER NOT NULL)",
            "INSERT INTO search_end SELECT coalesce(max(n), 0) FROM completion",
        ),
    ),
)


def applied(connection: sqlite3.Connection) -> int:
    """Return the number of the last step that this database has seen, 0 when it is new."""
    connection.execute(
        """CREATE TABLE IF NOT EXISTS migration (
            number INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at REAL NOT NULL
        )"""
    )
    (number,) = connection.execute("SELECT coalesce(max(number), 0) FROM migration").fetchone()
    return int(number)


def migrate(connection: sqlite3.Connection, upto: int = len(MIGRATIONS)) -> None:
    """Bring a database (in autocommit mode) to a version, each step in a transaction of its own.

    Raises ConfigError when it was written by a newer burnish.
    """
    version = applied(connection)
    if version > len(MIGRATIONS):
        raise ConfigError(
            f"the log was written by a newer burnish (schema {version}, this one knows {len(MIGRATIONS)}): "
            "update burnish"
        )
    connection.create_function("holds_credential", 1, holds_credential, deterministic=True)
    search.register(connection)
    for number, migration in enumerate(MIGRATIONS[version:upto], start=version + 1):
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in migration.statements:
                connection.execute(statement)
            connection.execute(
                "INSERT INTO migration VALUES (?, ?, ?)", (number, migration.name, time.time())
            )
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
