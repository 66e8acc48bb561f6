"""The exceptions of this room; each message names cause, place and remedy."""

from __future__ import annotations

from pathlib import Path

_SHOWN_REASONS = 10


class IntegrationError(Exception):
    """Something about the target repository, or about what the user asked of it, is wrong."""


class TargetError(IntegrationError):
    """The target names no single readable definition inside the repository."""


class WorkloadsError(IntegrationError):
    """The user's workloads file is malformed, or does not fit the target."""


class WorkloadsNeeded(IntegrationError):
    """Nothing tells the inputs' shapes; a template was written for the user to fill in."""

    def __init__(self, message: str, template: Path) -> None:
        super().__init__(message)
        self.template = template


class OutputExists(IntegrationError):
    """The problem's directory is not empty and may not be replaced."""


class ProblemUnwritable(IntegrationError):
    """The disk is full or the place may not be written; nothing was left behind."""


class Refused(IntegrationError):
    """The target cannot be extracted faithfully; ``reasons`` say why, one line each."""

    def __init__(self, target: str, reasons: tuple[str, ...]) -> None:
        listed = "\n".join(f"  - {reason}" for reason in reasons[:_SHOWN_REASONS])
        more = len(reasons) - _SHOWN_REASONS
        rest = f"\n  - and {more} more of the kind" if more > 0 else ""
        super().__init__(
            f"{target} cannot be extracted faithfully:\n{listed}{rest}\n"
            "Give workloads whose scalars rule such a branch out, or choose a smaller function."
        )
        self.reasons = reasons
