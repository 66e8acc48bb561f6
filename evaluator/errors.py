"""The exceptions of this room; each message names cause, place and remedy."""

from __future__ import annotations


class EvaluatorError(Exception):
    """Something that is not a candidate's fault stopped an evaluation."""


class ProblemError(EvaluatorError):
    """A problem directory, workload or contract is missing, malformed or contradictory."""


class SandboxUnavailable(EvaluatorError):
    """No sandbox can be built here; nothing is run without one (fail closed)."""


class BackendUnavailable(EvaluatorError):
    """A compiler or device that the backend needs is not on this machine."""


class ReferenceFailed(EvaluatorError):
    """The reference itself cannot run a workload, or disagrees with itself."""


class WorkerLost(EvaluatorError):
    """A worker died, broke the protocol or passed its deadline."""
