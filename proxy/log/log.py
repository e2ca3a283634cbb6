"""The public interface of the log. ``capture`` costs a queue put; everything else is a coroutine."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial, wraps
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeVar, get_args

from burnish.proxy.http.errors import NotFound, Unavailable
from burnish.proxy.ids import continue_after
from burnish.proxy.log import (
    attribution,
    background,
    duels,
    files,
    followers,
    listings,
    queries,
    rated,
    retention,
    search,
    store,
    transfer,
)
from burnish.proxy.log import feedback as feedback_table
from burnish.proxy.log import instructions as instruction_table
from burnish.proxy.log import rollouts as rollout_table
from burnish.proxy.log import runs as run_table
from burnish.proxy.log import tokens as token_table
from burnish.proxy.log.batch import Stored, catching_up
from burnish.proxy.log.files import ReadConnection
from burnish.proxy.log.migrations import migrate
from burnish.proxy.log.rated import Rating
from burnish.proxy.log.ratings import Rater
from burnish.proxy.log.spill import Journal, Spill
from burnish.proxy.log.tally import RatingCounts, RatingTally, Totals
from burnish.proxy.log.writer import STOPPING, Backlog, LogWriter, NotYet, ignore
from burnish.proxy.records import Completion, Passthrough, RatedCompletion

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")
LATEST_ID = """SELECT max(
    (SELECT coalesce(max(substr(id, -26)), '') FROM (SELECT max(id) AS id FROM completion)),
    (SELECT coalesce(max(substr(id, -26)), '') FROM (SELECT max(id) AS id FROM feedback)),
    (SELECT coalesce(max(substr(id, -26)), '') FROM (SELECT max(id) AS id FROM passthrough))
)"""
"""Without its prefix."""
PRUNE_PAUSE_S = 0.02
"""Between two steps: deleting many rows must not take all of the writer's time."""
CHECKPOINT_TRIES = 5
"""Each waits up to ``files.BUSY_TIMEOUT_S`` for reads to end."""
WRITE_LIMIT_S = 20.0
"""A writer that needs longer is stuck."""
SPILL = "-spill"
"""The name of the database and this suffix make the name of the folder of ``Spill``."""
Query = Callable[[sqlite3.Connection], Result]
Reader = Literal["lookups", "listings", "learning"]
"""The connections that read. Look-ups are for one completion or one piece of feedback, because a person waits."""


def _reads(
    query: Callable[Concatenate[sqlite3.Connection, Arguments], Result],
    reader: Reader = "listings",
    *,
    waits: bool = True,
) -> Callable[Concatenate[Log, Arguments], Coroutine[Any, Any, Result]]:
    """Make a method of a function that reads. ``waits``: for all earlier captures."""

    @wraps(query)
    async def method(log: Log, /, *args: Arguments.args, **options: Arguments.kwargs) -> Result:
        read = log._read if waits else log._query
        return await read(lambda db: query(db, *args, **options), reader)

    return method


def _writes(
    call: Callable[Concatenate[sqlite3.Connection, Arguments], Result], *, early: bool = False
) -> Callable[Concatenate[Log, Arguments], Coroutine[Any, Any, Result]]:
    """Make a method of a function that writes. It raises Unavailable, too. ``early``: see ``LogWriter.submit``."""

    @wraps(call)
    async def method(log: Log, /, *args: Arguments.args, **options: Arguments.kwargs) -> Result:
        return await log._write(lambda db: call(db, *args, **options), early=early)

    return method


class Log:
    """All completions and the feedback on them, in one SQLite file.

    Coroutines wait for all earlier captures. Those that write return when the commit is on the disk; otherwise they
    raise Unavailable. Reads have connections and threads of their own, so the look-up of a rated answer waits
    neither for a listing nor for the learner. Methods made by ``_reads`` and ``_writes`` take the arguments of the
    function behind them, without its connection.
    """

    def __init__(self, writer: LogWriter, path: Path, damage: str | None = None) -> None:
        """Open the connections that read. Raises sqlite3.Error.

        ``damage``: what the check at the start found; reported as long as burnish runs.
        """
        self._writer = writer
        self._path = path
        self._readers: dict[Reader, ReadConnection] = {}
        if writer.has_database:
            self._open_readers()
        self._damage = damage
        self._deletions = 0
        """How many steps have deleted something."""
        self._totals = Totals()
        self._closed = False

    @classmethod
    def open(cls, path: Path, on_stored: Callable[[Stored], None] = ignore) -> Self:
        """Open the file, creating it and its folder for their owner only. Raises ConfigError.

        On a full disk it is opened later: until then, captures wait, and all coroutines raise Unavailable.

        ``on_stored`` is called on the writer thread for each completion on the disk; it must not raise.
        """
        folder, damage = path.with_name(path.name + SPILL), None
        try:
            try:
                database: sqlite3.Connection | NotYet = (connection := _opened(path))
                damage = _damage(connection)
            except sqlite3.OperationalError as error:
                if not files.disk_is_full(path.parent):
                    raise
                database = NotYet(f"the disk is full ({error})", partial(_opened, path))
            return cls(LogWriter(database, path, Spill(folder), Journal(folder), on_stored), path, damage)
        except sqlite3.Error as error:
            raise files.unusable(path, error) from error

    def close(self) -> None:
        """Store the queue and close the file. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        for reader in self._readers.values():
            reader.close_and_wait()
        self._writer.close()

    def healthy(self) -> str | None:
        return "; ".join(filter(None, (self._writer.healthy(), self._damage))) or None

    def backlog(self) -> Backlog:
        return self._writer.backlog()

    def capture(self, entry: Completion | Passthrough) -> None:
        """Queue a record; from any thread."""
        self._writer.put(entry)

    completions = _reads(listings.completions)
    stored_completions = _reads(listings.named, waits=False)
    covered = _reads(listings.covered)
    passthroughs = _reads(queries.passthroughs)
    worse = _reads(queries.worse, "lookups")
    next_turn = _reads(rated.next_turn, "lookups")
    regenerations = _reads(queries.regenerations)
    recent_prompts = _reads(store.recent_prompts, "learning")
    _resolve = _reads(queries.resolve, "lookups")
    resolve_history = _reads(queries.resolve_history, "lookups")
    rated_in_chat = _reads(queries.rated_in_chat, "lookups")
    held_up_to = _writes(attribution.held_up_to)
    with_answers = _writes(attribution.with_answers)
    """On the writer thread, because a request waits, and reads may take long."""

    add_feedback = _writes(feedback_table.add, early=True)
    preview_feedback = _reads(feedback_table.preview, "lookups")
    undo_feedback = _writes(feedback_table.undo, early=True)
    undo_all_feedback = _writes(feedback_table.undo_all)
    feedback = _reads(feedback_table.one, "lookups")
    feedbacks = _reads(feedback_table.latest)
    judged_feedbacks = _reads(listings.feedbacks)
    ratings = _reads(rated.ratings, "learning")
    all_have_system_messages = _reads(rated.all_have_system_messages, "learning")
    longest_prompt = _reads(rated.longest_prompt, "learning")
    in_contexts_of = _reads(rated.in_contexts_of, "learning")

    async def counts(self) -> dict[str, int]:
        return await self._read(lambda db: self._totals.counts(db, self._deletions))

    async def raters(self) -> list[Rater]:
        return await self._read(lambda db: self._totals.raters(db, self._deletions))

    async def agreement_with_judges(self) -> tuple[int, int]:
        return await self._read(lambda db: self._totals.agreement_with_judges(db, self._deletions))

    async def completion(self, completion_id: str) -> Completion:
        """Return one completion with its context, by our ID or the upstream's. Raises NotFound, Conflict.

        It waits for earlier captures only if the ID isn't that of a stored one.
        """
        try:
            return await self._query(lambda db: queries.stored(db, completion_id), "lookups")
        except NotFound:
            return await self._read(lambda db: queries.completion(db, completion_id), "lookups")

    async def resolve(self, *, completion_id: str | None = None, **target: str | None) -> Completion:
        """Return the completion that a target names; see ``queries.resolve``. Raises NotFound, Conflict."""
        if completion_id is not None:
            return await self.completion(completion_id)
        return await self._resolve(**target)

    async def rated(
        self, ratings: Iterable[Rating], use: Callable[[Iterator[RatedCompletion]], Result]
    ) -> Result:
        """Give rated answers with their texts to ``use``, on the thread that reads; see ``rated.rated``."""
        return await self._read(lambda db: rated.rated(db, ratings, use), "learning")

    async def rating_counts(
        self, tally: RatingTally, learnt_ids: Collection[str], since: str
    ) -> RatingCounts:
        """Bring a tally up to date and return its counts; see ``RatingTally.counts``.

        It doesn't wait for captures, because a rating is stored after the answer that it rates.
        """
        return await self._query(lambda db: tally.counts(db, self._deletions, learnt_ids, since), "learning")

    records = _reads(transfer.records)
    instruction_rows = _reads(instruction_table.rows)
    rated_answers = _reads(transfer.rated_answers)

    async def add_records(
        self, records: Sequence[transfer.Record], usable: transfer.Usable, *, trial: bool
    ) -> list[transfer.Outcome]:
        """Store records in one transaction; see ``transfer.add``. ``trial``: store nothing. Raises Unavailable."""
        try:
            return await self._write(lambda db: transfer.add(db, records, usable, trial=trial))
        except transfer.TriedOnly as tried:
            return tried.outcomes

    instructions = _reads(instruction_table.of)
    instructions_at_once = _writes(instruction_table.of)
    """On the writer thread, because a request waits, and reads may take long."""
    add_instruction = _writes(instruction_table.add)
    edit_instruction = _writes(instruction_table.edit)
    remove_instruction = _writes(instruction_table.remove)

    tokens = _reads(token_table.tokens)
    kept_tokens = _reads(token_table.kept, "lookups")

    last_row = _reads(followers.last_row, "learning")
    behind = _reads(followers.behind, "learning")
    branch = _reads(followers.branch, "learning")
    rewarded_upto = _reads(followers.rewarded_upto, "learning")
    set_rewards = _writes(followers.set_rewards)

    add_rollout = _writes(rollout_table.add)
    reward_rollout = _writes(rollout_table.reward)
    end_rollout = _writes(rollout_table.end)
    rollout = _reads(rollout_table.one, "lookups")
    rollouts = _reads(rollout_table.latest)
    earliest_rollouts = _reads(rollout_table.earliest)
    open_rollouts = _reads(rollout_table.open_ones)
    rollout_tally = _reads(rollout_table.tally, "lookups")
    unlearnt_rollouts = _reads(rollout_table.unlearnt, "learning")
    held_out_rollouts = _reads(rollout_table.held_out, "learning")
    rollout_steps = _reads(rollout_table.steps, "learning")
    rollouts_learnt = _writes(rollout_table.learnt)

    add_duels = _writes(duels.add)
    replace_sampled_duels = _writes(duels.replace_sampled)
    judge_duel = _writes(duels.judge)
    close_duels = _writes(duels.close)
    duel = _reads(duels.one, "lookups")
    open_duels = _reads(duels.open_ones)
    judged_duels = _reads(duels.judged_count)

    start_run = _writes(run_table.start)
    update_run = _writes(run_table.update)
    runs = _reads(run_table.latest)
    run = _reads(run_table.one)
    keep_curve = _writes(run_table.keep_curve)
    curve = _reads(run_table.curve)

    teachers = _reads(run_table.teachers)
    answers_by_day = _reads(run_table.answers_by_day)

    run_totals = _reads(run_table.totals, waits=False)
    """Also while nothing can be written."""

    async def complete_response(self, response_id: str, caller: str, body: bytes) -> bool:
        """Complete an answer that was made in the background; see ``background.complete``. Raises Unavailable."""
        return await self._delete(lambda db: background.complete(db, response_id, caller, body))

    # Deleting

    async def prune(self, keep: retention.Keep) -> int:
        """Delete, a few at a time, the completions that aren't kept; return how many. Raises Unavailable.

        Passthroughs of the same age are deleted, too.
        """
        upto = await self._read(lambda db: retention.boundary(db, keep, time.time(), "completion"))
        total, looked_at = 0, 0
        while looked_at < upto:
            step = partial(retention.prune, keep=keep, start=looked_at, upto=upto)
            looked_at, count = await self._delete(step)
            if not looked_at:
                break
            total += count
            await asyncio.sleep(PRUNE_PAUSE_S)
        if total:
            await self._purge_search()
        upto = await self._read(lambda db: retention.boundary(db, keep, time.time(), "passthrough"))
        while await self._delete(partial(retention.prune_passthroughs, upto=upto)):  # noqa: ASYNC110  (others write meanwhile)
            await asyncio.sleep(PRUNE_PAUSE_S)
        return total

    async def forget(self, caller: str) -> int:
        """Erase all requests, answers and feedback of a caller; return the number of rows. Raises Unavailable."""
        await self._write(lambda _: None)
        if self._writer.behind:
            raise catching_up()
        total = 0
        while count := await self._delete(partial(retention.forget, caller=caller)):
            total += count
            await asyncio.sleep(PRUNE_PAUSE_S)
        await self._purge_search()
        for _ in range(CHECKPOINT_TRIES):
            # The write-ahead log holds old pages. It can't be emptied during a read.
            ((busy, *_figures),) = await self._read(
                lambda db: db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            )
            if not busy:
                break
        return total

    async def _purge_search(self) -> None:
        """Take the words of deleted completions out of the file, a few at a time. Raises Unavailable."""
        begin = True
        while await self._write(partial(search.purge, begin=begin)):
            begin = False
            await asyncio.sleep(PRUNE_PAUSE_S)

    async def existing(self, completion_ids: Collection[str]) -> set[str]:
        """Return those of the completions that the log has. Raises Unavailable."""
        query = "SELECT id FROM completion WHERE id IN (SELECT value FROM json_each(?))"
        rows = await self._read(lambda db: db.execute(query, (store.as_json(completion_ids),)).fetchall())
        return {name for (name,) in rows}

    async def _delete(self, call: Query[Result]) -> Result:
        def step(db: sqlite3.Connection) -> tuple[Result, bool]:
            changes = db.total_changes
            return call(db), db.total_changes > changes

        future = self._writer.submit(step, deletes=True)
        future.add_done_callback(self._deleted)  # also if nobody waits for it any more
        answer, _ = await asyncio.wrap_future(future)
        return answer

    def _deleted(self, step: Future[tuple[Any, bool]]) -> None:
        failed = step.cancelled() or step.exception() is not None
        if failed or step.result()[1]:
            self._deletions += 1

    async def _write(self, call: Query[Result], *, early: bool = False) -> Result:
        try:
            async with asyncio.timeout(WRITE_LIMIT_S):
                return await asyncio.wrap_future(self._writer.submit(call, early=early))
        except TimeoutError as error:
            raise Unavailable(
                f"nothing is known to be stored: {self.healthy() or f'that took longer than {WRITE_LIMIT_S:g} s'}. "
                "Try again in a moment"
            ) from error

    async def _read(self, query: Query[Result], reader: Reader = "listings") -> Result:
        """Read after all earlier captures. While they can't be stored, Unavailable replaces NotFound."""
        unstored = None
        try:
            await self._write(lambda _: None)
            if self._writer.behind:
                unstored = catching_up()
        except Unavailable as error:
            unstored = error
        try:
            return await self._query(query, reader)
        except NotFound as error:
            raise (unstored or error) from error

    async def _query(self, query: Query[Result], reader: Reader = "listings") -> Result:
        if self._closed:
            raise Unavailable(STOPPING)
        if not self._readers:
            try:
                self._open_readers()
            except sqlite3.Error as error:
                raise Unavailable(f"the log can't be read: {error}") from error
        return await self._readers[reader].run(query)

    def _open_readers(self) -> None:
        if not self._writer.has_database:
            raise Unavailable(f"the log can't be read: {self.healthy()}")
        self._readers = {name: ReadConnection(self._path) for name in get_args(Reader)}


def _damage(connection: sqlite3.Connection) -> str | None:
    advice = "`burnish doctor --deep` compares all; a backup has them whole"
    try:
        damaged, compared = files.damaged_texts(connection)
    except sqlite3.DatabaseError as error:
        return f"some texts in the log can't be read ({error}): {advice}"
    return f"{damaged} of {compared} texts in the log are damaged: {advice}" if damaged else None


def _opened(path: Path) -> sqlite3.Connection:
    """Open, check and migrate the file. Raises sqlite3.Error, ConfigError."""
    files.create(path)
    connection = files.connect(path)
    try:
        files.check(connection, path)
        migrate(connection)
        continue_after(connection.execute(LATEST_ID).fetchone()[0])
    except BaseException:
        connection.close()
        raise
    return connection
