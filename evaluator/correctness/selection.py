"""Rows whose selection is a near tie: any selection within rounding error is right.

Where indices select by a key that no output shows (a router's biased scores), another choice
among nearly equal keys changes values by any amount. Such a row is right when it is, indices
and values together, what the reference gives for inputs moved by a rounding error. So each row
that selects otherwise is compared with the run among ``Expected.alternatives`` that selects
what it selects; if none does, it stays compared with the expected one, and fails. Where values
tie visibly, the other choice has the same values, and the moved inputs of the alternative would
only blur them: there the indices alone are the alternative's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from evaluator.correctness.expected import Expected
from evaluator.problem import Contract, OutputKind
from evaluator.tensors import Array, CallResult, Snapshot, Substitute

_REACH = 8.0
"""Nothing that moves by normal noise goes further than so many of its deviations."""


def selects(contract: Contract) -> bool:
    """Whether some output is chosen by comparing values."""
    return any(o.kind is OutputKind.INDICES for o in contract.outputs)


def follow_selection(contract: Contract, expected: Expected, got: CallResult) -> Expected:
    """``expected`` with the rows replaced whose selection an alternative shares with ``got``."""
    if expected.lifted is None or not expected.alternatives:
        return expected
    runs = (expected.native, *expected.alternatives)
    for position, output in enumerate(contract.outputs):
        if output.selects is None or expected.lifted is None:
            continue
        axis = -1 if output.order_free_dim is None else output.order_free_dim
        group = (position, output.selects)
        if len({got.outputs[p].facts.shape for p in group}) != 1:
            continue
        rows = _Rows(axis, is_ordered=output.order_free_dim is None)
        source = rows.sources(got, position, expected.lifted, runs)
        reach = _REACH * expected.jitter
        differing = rows.differing(expected.lifted, output.selects, source, runs, reach)
        lifted, native = expected.lifted, expected.native
        for p, chosen in ((position, source), (output.selects, differing)):
            lifted = rows.substituted(lifted, p, chosen, runs)
            native = rows.substituted(native, p, chosen, runs)
        expected = replace(expected, lifted=lifted, native=native)
    return expected


class _Rows:
    """Rows of outputs along one axis."""

    def __init__(self, axis: int, *, is_ordered: bool) -> None:
        self._axis = axis
        self._is_ordered = is_ordered

    def sources(
        self, got: CallResult, position: int, expected: CallResult, runs: Sequence[CallResult]
    ) -> Array:
        """Per row the number of the run that selects what ``got`` selects; -1 for the expected."""
        mine = self._keys(got.outputs[position])
        source = np.full(len(mine), -1)
        open_rows = (mine != self._keys(expected.outputs[position])).any(axis=1)
        for number, run in enumerate(runs):
            fits = open_rows & (mine == self._keys(run.outputs[position])).all(axis=1)
            source[fits] = number
            open_rows &= ~fits
        return source

    def differing(
        self,
        expected: CallResult,
        position: int,
        source: Array,
        runs: Sequence[CallResult],
        reach: float,
    ) -> Array:
        """``source`` without the rows whose values differ by no more than the noise of its run."""
        want = self._values(expected.outputs[position])
        near = reach * np.abs(np.where(np.isfinite(want), want, 0.0)).max(axis=1, keepdims=True)
        kept = np.array(source)
        for number in np.unique(source[source >= 0]):
            theirs = self._values(runs[number].outputs[position])
            same = np.isclose(theirs, want, rtol=0.0, atol=near, equal_nan=True).all(axis=1)
            kept[(source == number) & same] = -1
        return kept

    def substituted(
        self, call: CallResult, position: int, source: Array, runs: Sequence[CallResult]
    ) -> CallResult:
        """``call`` with the output's rows taken from the runs that ``source`` names."""
        output = call.outputs[position]
        moved = np.array(self._moved(output))
        flat = moved.reshape(len(source), -1)
        for number in np.unique(source[source >= 0]):
            chosen = source == number
            theirs = self._moved(runs[number].outputs[position]).reshape(flat.shape)
            flat[chosen] = theirs[chosen]
        values = np.moveaxis(moved, -1, self._axis)
        outputs = list(call.outputs)
        outputs[position] = Substitute(output.facts, output.storage, values)
        return replace(call, outputs=tuple(outputs))

    def _keys(self, output: Snapshot) -> Array:
        moved = self._moved(output)
        rows = moved.reshape(-1, moved.shape[-1])
        return rows if self._is_ordered else np.sort(rows, axis=1)

    def _values(self, output: Snapshot) -> Array:
        """Rows of numbers; sorted where their order is free."""
        moved = self._moved(output).astype(np.float64)
        rows = moved.reshape(-1, moved.shape[-1])
        return rows if self._is_ordered else np.sort(rows, axis=1)

    def _moved(self, output: Snapshot) -> Array:
        values = np.atleast_1d(output.array())
        return np.moveaxis(values, self._axis, -1)
