"""Errors for agents. Each error is one of the standard library, too."""

from __future__ import annotations


class AgentError(Exception):
    """Root of all errors of ``burnish.agents``."""


class NotRunning(AgentError, ConnectionError):
    """Nothing answers at the address of burnish, or it stopped answering."""


class Refused(AgentError, RuntimeError):
    """burnish, or the engine behind it, refused a request."""

    def __init__(self, words: str, *, status: int = 0, code: str | None = None) -> None:
        """``status``: of HTTP. ``code``: burnish's short name of the reason, if it gave one."""
        super().__init__(words)
        self.status = status
        self.code = code


class EpisodeOver(AgentError, RuntimeError):
    """Something was asked of an episode that has ended, or has not begun."""


class BadReward(AgentError, ValueError):
    """A reward that isn't a finite number, or a second one for the same step."""


class NoAction(AgentError, ValueError):
    """A reply held no valid action, and the agent has no default action: the episode has ended."""


class StepLimit(AgentError, RuntimeError):
    """An episode took more steps than it may: it has ended."""


class BadDemonstration(AgentError, ValueError):
    """A demonstration that can't be imitated."""


class TooManyFaults(AgentError, RuntimeError):
    """The environment failed so often that going on makes no sense."""


class MissingPackage(AgentError, ImportError):
    """A package of an extra is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the package {package}: pip install 'burnish[{extra}]'")
