"""Which forms become workloads: one kind that a file can hold, the most called, far apart."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from integrations.capture.seen import Form

_NEAR = 0.1
"""What distance counts at least, in powers of e of elements."""


@dataclass(frozen=True)
class Chosen:
    """One workload: its form, and the calls that it stands for."""

    form: Form
    calls: int


def of_one_kind(forms: Sequence[Form]) -> tuple[list[Form], list[Form]]:
    """Split into forms that one workloads file can hold, the most called kind, and the others.

    A file has one constructor, and lists of one length.
    """
    kinds: dict[str, list[Form]] = {}
    for form in forms:
        lengths = {n: len(v.list) for n, v in form.values.items() if v.list is not None}
        made = {n: a.value for n, a in (form.constructor or {}).items()}
        key = json.dumps([lengths, made, form.constructor is None, list(form.values)])
        kinds.setdefault(key, []).append(form)
    best = max(kinds.values(), key=lambda held: sum(f.calls for f in held), default=[])
    return best, [f for held in kinds.values() if held is not best for f in held]


def choose(forms: Sequence[Form], most: int) -> list[Chosen]:
    """Choose at most ``most`` forms; each of the others counts for the chosen one of its size.

    The most called comes first; then always the one whose calls, times its distance from what is
    chosen (in logarithms of elements), are the most, so that rare large calls are kept beside
    many small ones.
    """
    left, kept = list(forms), list[Form]()
    while left and len(kept) < most:
        best = max(left, key=lambda f: (f.calls * _distance(f, kept), f.key))
        left.remove(best)
        kept.append(best)
    calls = {f.key: f.calls for f in kept}
    for form in left:
        calls[min(kept, key=lambda k: _apart(form, k)).key] += form.calls
    return [Chosen(f, calls[f.key]) for f in sorted(kept, key=lambda f: (f.elements, f.key))]


def _distance(form: Form, kept: Sequence[Form]) -> float:
    return _NEAR + min((_apart(form, k) for k in kept), default=1.0)


def _apart(one: Form, other: Form) -> float:
    return abs(math.log1p(one.elements) - math.log1p(other.elements))
