"""Steps that an interruption must not cut in two: what ended is logged whole, or not at all."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def unbroken() -> Iterator[None]:
    """Put Ctrl-C and SIGTERM off until the block has ended; they come then.

    Python delivers signals to the main thread alone; in any other this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _INTERRUPTIONS}
    put_off: list[int] = []
    try:
        for number in before:
            signal.signal(number, lambda came, _frame: put_off.append(came))
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if put_off:
            signal.raise_signal(put_off[0])
