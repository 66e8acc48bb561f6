"""Passing over large arrays in blocks that fit a cache, on several threads.

Comparing outputs of millions of elements is bound by memory: every temporary of full size
costs more than the arithmetic. numpy lets go of the interpreter's lock within a block.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from evaluator.attention import attention
from evaluator.tensors import Array

_BLOCK_ELEMENTS = 1 << 16
_MOST_THREADS = 4
_MIN_ROW = 16
"""Rows shorter than this have no scale of their own; the whole tensor gives it."""

Block = tuple[slice, slice]
T = TypeVar("T")


def as_rows(values: Array) -> Array:
    """``values`` as (rows, extent); one row where the last extent is short."""
    if values.ndim < 2 or values.shape[-1] < _MIN_ROW:
        return values.reshape(1, -1)
    return values.reshape(-1, values.shape[-1])


def over_blocks(function: Callable[[Block], T], shape: tuple[int, ...]) -> Iterable[T]:
    """What ``function`` returns for each block of an array of ``shape`` (rows, extent)."""

    def quietly(block: Block) -> T:  # a thread does not inherit this from its caller
        with np.errstate(all="ignore"):
            return function(block)

    blocks = list(_blocks(*shape))
    if len(blocks) < 4:
        return [quietly(block) for block in blocks]
    workers = min(_MOST_THREADS, len(os.sched_getaffinity(0)))
    # One comparison at a time is already on several threads.
    with attention(), ThreadPoolExecutor(workers) as pool:
        return list(pool.map(quietly, blocks))


def wide(block: Array) -> Array:
    """A block in float64."""
    return block.astype(np.float64, copy=False)


def _blocks(rows: int, extent: int) -> Iterator[Block]:
    width = max(1, min(extent, _BLOCK_ELEMENTS))
    height = max(1, _BLOCK_ELEMENTS // width)
    for top in range(0, rows, height):
        for left in range(0, extent, width):
            yield slice(top, top + height), slice(left, left + width)
