"""Errors of adapter versions and of the engines that serve them.

AdapterError: UnknownVersion, PrunedVersion, IllegalTransition, CorruptAdapter, IncompatibleAdapter,
UnreadableRewardModel, EngineError.
IncompatibleAdapter: LostInRounding.
EngineError: EngineUnreachable, EngineRefused, UnknownWeights, NeedsRestart, ProbeFailed.
ProbeFailed: Unproved.
Unproved: NotApplied.
"""


class AdapterError(Exception):
    """Root of this room's errors; the message says what to do next."""


class UnknownVersion(AdapterError, LookupError):
    """There is no such version."""


class PrunedVersion(AdapterError, LookupError):
    """The weights of a version were deleted, since enough later ones are kept."""


class IllegalTransition(AdapterError, ValueError):
    """A version cannot go from its present state to the one asked for."""


class CorruptAdapter(AdapterError, ValueError):
    """The files of a version are missing, damaged or unsafe."""


class IncompatibleAdapter(AdapterError, ValueError):
    """The engine, or the base model it serves, cannot take this adapter."""


class LostInRounding(IncompatibleAdapter):
    """The adapter changes the weights by so little that the merged file would be the base model again."""


class UnreadableRewardModel(AdapterError, ValueError):
    """The files of a reward model are missing, damaged, or of another kind than expected."""


class EngineError(AdapterError, RuntimeError):
    """The engine refused, failed, or is not running."""


class EngineUnreachable(EngineError):
    """Nothing listens there, or it did not answer in time."""


class EngineRefused(EngineError):
    """The engine answered with an error status."""

    def __init__(self, message: str, status: int, detail: str) -> None:
        super().__init__(message)
        self.status = status
        self.detail = detail
        """The engine's own words: the body, or the message in it."""


class UnknownWeights(EngineError):
    """The engine doesn't tell where its weights are on this machine."""

    def __init__(self, message: str, hub_id: str | None) -> None:
        super().__init__(message)
        self.hub_id = hub_id
        """The model on the Hugging Face hub, if it names one."""


class NeedsRestart(EngineError):
    """The engine takes the version only when its owner starts it again; the message says how."""


class ProbeFailed(EngineError):
    """The engine loaded the version, but a real generation on it failed."""


class Unproved(ProbeFailed):
    """The engine took the version, and can't be shown to apply it."""


class NotApplied(Unproved):
    """It answers as the base model does."""
