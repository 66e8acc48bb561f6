"""Each piece of device work, with the Python functions and modules that stand behind it.

Kernel to launch, launch to the innermost enclosing frame inside the repository, and on to all
frames around that. The thread of autograd has no Python frames: its work goes to the function
whose forward operator it belongs to. Replayed graphs go through the capture's trace where one
is given. What cannot be attributed keeps the reason. A trace without any device work is taken
by its outermost operators instead, so that a CPU has a ranking too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from integrations.traces.columns import NONE, Ints, Kind, Trace
from integrations.traces.frames import Frame, Function, Names, module_class, parse_frame
from integrations.traces.graphs import Capture, captures_of, join_replay, replay_order
from integrations.traces.launches import find_launches
from integrations.traces.nesting import above, nearest, parents

Labels = tuple[str, ...]
_MOST_KNOWN = 1 << 16


class Reason(StrEnum):
    """Why work has no function."""

    NO_LAUNCH = "no launch event (begun before the recording)"
    REPLAY = "graph replay without its capture (give --capture)"
    NO_STACK = "no Python frames in the trace (record with_stack=True)"
    BACKWARD = "backward pass whose forward operator is not in the trace"
    OUTSIDE = "no frame of the repository around the launch"


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator as recorded."""

    name: str
    dims: bytes
    types: bytes


@dataclass(frozen=True, slots=True)
class Place:
    """Where a piece of work comes from."""

    functions: Labels = ()
    """Targets, the innermost first; empty where ``reason`` says why."""
    modules: Labels = ()
    """Classes of nn.Module, the innermost first."""
    call: tuple[int, int, int] | None = None
    """Which call of the innermost function: side, its frame's row, the replay's row."""
    operator: Operator | None = None
    """The outermost operator inside the function."""
    reason: Reason | None = None
    backward: bool = False
    replayed: bool = False


@dataclass
class Functions:
    """Every function that was seen, by target, over all traces of a report."""

    by_target: dict[str, Function] = field(default_factory=dict)


@dataclass(frozen=True)
class Attributed:
    """One trace; ``rows`` and ``places`` are parallel."""

    trace: Trace
    rows: Ints
    places: list[Place]
    side: HostSide
    launched: int
    """Pieces with a launch event."""
    on_device: bool
    duplicates: int
    agreements: tuple[float, ...]
    """Of the replays that were joined: share of kernels with the captured name; NaN by order."""


class HostSide:
    """The host's events of one trace, nested, with the repository's frames marked."""

    def __init__(self, trace: Trace, launches: Ints, names: Names, functions: Functions) -> None:
        self.trace = trace
        self.parent = parents(trace, launches)
        is_frame = trace.kind == Kind.FRAME
        self.has_stack = bool(is_frame.any())
        self._is_operator = (trace.kind == Kind.OPERATOR).tobytes()
        classes = [module_class(n) for n in trace.names]
        is_class = np.array([c is not None for c in classes], bool)
        is_module = is_frame & is_class[trace.name] if is_class.size else is_frame
        self.module = nearest(self.parent, is_module)
        targets = self._targets(is_frame, classes, names, functions)
        is_target = np.array([t is not None for t in targets], bool)
        self.is_function = is_frame & is_target[trace.name] if is_target.size else is_frame
        self.owner = nearest(self.parent, self.is_function)
        self._functions = _Chains(self.parent, self.owner, trace.name, targets)
        self._modules = _Chains(self.parent, self.module, trace.name, classes)
        self._forward = self._forward_rows()
        # Single numbers are read much faster from memory views than from arrays.
        self._up, self._owner_of = self.parent.data, self.owner.data
        self._module_of = self.module.data
        self._shape_of, self._other_of = trace.shape.data, trace.other.data
        self._operators: dict[tuple[int, int], Operator] = {}

    def _targets(
        self, is_frame: np.ndarray, classes: list[str | None], names: Names, functions: Functions
    ) -> list[str | None]:
        """Return the target of each of the trace's names, None where it is no function of ours."""
        trace = self.trace
        rows = np.flatnonzero(is_frame)
        pairs = np.stack([trace.name[rows], trace.name[self.module[rows]]], axis=1)
        pairs[self.module[rows] == NONE, 1] = NONE
        around: dict[Frame, set[str]] = {}
        spelled: dict[int, Frame] = {}
        for name, module in np.unique(pairs, axis=0).tolist() if len(rows) else ():
            frame = spelled.get(name) or parse_frame(trace.names[name])
            if frame is None:
                continue
            spelled[name] = frame
            known = classes[module] if module != NONE else None
            around.setdefault(frame, set()).update({known} if known else ())
        located = names.locate(around)
        found: list[str | None] = [None] * len(trace.names)
        for name, frame in spelled.items():
            function = located[frame]
            if function is not None:
                found[name] = function.target
                functions.by_target.setdefault(function.target, function)
        return found

    def place(self, row: int, replay: int = NONE, side: int = 0) -> Place:
        """Return what stands behind the launch, or the operator, at ``row``."""
        owner = self._owner_of[row]
        modules = self._modules.of(self._module_of[row])
        outermost, engine = self._climb(row, owner)
        if owner != NONE:
            functions = self._functions.of(owner)
            return Place(functions, modules, (side, owner, replay), outermost)
        forward = self._forward.get(engine, NONE) if engine != NONE else NONE
        if forward != NONE and self.owner[forward] != NONE:
            owner = int(self.owner[forward])
            return Place(
                self._functions.of(owner),
                self._modules.of(int(self.module[forward])),
                (side, owner, replay),
                outermost,
                backward=True,
            )
        if not self.has_stack:
            return Place(modules=modules, operator=outermost, reason=Reason.NO_STACK)
        reason = Reason.BACKWARD if engine != NONE else Reason.OUTSIDE
        return Place(modules=modules, operator=outermost, reason=reason)

    def _climb(self, row: int, owner: int) -> tuple[Operator | None, int]:
        """Return the outermost operator below ``owner``, and the row of a backward operator."""
        trace, outermost, shaped, engine = self.trace, NONE, NONE, NONE
        while row not in (NONE, owner):
            if self._is_operator[row]:
                outermost = row
                if self._shape_of[row] != NONE:
                    shaped = row
                if self._other_of[row] > 0 or row in self._forward:
                    engine = row
            row = self._up[row]
        if outermost == NONE:
            return None, engine
        # An operator of autograd's engine has no shapes; the one inside it does.
        chosen = shaped if shaped != NONE else outermost
        return self._operator(int(trace.name[chosen]), int(trace.shape[chosen])), engine

    def _operator(self, name: int, shape: int) -> Operator:
        found = self._operators.get((name, shape))
        if found is None:
            dims, types = self.trace.shapes[shape] if shape != NONE else (b"", b"")
            found = self._operators[name, shape] = Operator(self.trace.names[name], dims, types)
        return found

    def _forward_rows(self) -> dict[int, int]:
        """Row of each backward operator to that of its forward one: by number, else by links."""
        trace = self.trace
        rows = trace.rows(Kind.OPERATOR)
        numbered = rows[trace.link[rows] != NONE]
        backward = numbered[trace.other[numbered] > 0]
        if backward.size:
            ahead = numbered[trace.other[numbered] <= 0]
            last = dict(zip(trace.link[ahead].tolist(), ahead.tolist(), strict=True))
            pairs = zip(backward.tolist(), trace.link[backward].tolist(), strict=True)
            return {row: last[number] for row, number in pairs if number in last}
        if not trace.links:
            return {}
        keys = zip(trace.track[rows].tolist(), trace.start_us[rows].tolist(), strict=True)
        at = dict(zip(keys, rows.tolist(), strict=True))
        ends = [e for e in trace.links.values() if len(e) == 2]
        return {at[b]: at[f] for f, b in ends if f in at and b in at}

    def host_times(self) -> dict[str, tuple[float, float]]:
        """Return (time with callees, time outside other functions of ours) by target.

        A call within a call of the same function counts once in the first.
        """
        trace = self.trace
        rows = np.flatnonzero(self.is_function)
        caller = above(self.parent, rows, self.owner)
        duration = trace.duration_us[rows]
        own = np.zeros(len(trace.kind))
        own[rows] = duration
        np.subtract.at(own, caller[caller != NONE], duration[caller != NONE])
        of_name, count = trace.name[rows], len(trace.names)
        whole = np.bincount(of_name, duration * ~self._recursive(rows, caller), count)
        alone = np.bincount(of_name, np.maximum(own[rows], 0.0), count)
        found: dict[str, tuple[float, float]] = {}
        for name in np.unique(of_name).tolist():
            target = self._functions.label_of_name(name)
            before = found.get(target, (0.0, 0.0))
            found[target] = (before[0] + float(whole[name]), before[1] + float(alone[name]))
        return found

    def _recursive(self, rows: Ints, caller: Ints) -> np.ndarray:
        names = self.trace.name
        found = np.zeros(len(rows), bool)
        current = caller
        while (current != NONE).any():
            found |= (current != NONE) & (names[current] == names[rows])
            current = np.where(current == NONE, NONE, above(self.parent, current, self.owner))
        return found


class _Chains:
    """Labels of a row and of the marked rows around it; each answer is kept and shared."""

    def __init__(
        self, parent: Ints, marked: Ints, names: np.ndarray, labels: Sequence[str | None]
    ) -> None:
        self._parent, self._marked = parent.data, marked.data
        self._names, self._labels = names.data, labels
        self._known: dict[int, Labels] = {NONE: ()}
        self._shared: dict[Labels, Labels] = {(): ()}

    def label_of_name(self, name: int) -> str:
        return self._labels[name] or ""

    def of(self, row: int) -> Labels:
        """Return the labels from the marked ``row`` outwards."""
        if len(self._known) > _MOST_KNOWN:  # rows come in their order: old ones are done with
            self._known = {NONE: ()}
        waiting = []
        while row not in self._known:
            waiting.append(row)
            up = self._parent[row]
            row = NONE if up == NONE else self._marked[up]
        labels = self._known[row]
        for one in reversed(waiting):
            labels = (self.label_of_name(self._names[one]), *labels)
            labels = self._shared.setdefault(labels, labels)
            self._known[one] = labels
        return labels


@dataclass(frozen=True)
class CaptureSide:
    """A trace of captures, nested."""

    side: HostSide
    captures: list[Capture]


def prepare_capture(trace: Trace, names: Names, functions: Functions) -> CaptureSide:
    """Nest the launches of a capture's trace."""
    captures = captures_of(trace)
    rows = np.unique(np.concatenate([c.launches for c in captures])) if captures else np.array([])
    return CaptureSide(HostSide(trace, rows.astype(np.int64), names, functions), captures)


def attribute(
    trace: Trace, names: Names, functions: Functions, captures: Sequence[CaptureSide] = ()
) -> Attributed:
    """Say where the work of ``trace`` comes from."""
    found = find_launches(trace)
    side = HostSide(trace, np.unique(found.launch[found.launch != NONE]), names, functions)
    if not found.work.size:
        return _by_operators(side)
    places: list[Place] = [Place(reason=Reason.NO_LAUNCH)] * len(found.work)
    for index in np.flatnonzero((found.launch != NONE) & ~found.replayed).tolist():
        places[index] = side.place(int(found.launch[index]))
    agreements = _place_replays(side, found.work, found.launch, found.replayed, captures, places)
    launched = int((found.launch != NONE).sum())
    return Attributed(trace, found.work, places, side, launched, True, found.duplicates, agreements)


def _by_operators(side: HostSide) -> Attributed:
    trace = side.trace
    rows = trace.rows(Kind.OPERATOR)
    inside = nearest(side.parent, trace.kind == Kind.OPERATOR)
    rows = rows[above(side.parent, rows, inside) == NONE]
    places = [side.place(row) for row in rows.tolist()]
    return Attributed(trace, rows, places, side, len(rows), False, 0, ())


def _place_replays(
    side: HostSide,
    work: Ints,
    launch: Ints,
    replayed: np.ndarray,
    captures: Sequence[CaptureSide],
    places: list[Place],
) -> tuple[float, ...]:
    """Fill in the places of replayed kernels; return how well names agreed, by replay."""
    trace = side.trace
    agreements = []
    known: dict[Labels, tuple[int, Ints, float] | None] = {}
    for row in np.unique(launch[replayed]).tolist():
        indices = np.flatnonzero(replayed & (launch == row))
        index_of = dict(zip(work[indices].tolist(), indices.tolist(), strict=True))
        ordered = replay_order(trace, work[indices])
        names = tuple(trace.names[n] for n in trace.name[ordered].tolist())
        if names not in known:
            known[names] = _best(names, captures)
        best, outer = known[names], side.place(row)
        if best is None:
            for index in indices.tolist():
                places[index] = Place(modules=outer.modules, reason=Reason.REPLAY, replayed=True)
            continue
        number, captured, agreement = best
        agreements.append(agreement)
        for work_row, origin in zip(ordered.tolist(), captured.tolist(), strict=True):
            inner = (
                Place(reason=Reason.REPLAY)
                if origin == NONE
                else captures[number].side.place(origin, row, number + 1)
            )
            places[index_of[work_row]] = Place(
                inner.functions + outer.functions,
                inner.modules,
                inner.call or outer.call,
                inner.operator,
                None if inner.functions or outer.functions else inner.reason,
                replayed=True,
            )
    return tuple(agreements)


def _best(names: Labels, captures: Sequence[CaptureSide]) -> tuple[int, Ints, float] | None:
    """Return (which capture's trace, the launches there, agreement) for a replay's kernels."""
    found = None
    for number, capture in enumerate(captures):
        joined = join_replay(names, capture.captures)
        better = found is None or (joined is not None and joined.agreement > found[2])
        if joined is not None and better:
            found = (number, joined.rows, joined.agreement)
    return found
