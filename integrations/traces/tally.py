"""What one function adds up to, and what follows from the sums alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from integrations.traces.attribution import Operator
from integrations.traces.kernels import Origin, origin_of, origin_of_operator
from integrations.traces.report import Part, Shapes
from integrations.traces.roofline import Device, perfect_us, tensors_of, touched

Table = dict[str, list[float]]
"""Device time and number of pieces, by name."""


def new_table() -> Table:
    """Return an empty one, whose rows begin at nothing."""
    return defaultdict(lambda: [0.0, 0])


@dataclass
class Tally:
    """What one function adds up to."""

    device_us: float = 0.0
    exposed_us: float = 0.0
    inclusive_us: float = 0.0
    backward_us: float = 0.0
    gaps_us: float = 0.0
    idle_us: float = 0.0
    shaped_us: float = 0.0
    launches: int = 0
    replayed: int = 0
    kernels: Table = field(default_factory=new_table)
    callers: Table = field(default_factory=new_table)
    shapes: Counter[Operator] = field(default_factory=Counter)
    modules: set[str] = field(default_factory=set)
    calls: dict[tuple[int, ...], tuple[Operator, ...]] = field(default_factory=dict)
    """Operators of each call."""
    host_us: float = 0.0
    host_self_us: float = 0.0


def origins_of(tally: Tally, on_device: bool) -> dict[Origin, float]:
    """Return the shares of its device time by who wrote the kernels, the largest first."""
    found: dict[Origin, float] = defaultdict(float)
    for name, (time_us, count) in tally.kernels.items():
        # Where nothing took any time, the launches decide.
        weight = time_us if tally.device_us else count
        found[origin_of(name) if on_device else origin_of_operator(name)] += weight
    total = sum(found.values())
    return {origin: found[origin] / total for origin in sorted(found, key=lambda o: -found[o])}


def perfect_of(tally: Tally, device: Device) -> float:
    """Return the least device time of all its calls by the roofline."""
    known: dict[tuple[Operator, ...], float] = {}
    total = 0.0
    for key in tally.calls.values():
        if key not in known:
            seen = [touched(o.name, o.dims, o.types) for o in key]
            known[key] = perfect_us(device, [t for t in seen if t is not None])
        total += known[key]
    return total


def add_to(row: list[float], duration: float) -> None:
    """Count one piece of work."""
    row[0] += duration
    row[1] += 1


def listed(table: Table, most: int) -> tuple[Part, ...]:
    """Return the rows of a table that take longest."""
    ordered = sorted(table.items(), key=lambda item: (-item[1][0], -item[1][1], item[0]))
    return tuple(Part(name=n, device_us=t, count=int(c)) for n, (t, c) in ordered[:most])


def shapes_of(seen: Counter[Operator], most: int) -> tuple[Shapes, ...]:
    """Return the inputs that were seen most often."""
    return tuple(
        Shapes(
            operator=operator.name,
            inputs=", ".join(
                f"{kind.removeprefix('c10::').lower()}{list(shape)}"
                for shape, kind in tensors_of(operator.dims, operator.types)
            ),
            count=count,
        )
        for operator, count in seen.most_common(most)
    )
