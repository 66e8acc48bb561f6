"""This process's attention, which threads have in turn.

Python's threads share one interpreter: while one compares large outputs, another that wants to
read its clock comes late, by milliseconds where blocks take three. So whoever compares, and
whoever holds a worker's claim against our own clock, has the attention of the process.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_ATTENTION = threading.RLock()
_SWITCH_SECONDS = 2e-4
"""A thread that waits for the interpreter gets it after this; Python's default is 25 times as
long, which a block's few requests would pay several times over."""


@contextmanager
def attention() -> Iterator[None]:
    """Have the process's attention; others wait, those that wait for a worker do not notice."""
    with _ATTENTION:
        yield


@contextmanager
def many_threads() -> Iterator[None]:
    """Let threads take turns often, while many candidates are in flight."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
