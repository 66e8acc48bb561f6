"""In which order KernelBench's problems are taken: drawn once by seed 0, never again.

A partial run takes the first of each level, so that nobody chooses problems by their results.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import yaml

ORDER_FILE = Path(__file__).with_name("order.yml")
SEED = 0


def draw(numbers: Iterable[int], level: int) -> list[int]:
    """Return the problems' ``numbers`` of one level in the order that seed 0 gives."""
    drawn = sorted(numbers)
    random.Random(f"{SEED}/level{level}").shuffle(drawn)  # noqa: S311 - an order, not a secret
    return drawn


def fixed_order() -> Mapping[int, Sequence[int]]:
    """The order in the repository, per level."""
    document = yaml.safe_load(ORDER_FILE.read_text(encoding="utf-8"))
    return {int(level): tuple(numbers) for level, numbers in document.items()}
