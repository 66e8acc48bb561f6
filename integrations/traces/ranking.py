"""From attributed work to a ranking: what each function costs, and what it could give.

The order is by score: the part of the device's time line that a perfect kernel for the
function would free (Amdahl with the roofline), times how open its kernels are to a better
one, times how certain bound and function are. All parts are kept beside it. The time line is the
device's busy time and its waits within a call; the waits between functions are not in it, for
a recording with stacks slows the host down and inflates them.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import numpy as np

from integrations.traces.attribution import (
    Attributed,
    CaptureSide,
    Functions,
    Operator,
    Place,
    attribute,
    prepare_capture,
)
from integrations.traces.columns import NONE, Ints, Kind, Trace, read_trace
from integrations.traces.device import TimeLine, time_line
from integrations.traces.frames import Checkout, Found, Names, WithoutSource
from integrations.traces.kernels import OPENNESS
from integrations.traces.report import (
    Disagreement,
    HotReport,
    HotTarget,
    Part,
    Score,
    TraceSummary,
)
from integrations.traces.roofline import (
    LEAST_KERNEL_US,
    Device,
    device_named,
)
from integrations.traces.stream import Progress
from integrations.traces.tally import (
    Table,
    Tally,
    add_to,
    listed,
    new_table,
    origins_of,
    perfect_of,
    shapes_of,
)

_STEP = re.compile(r"^(?:ProfilerStep#|step\[|execute_|ksmith step)")
_LOCATED = {
    Found.EXACT: 1.0,
    Found.MOVED: 1.0,
    Found.NO_SOURCE: 1.0,
    Found.GUESSED: 0.5,
    Found.TOP_LEVEL: 0.0,
    Found.UNREADABLE: 0.0,
    Found.GONE: 0.0,
}
_RESOLVED = {Found.EXACT, Found.MOVED, Found.TOP_LEVEL}
_SHAPED_ENOUGH = 0.5
_UNGROUNDED = 0.5
_KERNELS, _SHAPES, _PARTS = 12, 6, 30


class Ranking:
    """Takes traces one at a time, forgets them, and ranks what they had in common."""

    def __init__(self, repository: Path | None = None) -> None:
        """Make an empty one.

        Raises:
            TraceError: ``repository`` is no checkout.
        """
        self.repository = repository
        self._names: Names = WithoutSource() if repository is None else Checkout(repository)
        self._functions = Functions()
        self._captures: list[CaptureSide] = []
        self._tallies: dict[str, Tally] = defaultdict(Tally)
        self._tables: dict[str, Table] = defaultdict(new_table)
        self._summaries: list[TraceSummary] = []
        self._shared: dict[tuple[Operator, ...], tuple[Operator, ...]] = {}
        self._span = self._busy = self._device = self._attributed = 0.0
        self._on_device = False
        self._devices: Counter[str] = Counter()

    def add_capture(self, path: Path, progress: Progress = lambda _: None) -> None:
        """Take a trace of graph captures; before the traces that replay them.

        Raises:
            TraceError: it is no chrome trace.
            OSError: it cannot be read.
        """
        trace = read_trace(path, progress)
        self._captures.append(prepare_capture(trace, self._names, self._functions))

    def add(self, path: Path, progress: Progress = lambda _: None) -> Attributed:
        """Take one trace, and return where its work comes from.

        Raises:
            TraceError: it is no chrome trace.
            OSError: it cannot be read.
        """
        trace = read_trace(path, progress)
        found = attribute(trace, self._names, self._functions, self._captures)
        rows = found.rows
        device = _devices(trace, by_thread=not found.on_device)[rows]
        line = time_line(trace.start_us[rows], trace.duration_us[rows], device)
        self._on_device |= found.on_device
        self._span += line.span_us
        self._busy += line.busy_us
        self._device += float(trace.duration_us[rows].sum())
        self._devices.update(trace.devices)
        self._count(found, line)
        for target, (whole, alone) in found.side.host_times().items():
            if target in self._tallies:
                self._tallies[target].host_us += whole
                self._tallies[target].host_self_us += alone
        self._summaries.append(_summary(found))
        return found

    def _count(self, found: Attributed, line: TimeLine) -> None:
        trace, places = found.trace, found.places
        number = len(self._summaries)
        durations = trace.duration_us[found.rows].tolist()
        names = [trace.names[n] for n in trace.name[found.rows].tolist()]
        columns = zip(
            places,
            durations,
            names,
            line.exposed_us.tolist(),
            line.idle_before_us.tolist(),
            line.previous.tolist(),
            strict=True,
        )
        for place, duration, name, exposed, idle, previous in columns:
            self._tabulate(place, name, duration)
            if not place.functions:
                continue
            self._attributed += duration
            for target in dict.fromkeys(place.functions):
                self._tallies[target].inclusive_us += duration
            tally = self._tallies[place.functions[0]]
            tally.device_us += duration
            tally.exposed_us += exposed
            tally.launches += 1
            tally.replayed += place.replayed
            tally.backward_us += duration * place.backward
            tally.idle_us += idle
            if previous != NONE and place.call is not None and places[previous].call == place.call:
                tally.gaps_us += idle
            add_to(tally.kernels[name], duration)
            if len(place.functions) > 1:
                add_to(tally.callers[place.functions[1]], duration)
            tally.modules.update(place.modules[:1])
            call = (number, *(place.call or ()))
            operators = tally.calls.setdefault(call, ())
            if place.operator is not None and place.operator.dims:
                tally.shaped_us += duration
                tally.shapes[place.operator] += 1
                if place.operator not in operators:
                    grown = (*operators, place.operator)
                    tally.calls[call] = self._shared.setdefault(grown, grown)

    def _tabulate(self, place: Place, name: str, duration: float) -> None:
        reason = place.reason
        entries = [("kernels", name)]
        if reason is not None:
            entries.append(("unattributed", reason.value))
        if place.operator is not None:
            entries.append(("operators", place.operator.name))
        entries += [("modules", module) for module in dict.fromkeys(place.modules)]
        for table, key in entries:
            add_to(self._tables[table][key], duration)

    def report(self, top: int | None = None) -> HotReport:
        """Rank what was added; at most ``top`` targets are listed."""
        device = self._roofline()
        targets = [
            self._target(name, tally, device)
            for name, tally in self._tallies.items()
            if tally.launches
        ]
        targets.sort(key=lambda t: (-t.score.value, -t.device_us, t.target))
        ranked = [t.model_copy(update={"rank": n}) for n, t in enumerate(targets, 1)]
        located = {t.target: t for t in ranked}
        return HotReport(
            repository=None if self.repository is None else str(self.repository),
            on_device=self._on_device,
            span_us=self._span,
            busy_us=self._busy,
            device_us=self._device,
            attributed_us=self._attributed,
            resolved_us=sum(t.device_us for t in located.values() if t.found in _RESOLVED),
            unattributed=self._parts("unattributed"),
            unattributed_share=max(0.0, 1 - self._attributed / self._device)
            if self._device
            else 0.0,
            disagreement=self._disagreement(),
            roofline_device=device.name if device else None,
            traces=tuple(self._summaries),
            targets=tuple(ranked[:top]),
            targets_total=len(ranked),
            modules=self._parts("modules"),
            operators=self._parts("operators"),
            kernels=self._parts("kernels"),
            notes=tuple(self._notes()),
        )

    @property
    def _line(self) -> float:
        """The device's time line without the waiting between functions, which stacks inflate."""
        return self._busy + sum(t.gaps_us for t in self._tallies.values())

    def _roofline(self) -> Device | None:
        return device_named(self._devices.most_common(1)[0][0]) if self._devices else None

    def _target(self, name: str, tally: Tally, device: Device | None) -> HotTarget:
        function = self._functions.by_target[name]
        origins = origins_of(tally, self._on_device)
        shaped = tally.device_us > 0 and tally.shaped_us >= _SHAPED_ENOUGH * tally.device_us
        perfect = perfect_of(tally, device) if device is not None and shaped else None
        least = len(tally.calls) * LEAST_KERNEL_US if perfect is None else perfect
        saving = max(0.0, tally.exposed_us - least * self._on_device) + tally.gaps_us
        share = saving / self._line if self._line else 0.0
        openness = sum(OPENNESS[origin] * part for origin, part in origins.items())
        located = _LOCATED[function.found]
        grounded = _UNGROUNDED if perfect is None and self._on_device else 1.0
        return HotTarget(
            rank=0,
            target=name,
            found=function.found,
            trace_line=function.line,
            moved_lines=function.moved_lines,
            score=Score(
                value=100 * share * openness * grounded * located,
                saving_share=share,
                openness=openness,
                grounded=grounded,
                located=located,
            ),
            device_us=tally.device_us,
            share=tally.exposed_us / self._line if self._line else 0.0,
            inclusive_us=tally.inclusive_us,
            inclusive_share=tally.inclusive_us / self._device if self._device else 0.0,
            launches=tally.launches,
            replayed_launches=tally.replayed,
            calls=len(tally.calls),
            backward_us=tally.backward_us,
            host_us=tally.host_us,
            host_self_us=tally.host_self_us,
            gaps_us=tally.gaps_us,
            idle_before_us=tally.idle_us,
            perfect_us=perfect,
            end_to_end_percent=100 * saving / self._span if self._span else 0.0,
            state=max(origins, key=lambda o: origins[o]),
            origins=origins,
            kernels=listed(tally.kernels, _KERNELS),
            shapes=shapes_of(tally.shapes, _SHAPES),
            callers=listed(tally.callers, _SHAPES),
            modules=tuple(sorted(tally.modules)),
        )

    def _parts(self, table: str) -> tuple[Part, ...]:
        return listed(self._tables[table], _PARTS)

    def _disagreement(self) -> Disagreement | None:
        if self.repository is None:
            return None
        seen = [f for f in self._functions.by_target.values() if f.found is not Found.TOP_LEVEL]
        counts = Counter(f.found for f in seen)
        moved = [abs(f.moved_lines) for f in seen if f.found in (Found.MOVED, Found.GUESSED)]
        return Disagreement(
            functions=len(seen),
            exact=counts[Found.EXACT],
            moved=counts[Found.MOVED],
            guessed=counts[Found.GUESSED],
            gone=counts[Found.GONE],
            unreadable=counts[Found.UNREADABLE],
            median_moved_lines=median(moved) if moved else 0,
            most_moved_lines=max(moved, default=0),
        )

    def _notes(self) -> list[str]:
        found = []
        if not self._on_device:
            found.append("no kernels in the trace: ranked by the CPU's time in operators")
        if self.repository is not None and not self._functions.by_target:
            found.append(
                f"no Python frame of the trace lies in {self.repository}: "
                "it is a trace of another repository, or was recorded without with_stack=True"
            )
        for s in self._summaries:
            if s.ended_early:
                found.append(f"{s.path} ends early: {s.ended_early}; what was whole is counted")
            if s.damaged_events:
                found.append(f"{s.path}: {s.damaged_events} events could not be read")
            if s.duplicate_correlations:
                found.append(
                    f"{s.path}: {s.duplicate_correlations} launches share their correlation with "
                    "another; the last before the kernel was taken"
                )
            if not s.kernels:
                found.append(f"{s.path} has neither kernels nor operators")
        return found


def rank_traces(
    paths: Sequence[Path],
    *,
    repository: Path | None = None,
    captures: Sequence[Path] = (),
    top: int | None = None,
    progress: Progress = lambda _: None,
    each: Callable[[Attributed], None] = lambda _: None,
) -> HotReport:
    """Read traces, one a rank or a window of the same thing, and rank the functions in them.

    ``each`` is shown every trace with its attribution, which is forgotten afterwards.

    Raises:
        TraceError: a file is no chrome trace, or the repository no checkout.
        OSError: a file cannot be read.
    """
    ranking = Ranking(repository)
    total = len(paths) + len(captures)
    for done, path in enumerate(captures):
        ranking.add_capture(path, lambda share, done=done: progress((done + share) / total))  # type: ignore[misc]
    for done, path in enumerate(paths, len(captures)):
        found = ranking.add(path, lambda share, done=done: progress((done + share) / total))  # type: ignore[misc]
        each(found)
    return ranking.report(top)


def _devices(trace: Trace, *, by_thread: bool) -> Ints:
    """A number for the device of each row: its track's pid; without a device, the thread."""
    keys = [track if by_thread else track[0] for track in trace.tracks]
    numbers = {key: n for n, key in enumerate(dict.fromkeys(keys))}
    return np.array([numbers[key] for key in keys], np.int64)[trace.track]


def _summary(found: Attributed) -> TraceSummary:
    trace = found.trace
    annotations = trace.name[trace.rows(Kind.ANNOTATION)].tolist()
    agreements = [a for a in found.agreements if not math.isnan(a)]
    return TraceSummary(
        path=str(trace.path),
        rank=trace.rank,
        devices=tuple(dict.fromkeys(trace.devices)),
        events=trace.total_events,
        damaged_events=trace.damaged_events,
        ended_early=trace.end,
        kernels=len(found.rows),
        launched=found.launched,
        duplicate_correlations=found.duplicates,
        replays_joined=len(found.agreements),
        replay_agreement=min(agreements, default=None),
        steps=sum(bool(_STEP.match(trace.names[n])) for n in annotations),
    )
