"""Why a patch was not made; each message names cause, place and remedy."""

from __future__ import annotations

from integrations.errors import IntegrationError


class PatchError(IntegrationError):
    """The repository was not touched: the change cannot be made, or must not be."""


class TargetMoved(PatchError):
    """The target is not what was extracted: it moved, changed or is gone."""


class RepositoryUnfit(PatchError):
    """The repository cannot take a branch now: not a git repository, dirty, no commit."""


class BranchExists(PatchError):
    """The branch is there already and was not to be replaced."""


class BranchNameInvalid(PatchError):
    """Git takes no branch of that name."""
