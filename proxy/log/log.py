"""The log's public face: captures go in at the cost of a queue put, everything else is a coroutine."""

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
from burnish.proxy.log.queries import Said, said_by
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
"""Each rater counts as much as any other."""
LATEST_ID = """SELECT max(
    (SELECT coalesce(max(substr(id, -26)), '') FROM (SELECT max(id) AS id FROM completion)),
    (SELECT coalesce(max(substr(id, -26)), '') FROM (SELECT max(id) AS id FROM feedback)),
    (SELECT coalesce(max(substr(id, -26)), '') FROM (SELECT max(id) AS id FROM passthrough))
)"""
"""Less its prefix."""
PRUNE_PAUSE_S = 0.02
"""Between two steps, so that taking out much takes no more than a part of the writer's time."""
CHECKPOINT_TRIES = 5
"""Each waits up to ``files.BUSY_TIMEOUT_S`` for reads to end."""
SPILL = "-spill"
"""Behind the name of the database: the folder of what it cannot take at the moment."""
Query = Callable[[sqlite3.Connection], Result]


class Log:
    """All completions and the feedback on them, in one SQLite file.

    Coroutines run behind all earlier captures. Those that write return when the commit is on the disk, and raise
    Unavailable when it cannot be. Reads have connections and threads of their own: finding the answer that somebody
    rates waits neither for a listing nor for the learner.
    """

    def __init__(self, writer: Writer, path: Path) -> None:
        """Open the connections that read. Raises sqlite3.Error."""
        self._writer = writer
        self._lookups = ReadConnection(path)
        """One completion, one piece of feedback: somebody waits for it."""
        self._listings = ReadConnection(path)
        self._learning = ReadConnection(path)
        self._deletions = 0
        """Grows before and after rows are deleted."""
        self._closed = False

    @classmethod
    def open(cls, path: Path, on_stored: Callable[[Stored], None] = ignore) -> Self:
        """Open the file, creating it and its folder for their owner only. Raises ConfigError.

        ``on_stored`` is told of each completion that is on the disk, on the writer thread; it must not raise.
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
        """Store what is waiting and close the file; a second time does nothing."""
        if self._closed:
            return
        self._closed = True
        for reading in (self._lookups, self._listings, self._learning):
            reading.close_and_wait()
        self._writer.close()

    def healthy(self) -> str | None:
        """Return None when all is well, else why not."""
        return self._writer.healthy()

    def backlog(self) -> Backlog:
        return self._writer.backlog()

    def capture(self, entry: Completion | Passthrough) -> None:
        """Take a record; returns at once. From any thread."""
        self._writer.put(entry)

    # Completions

    async def completion(self, completion_id: str) -> Completion:
        """Return one completion with its context, by our id or the upstream's. Raises NotFound, Conflict."""
        return await self._read(partial(queries.completion, completion_id=completion_id), self._lookups)

    async def completions(
        self, limit: int = 50, before: str | None = None, conversation: str | None = None
    ) -> list[Completion]:
        """Return completions (without contexts and parameters), latest first; ``before`` is an id to go on from."""
        return await self._read(lambda db: queries.completions(db, limit, before, conversation))

    async def passthroughs(self, limit: int = 50, before: str | None = None) -> list[Passthrough]:
        """Return passthroughs, latest first; ``before`` is an ID to continue from."""
        return await self._read(partial(queries.passthroughs, limit=limit, before=before))

    async def said_by(self, caller: str, after: str, limit: int) -> list[Said]:
        """Return all that there is of a person, instructions aside, earliest first."""
        return await self._read(partial(said_by, caller=caller, after=after, limit=limit))

    async def next_turn(self, completion_id: str) -> str | None:
        """Return what the user said right after a reply, None where the conversation did not go on from it."""
        return await self._read(partial(queries.next_turn, completion_id=completion_id), self._lookups)

    async def regenerations(
        self, limit: int = 50, before: str | None = None, conversation: str | None = None
    ) -> list[Regeneration]:
        """Return what was asked for again, latest first; ``before`` is a completion's id to go on from."""
        return await self._read(lambda db: queries.regenerations(db, limit, before, conversation))

    async def recent_prompts(self, limit: int) -> list[Completion]:
        """Return the latest distinct contexts that got a whole answer, with messages and parameters."""
        return await self._read(lambda db: store.recent_prompts(db, limit), self._learning)

    async def counts(self) -> dict[str, int]:
        """Return how much there is: completions, conversations, passthrough, feedback, ratings, good, bad, comments …

        Ratings are effective ones: one a completion.
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
        """Return the one completion that a target means: exactly one of the first four is given.

        ``conversation_id`` means its latest answer, ``last_of`` a caller's (in a session, when one is given).
        Raises NotFound; Conflict with ``candidates`` when a response id fits several.
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

        ``name`` is its id, or that of an item of it. For a request that waits for it: behind no long read. Raises
        Unavailable.
        """
        return await self._write(lambda db: attribution.messages_up_to(db, name, caller, session))

    # Feedback

    async def add_feedback(self, draft: FeedbackDraft) -> tuple[Feedback, bool]:
        """Store feedback; False with the first record when its idempotency key was used for the same before.

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
        """Return feedback, latest first, undone and superseded ones too; ``before`` is an id to go on from."""
        return await self._read(lambda db: feedback.latest(db, completion_id, conversation_id, limit, before))

    async def rated(
        self, rater_weights: Mapping[str, float] = EQUAL, *, next_turns: bool = False
    ) -> list[RatedCompletion]:
        """Return all completions with an effective rating, earliest first, with context, parameters and reply.

        Rated as training uses it, raters counted by their weights (``ratings.for_training``). ``next_turns``: what
        the user said next is the comment on a bad answer that has none. Reads every rated conversation.
        """
        query = partial(queries.rated, rater_weights=rater_weights, next_turns=next_turns)
        return await self._read(query, self._learning)

    async def rating_counts(self, tally: RatingTally, learnt: Collection[str], since: str) -> RatingCounts:
        """Bring a tally up to date and return its counts; see ``RatingTally.counts``.

        Not behind captures: a rating is stored after the answer that it rates.
        """
        return await self._query(lambda db: tally.counts(db, self._deletions, learnt, since), self._learning)

    async def raters(self) -> list[Rater]:
        """Return all who rated, the busiest first, and how far they agree."""
        return await self._read(feedback.raters)

    # Instructions

    async def instructions(self, caller: str) -> list[Instruction]:
        """Return what a caller instructions, what was last said first."""
        return await self._read(partial(instructions.of, caller=caller))

    async def instructions_at_once(self, caller: str) -> list[Instruction]:
        """Return the same for a request that waits for it: behind no long read. Raises Unavailable."""
        return await self._write(partial(instructions.of, caller=caller))

    async def add_instruction(self, caller: str, text: str) -> Instruction:
        """Add an instruction by hand. Raises Unprocessable, Conflict (too many), Unavailable."""
        return await self._write(partial(instructions.add, caller=caller, text=text))

    async def edit_instruction(self, caller: str, instruction_id: str, text: str) -> Instruction:
        """Change what an instruction says. Raises NotFound, Unprocessable, Unavailable."""
        return await self._write(partial(instructions.edit, caller=caller, name=instruction_id, text=text))

    async def remove_instruction(self, caller: str, instruction_id: str) -> Instruction:
        """Remove an instruction, so that no comment brings it back. Raises NotFound, Unavailable."""
        return await self._write(partial(instructions.remove, caller=caller, name=instruction_id))

    # Training runs

    async def start_run(self, run: Run) -> None:
        await self._write(partial(runs.start, run=run))

    async def update_run(self, run: Run) -> None:
        """Replace what is known of a run. Raises NotFound."""
        await self._write(partial(runs.update, run=run))

    async def runs(self, limit: int = 50) -> list[Run]:
        """Return runs, latest first."""
        return await self._read(partial(runs.latest, limit=limit))

    async def run(self, run_id: str) -> Run:
        """Return one run. Raises NotFound."""
        return await self._read(partial(runs.one, run_id=run_id))

    async def run_totals(self) -> list[RunTotal]:
        """Return how the runs that are over ended, also while nothing can be written. Raises Unavailable."""
        return await self._query(runs.totals)

    # Taking out

    async def prune(self, keep: retention.Keep) -> int:
        """Take out the completions that are not kept, and return how many; a little at a time. Raises Unavailable.

        Passthroughs of the same age go, too.
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
        """Erase what a caller asked, was answered and said of answers; returns how many rows. Raises Unavailable."""
        await self._write(lambda _: None)
        if self._writer.behind:
            raise catching_up()
        gone = 0
        while count := await self._delete(partial(retention.forget, caller=caller)):
            gone += count
            await asyncio.sleep(PRUNE_PAUSE_S)
        for _ in range(CHECKPOINT_TRIES):
            # The write-ahead log holds pages as they were. It cannot be emptied while somebody reads.
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
        """Read behind all earlier captures. While they cannot be stored, "not found" may be wrong: Unavailable."""
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
