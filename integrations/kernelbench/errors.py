"""What can be wrong with KernelBench's files."""

from __future__ import annotations

from integrations.errors import IntegrationError


class CheckoutMissing(IntegrationError):
    """There is no checkout of KernelBench at the place given."""


class NotCarried(IntegrationError):
    """A file cannot become a problem without changing it; the message says why."""


class TooLarge(NotCarried):
    """Its arguments take more bytes than were asked for; a machine with more may carry it."""
