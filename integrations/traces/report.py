"""The records of ``ksmith hot``: what it prints, as JSON says it. Times in microseconds."""

from __future__ import annotations

from pydantic import NonNegativeFloat, NonNegativeInt

from evaluator.records import Record
from integrations.traces.frames import Found
from integrations.traces.kernels import Origin


class Part(Record):
    """A name with its time: a kernel, a module's class, an operator, a reason."""

    name: str
    device_us: NonNegativeFloat
    count: NonNegativeInt


class Shapes(Record):
    """Inputs with which an operator was seen."""

    operator: str
    inputs: str
    """``bfloat16[32, 4096]``, one after the other."""
    count: NonNegativeInt


class Score(Record):
    """``value`` is 100 times the product of the rest."""

    value: NonNegativeFloat
    saving_share: NonNegativeFloat
    """What a perfect kernel would take from the device's time line (busy, and gaps in calls)."""
    openness: NonNegativeFloat
    """How much of that is open to a new kernel: 1 eager, less for compiled and library kernels."""
    grounded: NonNegativeFloat
    """1 where a roofline bounds the saving, 0.5 where shapes or limits are missing."""
    located: NonNegativeFloat
    """1 where the function is certain, 0.5 where guessed, 0 where it is not in the checkout."""


class HotTarget(Record):
    """A function, with what the device and the host spend on it."""

    rank: NonNegativeInt
    target: str
    """``path::qualname``."""
    found: Found
    trace_line: NonNegativeInt
    moved_lines: int
    score: Score
    device_us: NonNegativeFloat
    """Of work whose innermost function it is; where streams overlap, sums exceed the span."""
    share: NonNegativeFloat
    """Its part of the device's time line, overlapping work divided."""
    inclusive_us: NonNegativeFloat
    inclusive_share: NonNegativeFloat
    """``inclusive_us`` of all device time."""
    launches: NonNegativeInt
    replayed_launches: NonNegativeInt
    calls: NonNegativeInt
    """Calls that launched something themselves."""
    backward_us: NonNegativeFloat
    host_us: NonNegativeFloat
    """Of its calls, callees included; a recording with stacks inflates it."""
    host_self_us: NonNegativeFloat
    gaps_us: NonNegativeFloat
    """The device idle between two launches of one call: one kernel would close them."""
    idle_before_us: NonNegativeFloat
    """The device idle before all its work, those gaps included."""
    perfect_us: NonNegativeFloat | None
    """Least device time by the roofline; None where shapes or the device's limits are missing."""
    end_to_end_percent: NonNegativeFloat
    """How much less the whole recorded span would be with a perfect kernel (Amdahl); without a
    roofline that is one kernel a call that takes next to no time."""
    state: Origin
    """Where most of its device time comes from: already compiled, hand-written, a library's."""
    origins: dict[Origin, float]
    """Shares of its device time."""
    kernels: tuple[Part, ...]
    shapes: tuple[Shapes, ...]
    callers: tuple[Part, ...]
    """Functions of the repository that called it, with the device time of the calls."""
    modules: tuple[str, ...]
    """Classes of nn.Module that it ran in."""


class Disagreement(Record):
    """How far traces and checkout differ, over the functions that were seen."""

    functions: NonNegativeInt
    exact: NonNegativeInt
    moved: NonNegativeInt
    guessed: NonNegativeInt
    gone: NonNegativeInt
    unreadable: NonNegativeInt
    median_moved_lines: NonNegativeFloat
    most_moved_lines: NonNegativeInt


class TraceSummary(Record):
    """One file."""

    path: str
    rank: str
    devices: tuple[str, ...]
    events: NonNegativeInt
    damaged_events: NonNegativeInt
    ended_early: str | None
    kernels: NonNegativeInt
    """Pieces of work: kernels and copies, or the operators of a trace without a device."""
    launched: NonNegativeInt
    duplicate_correlations: NonNegativeInt
    replays_joined: NonNegativeInt
    replay_agreement: float | None
    """Least share of a joined replay's kernels whose name is the captured one's."""
    steps: NonNegativeInt


class HotReport(Record):
    """What several traces of one thing say together."""

    schema_version: int = 1
    repository: str | None
    on_device: bool
    """False where no trace has device work: then times are of operators on the CPU."""
    span_us: NonNegativeFloat
    """From the first to the last work, of all devices together."""
    busy_us: NonNegativeFloat
    device_us: NonNegativeFloat
    attributed_us: NonNegativeFloat
    """Of work with a function; ``unattributed`` has the rest."""
    resolved_us: NonNegativeFloat
    """Of work whose innermost function the checkout has for certain."""
    unattributed: tuple[Part, ...]
    unattributed_share: NonNegativeFloat
    disagreement: Disagreement | None
    roofline_device: str | None
    traces: tuple[TraceSummary, ...]
    targets: tuple[HotTarget, ...]
    targets_total: NonNegativeInt
    modules: tuple[Part, ...]
    operators: tuple[Part, ...]
    kernels: tuple[Part, ...]
    notes: tuple[str, ...]
