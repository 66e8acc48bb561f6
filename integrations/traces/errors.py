"""The exceptions of this room; each message names cause, place and remedy."""

from __future__ import annotations

from integrations.errors import IntegrationError


class TraceError(IntegrationError):
    """The file cannot be read as a chrome trace of torch.profiler."""
