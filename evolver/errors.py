"""The exceptions of this room; each message names cause, place and remedy."""

from __future__ import annotations


class SearchError(Exception):
    """The search or its run directory cannot go on."""


class RunExists(SearchError):
    """The run directory is there already and nobody asked to resume it."""


class RunMissing(SearchError):
    """There is no run in the directory."""


class RunLocked(SearchError):
    """Another process is searching in the same run directory."""


class RunMismatch(SearchError):
    """The run in the directory belongs to another problem, backend or seed."""


class RunDamaged(SearchError):
    """A file of the run directory is malformed, or of a version that we do not read."""


class RunUnwritable(SearchError):
    """The run directory cannot be written: a full disk, no permission, a read-only place."""


class MachineTrouble(SearchError):
    """Evaluations in a row failed for reasons that are the machine's, not the candidates'."""


class LlmUnavailable(SearchError):
    """The models that were asked for cannot be: a package, a key or an endpoint is missing."""


class LibraryUnusable(SearchError):
    """The library of what worked cannot be read or written, or is of another version."""
