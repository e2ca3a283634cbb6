"""The public interface of the log. ``capture`` costs a queue put; everything else is a coroutine."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self, TypeVar

from burnish.proxy.errors import NotFound, Unavailable
from burnish.proxy.ids import continue_after
from burnish.proxy.log import (
    attribution,
    feedback,
    files,
    instructions,
    queries,
    retention,
    runs,
    store,
)
from burnish.proxy.log.batch import Stored, catching_up
from burnish.proxy.log.files import ReadConnection
from burnish.proxy.log.migrations import migrate
from burnish.proxy.log.ratings import Rater
from burnish.proxy.log.runs import RunTotal
from burnish.proxy.log.spill import Journal, Spill
from burnish.proxy.log.tally import RatingCounts, RatingTally
from burnish.proxy.log.writer import STOPPING, Backlog, Writer, ignore
from burnish.proxy.records import (
    Completion,
    Feedback,
    FeedbackDraft,
    Instruction,
    Passthrough,
    RatedCompletion,
    Regeneration,
    Run,
)

Result = TypeVar("Result")
EQUAL: Mapping[str, float] = MappingProxyType({})
"""Every rater has the same weight."""
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
SPILL = "-spill"
"""The name of the database and this suffix make the name of the folder of ``Spill``."""
Query = Callable[[sqlite3.Connection], Result]


class Log:
    """All completions and the feedback on them, in one SQLite file.

    Coroutines wait for all earlier captures. Those that write return when the commit is on the disk; otherwise they
    raise Unavailable. Reads have connections and threads of their own, so the look-up of a rated answer waits
    neither for a listing nor for the learner.
    """

    def __init__(self, writer: Writer, path: Path) -> None:
        """Open the connections that read. Raises sqlite3.Error."""
        self._writer = writer
        self._lookups = ReadConnection(path)
        """For one completion or one piece of feedback, because a person waits."""
        self._listings = ReadConnection(path)
        self._learning = ReadConnection(path)
        self._deletions = 0
        """Increased before and after rows are deleted."""
        self._closed = False

    @classmethod
    def open(cls, path: Path, on_stored: Callable[[Stored], None] = ignore) -> Self:
        """Open the file, creating it and its folder for their owner only. Raises ConfigError.

        ``on_stored`` is called on the writer thread for each completion on the disk; it must not raise.
        """
        files.create(path)
        try:
            writing = files.connect(path)
            try:
                files.check(writing, path)
                migrate(writing)
                continue_after(writing.execute(LATEST_ID).fetchone()[0])
            except BaseException:
                writing.close()
                raise
            folder = path.with_name(path.name + SPILL)
            return cls(Writer(writing, Spill(folder), Journal(folder), on_stored), path)
        except sqlite3.Error as error:
            raise files.unusable(path, error) from error

    def close(self) -> None:
        """Store the queue and close the file. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        for reading in (self._lookups, self._listings, self._learning):
            reading.close_and_wait()
        self._writer.close()

    def healthy(self) -> str | None:
        return self._writer.healthy()

    def backlog(self) -> Backlog:
        return self._writer.backlog()

    def capture(self, entry: Completion | Passthrough) -> None:
        """Queue a record; from any thread."""
        self._writer.put(entry)

    # Completions

    async def completion(self, completion_id: str) -> Completion:
        """Return one completion with its context, by our id or the upstream's. Raises NotFound, Conflict."""
        return await self._read(partial(queries.completion, completion_id=completion_id), self._lookups)

    async def completions(
        self, limit: int = 50, before: str | None = None, conversation: str | None = None
    ) -> list[Completion]:
        """Return completions (without contexts and parameters), latest first; ``before`` is an ID to continue from."""
        return await self._read(lambda db: queries.completions(db, limit, before, conversation))

    async def passthroughs(self, limit: int = 50, before: str | None = None) -> list[Passthrough]:
        """Return passthroughs, latest first; ``before`` is an ID to continue from."""
        return await self._read(partial(queries.passthroughs, limit=limit, before=before))

    async def personal_records(self, caller: str, after: str, limit: int) -> list[queries.PersonalRecord]:
        """Return all records of a caller except instructions, earliest first; see ``queries.personal_records``."""
        return await self._read(partial(queries.personal_records, caller=caller, after=after, limit=limit))

    async def next_turn(self, completion_id: str) -> str | None:
        """Return the next message of the user after a reply; None if the conversation didn't continue from it."""
        return await self._read(partial(queries.next_turn, completion_id=completion_id), self._lookups)

    async def regenerations(
        self, limit: int = 50, before: str | None = None, conversation: str | None = None
    ) -> list[Regeneration]:
        """Return regenerations, latest first; ``before`` is the ID of a completion to continue from."""
        return await self._read(lambda db: queries.regenerations(db, limit, before, conversation))

    async def recent_prompts(self, limit: int) -> list[Completion]:
        """Return the latest distinct contexts with a complete answer, with messages and parameters."""
        return await self._read(lambda db: store.recent_prompts(db, limit), self._learning)

    async def counts(self) -> dict[str, int]:
        """Return counts: completions, conversations, passthrough, feedback, ratings, good, bad, comments, corrections.

        Only effective ratings count, one per completion.
        """
        return await self._read(queries.counts)

    async def resolve(
        self,
        *,
        completion_id: str | None = None,
        response_id: str | None = None,
        conversation_id: str | None = None,
        last_of: str | None = None,
        session: str | None = None,
    ) -> Completion:
        """Return the completion that a target names. Exactly one of the first four arguments must be given.

        ``conversation_id`` names its latest answer, ``last_of`` the latest answer to a caller,
        in ``session`` if that is given. Raises NotFound; Conflict with ``candidates`` if several completions have the
        response ID.
        """
        return await self._read(
            partial(
                queries.resolve,
                completion_id=completion_id,
                response_id=response_id,
                conversation_id=conversation_id,
                last_of=last_of,
                session=session,
            ),
            self._lookups,
        )

    async def resolve_history(
        self, messages: Sequence[dict[str, Any]], caller: str, session: str | None = None
    ) -> Completion:
        """Return the completion that is the last assistant message of a history. Raises NotFound, Conflict."""
        return await self._read(
            lambda db: queries.resolve_history(db, messages, caller, session), self._lookups
        )

    async def messages_up_to(
        self, name: str, caller: str, session: str | None
    ) -> list[dict[str, Any]] | None:
        """Return the messages up to a response to a caller, and the response; None if the log has no such response.

        ``name`` is the ID of the response or of one of its items. It runs on the writer thread because a request waits,
        and reads may take long. Raises Unavailable.
        """
        return await self._write(lambda db: attribution.messages_up_to(db, name, caller, session))

    # Feedback

    async def add_feedback(self, draft: FeedbackDraft) -> tuple[Feedback, bool]:
        """Store feedback. If its idempotency key was used for the same feedback before: the first record and False.

        Raises NotFound, Conflict (key used for other feedback), Unavailable.
        """
        return await self._write(partial(feedback.add, draft=draft))

    async def undo_feedback(self, feedback_id: str) -> Feedback:
        """Take feedback back. Raises NotFound, Unavailable."""
        return await self._write(partial(feedback.undo, feedback_id=feedback_id))

    async def feedback(self, feedback_id: str) -> Feedback:
        """Return one piece of feedback. Raises NotFound."""
        return await self._read(partial(feedback.one, feedback_id=feedback_id), self._lookups)

    async def feedbacks(
        self,
        completion_id: str | None = None,
        conversation_id: str | None = None,
        limit: int = 50,
        before: str | None = None,
    ) -> list[Feedback]:
        """Return feedback, latest first, also undone and superseded pieces; ``before`` is an ID to continue from."""
        return await self._read(lambda db: feedback.latest(db, completion_id, conversation_id, limit, before))

    async def rated(
        self, rater_weights: Mapping[str, float] = EQUAL, *, next_turns: bool = False
    ) -> list[RatedCompletion]:
        """Return all completions with an effective rating, earliest first, with context, parameters and reply.

        Ratings are as training uses them, with the weights of their raters (``ratings.for_training``). ``next_turns``:
        the next message of the user is the comment on a bad answer without one. Reads every rated conversation.
        """
        query = partial(queries.rated, rater_weights=rater_weights, next_turns=next_turns)
        return await self._read(query, self._learning)

    async def rating_counts(self, tally: RatingTally, learnt: Collection[str], since: str) -> RatingCounts:
        """Bring a tally up to date and return its counts; see ``RatingTally.counts``.

        It doesn't wait for captures, because a rating is stored after the answer that it rates.
        """
        return await self._query(lambda db: tally.counts(db, self._deletions, learnt, since), self._learning)

    async def raters(self) -> list[Rater]:
        """Return all raters, those with most ratings first, and how far they agree."""
        return await self._read(feedback.raters)

    # Instructions

    async def instructions(self, caller: str) -> list[Instruction]:
        """Return the instructions of a caller, latest first."""
        return await self._read(partial(instructions.of, caller=caller))

    async def instructions_at_once(self, caller: str) -> list[Instruction]:
        """Return the same on the writer thread, because a request waits and reads may take long. Raises Unavailable."""
        return await self._write(partial(instructions.of, caller=caller))

    async def add_instruction(self, caller: str, text: str) -> Instruction:
        """Add an instruction by hand. Raises Unprocessable, Conflict (too many), Unavailable."""
        return await self._write(partial(instructions.add, caller=caller, text=text))

    async def edit_instruction(self, caller: str, instruction_id: str, text: str) -> Instruction:
        """Change the text of an instruction. Raises NotFound, Unprocessable, Unavailable."""
        return await self._write(partial(instructions.edit, caller=caller, name=instruction_id, text=text))

    async def remove_instruction(self, caller: str, instruction_id: str) -> Instruction:
        """Remove an instruction for good: no comment brings it back. Raises NotFound, Unavailable."""
        return await self._write(partial(instructions.remove, caller=caller, name=instruction_id))

    # Training runs

    async def start_run(self, run: Run) -> None:
        await self._write(partial(runs.start, run=run))

    async def update_run(self, run: Run) -> None:
        """Replace the record of a run. Raises NotFound."""
        await self._write(partial(runs.update, run=run))

    async def runs(self, limit: int = 50) -> list[Run]:
        """Return runs, latest first."""
        return await self._read(partial(runs.latest, limit=limit))

    async def run(self, run_id: str) -> Run:
        """Return one run. Raises NotFound."""
        return await self._read(partial(runs.one, run_id=run_id))

    async def run_totals(self) -> list[RunTotal]:
        """Count ended runs by their result, also while nothing can be written. Raises Unavailable."""
        return await self._query(runs.totals)

    # Deleting

    async def prune(self, keep: retention.Keep) -> int:
        """Delete, a few at a time, the completions that aren't kept; return how many. Raises Unavailable.

        Passthroughs of the same age are deleted, too.
        """
        upto = await self._read(lambda db: retention.boundary(db, keep, time.time(), "completion"))
        gone, looked_at = 0, 0
        while looked_at < upto:
            step = partial(retention.prune, keep=keep, after=looked_at, upto=upto)
            looked_at, count = await self._delete(step)
            if not looked_at:
                break
            gone += count
            await asyncio.sleep(PRUNE_PAUSE_S)
        upto = await self._read(lambda db: retention.boundary(db, keep, time.time(), "passthrough"))
        while await self._delete(partial(retention.prune_passthroughs, upto=upto)):  # noqa: ASYNC110  (others write meanwhile)
            await asyncio.sleep(PRUNE_PAUSE_S)
        return gone

    async def forget(self, caller: str) -> int:
        """Erase all requests, answers and feedback of a caller; return the number of rows. Raises Unavailable."""
        await self._write(lambda _: None)
        if self._writer.behind:
            raise catching_up()
        gone = 0
        while count := await self._delete(partial(retention.forget, caller=caller)):
            gone += count
            await asyncio.sleep(PRUNE_PAUSE_S)
        for _ in range(CHECKPOINT_TRIES):
            # The write-ahead log holds old pages. It can't be emptied during a read.
            ((busy, *_figures),) = await self._read(
                lambda db: db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            )
            if not busy:
                break
        return gone

    async def _delete(self, call: Query[Result]) -> Result:
        self._deletions += 1
        try:
            return await asyncio.wrap_future(self._writer.submit(call, deletes=True))
        finally:
            self._deletions += 1

    async def _write(self, call: Query[Result]) -> Result:
        return await asyncio.wrap_future(self._writer.submit(call))

    async def _read(self, query: Query[Result], connection: ReadConnection | None = None) -> Result:
        """Read after all earlier captures. While they can't be stored, Unavailable replaces NotFound."""
        unstored = None
        try:
            await self._write(lambda _: None)
            if self._writer.behind:
                unstored = catching_up()
        except Unavailable as error:
            unstored = error
        try:
            return await self._query(query, connection)
        except NotFound as error:
            raise (unstored or error) from error

    async def _query(self, query: Query[Result], connection: ReadConnection | None = None) -> Result:
        if self._closed:
            raise Unavailable(STOPPING)
        return await (connection or self._listings).run(query)
