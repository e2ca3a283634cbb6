"""What follows from feedback, imports, erasures and a new start: first in the core, then in the parts."""

from __future__ import annotations

from burnish.app.observe import Observer
from burnish.learner.learning import Learning
from burnish.learner.reset import Outcome
from burnish.parts.hooks import Hooks
from burnish.proxy.http.errors import Conflict
from burnish.proxy.instructions import Instructions
from burnish.proxy.records import Feedback


class Reactions:
    def __init__(
        self,
        observer: Observer,
        instructions: Instructions,
        learning: Learning | None,
        why_not: str,
        hooks: Hooks,
    ) -> None:
        """``why_not``: why burnish doesn't learn, if it doesn't."""
        self._observer = observer
        self._instructions = instructions
        self._learning = learning
        self._why_not = why_not
        self._hooks = hooks

    def feedback(self, feedback: Feedback) -> None:
        """Called with new feedback and with feedback that was undone."""
        self._observer.counts.rated(feedback)
        self._instructions.changed(feedback.draft.rater)
        if self._learning:
            self._learning.learner.wake()
        self._hooks.rated(feedback)

    def imported(self) -> None:
        """Called when records of another log, or of another program, were stored."""
        self._instructions.all_changed()
        if self._learning:
            self._learning.learner.wake()
        self._hooks.imported()

    async def erased(self, user: str) -> None:
        """Called when the log has erased a user. Raises Unavailable."""
        self._instructions.changed(user)
        if self._learning:
            await self._learning.learner.forget()
        await self._hooks.erased(user)

    async def start_over(self, reason: str) -> Outcome:
        """Start learning over. Raises Conflict, Unavailable."""
        if self._learning is None:
            raise Conflict(self._why_not, code="not_learning")
        outcome = await self._learning.reset(reason)
        self._instructions.all_changed()
        await self._hooks.reset()
        return outcome
