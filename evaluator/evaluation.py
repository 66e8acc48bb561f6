"""The record of one evaluation: what was found, how it was measured, who attests it.

Which fields exist follows from the status, and the model enforces it: a record cannot
be half-filled, and a speedup cannot exist without an interval and a baseline.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from evaluator.candidate import BackendName
from evaluator.problem import Regime
from evaluator.records import Record


class Status(StrEnum):
    """How an evaluation ended."""

    OK = "ok"
    """Correct and timed."""
    NOT_MEASURED = "not_measured"
    """Correct as far as could be checked here; no device to time it on."""
    POLICY_VIOLATION = "policy_violation"
    COMPILE_ERROR = "compile_error"
    RUNTIME_ERROR = "runtime_error"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    INCORRECT = "incorrect"
    CHEATING_SUSPECTED = "cheating_suspected"
    MACHINE_UNFIT = "machine_unfit"
    HARNESS_ERROR = "harness_error"

    @property
    def is_candidates_fault(self) -> bool:
        """Whether the candidate, not the machine or ksmith, is to blame."""
        return self not in (Status.OK, Status.NOT_MEASURED) and not self.is_machines_fault

    @property
    def is_machines_fault(self) -> bool:
        """Whether the machine or ksmith failed, so that nothing is said of the candidate."""
        return self in (Status.MACHINE_UNFIT, Status.HARNESS_ERROR)


class Verdict(StrEnum):
    """What a speedup's interval allows one to say."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    AMBIGUOUS = "ambiguous"
    UNIMPROVED = "unimproved"
    """Whatever its time, the library does the work in it, not a kernel of its own."""


class Baseline(StrEnum):
    """What a candidate is compared with."""

    EAGER = "eager"
    COMPILED = "compiled"
    """``torch.compile`` of the reference, default mode."""


class Clock(StrEnum):
    """How the time of a block was taken."""

    WALL_PINNED = "wall_pinned"
    """The worker's monotonic clock around the calls, cores pinned, bounded by the supervisor's."""
    GRAPH_REPLAY = "graph_replay"
    """CUDA events around replays of a graph of several calls over rotated buffers."""
    STREAM_EVENTS = "stream_events"
    """CUDA events around launches on the stream."""


class Stage(StrEnum):
    """What an evaluation spends its time on; the rest is between the stages."""

    POLICY = "policy"
    """Reading the source."""
    START = "start"
    """Of the candidate's worker."""
    BUILD = "build"
    CORRECTNESS = "correctness"
    CENSUS = "census"
    TIMING = "timing"
    SELF_COMPARISON = "self_comparison"
    """The reference timed against itself; it serves the evaluations that follow too."""
    BASELINE = "baseline"
    """Starting the reference, finding out about it, and preparing what is timed against."""
    WAITING = "waiting"
    """For others that use the device or time on this host."""


class Attestor(StrEnum):
    """Whose word a field is."""

    SUPERVISOR = "supervisor"
    WORKER = "worker"


class OutputError(Record):
    """The worst element of one tensor against float64, over all trials."""

    name: str
    """``output 0`` or ``argument query`` for a declared write."""
    max_abs_error: float
    max_rel_error: float
    budget_used: float
    """Largest error over its budget; at most 1 passes."""
    worst_index: tuple[int, ...] | None = None


class OutputPrecision(Record):
    """How precise one output is, for inputs of one scale, beside the reference."""

    output: str
    scale: str
    """``declared``, ``held out``, or ``large``, ``tiny``, ``scales`` (several within a tensor)."""
    candidate_error: NonNegativeFloat
    """What nine of ten elements keep to against float64, relative to the output's magnitude."""
    reference_error: NonNegativeFloat
    looks_like: str | None = None
    """The arithmetic that such an error is typical of, where it is lower than the reference's."""


class WorkloadCorrectness(Record):
    """Correctness on one workload. A held-out workload keeps its errors to itself."""

    workload: str
    passed: bool
    trials: NonNegativeInt
    reason: str | None = None
    """Why it failed, as a person would say it; None when it passed."""
    errors: tuple[OutputError, ...] = ()

    @model_validator(mode="after")
    def _failures_have_a_reason(self) -> WorkloadCorrectness:
        if self.passed == (self.reason is not None):
            raise ValueError("a workload has a reason exactly when it failed")
        return self


class Speedup(Record):
    """Baseline time over candidate time, with its interval.

    The interval is a bootstrap over blocks of paired log ratios; ``lower_99`` is the
    one-sided 99 % lower bound, on which the verdict rests (design.md section 3).
    """

    baseline: Baseline
    value: PositiveFloat
    low: PositiveFloat
    high: PositiveFloat
    confidence: float
    lower_99: PositiveFloat
    blocks: NonNegativeInt
    verdict: Verdict

    @model_validator(mode="after")
    def _value_lies_in_its_interval(self) -> Speedup:
        if not self.low <= self.value <= self.high:
            raise ValueError(f"speedup {self.value} outside [{self.low}, {self.high}]")
        return self


class WorkloadTiming(Record):
    """Timing of one workload: medians in µs, a speedup per baseline, and how it was taken."""

    workload: str
    clock: Clock
    candidate_us: PositiveFloat
    baselines_us: dict[Baseline, PositiveFloat]
    speedups: tuple[Speedup, ...]
    calls_per_block: NonNegativeInt
    buffers: NonNegativeInt
    """Inputs that the calls rotate through."""
    working_set_bytes: NonNegativeInt | None = None
    """Of all these inputs: more than the cache holds, or the calls were timed warm."""
    l2_bytes: NonNegativeInt | None = None
    """The device's cache, where it is known."""
    slope_us: float | None = None
    """What one more call of the candidate costs by the supervisor's own clock."""
    floor_us: NonNegativeFloat | None = None
    """What memory needs at least to move the bytes that provably move; nothing of arithmetic."""
    roofline_fraction: NonNegativeFloat | None = None
    """``floor_us`` over ``candidate_us``: near 1, memory allows no more."""
    process_spread_percent: NonNegativeFloat | None = None
    """The speedup's standard deviation from one process pair to the next."""
    dropped: dict[str, NonNegativeFloat] = Field(default_factory=dict)
    """Per cause, the share of rounds that did not count."""
    held_back: tuple[str, ...] = ()
    """Why the device's clock was lower than it could be, at some time."""

    def speedup(self, baseline: Baseline) -> Speedup | None:
        """Return the speedup against ``baseline`` where it was measured."""
        return next((s for s in self.speedups if s.baseline is baseline), None)


class AaCheck(Record):
    """The reference against itself, timed like a candidate before a series of measurements."""

    workload: str
    clock: Clock
    ratio: PositiveFloat
    low: PositiveFloat
    high: PositiveFloat
    confidence: float
    process_pairs: PositiveInt
    limit: PositiveFloat
    """The machine is unfit where the interval lies further than this from 1."""
    passed: bool


class KernelResources(Record):
    """What the compiler says of one kernel for a device that need not be here."""

    kernel: str
    target: str
    """Such as ``sm_90``."""
    registers: NonNegativeInt
    spill_bytes: NonNegativeInt
    shared_bytes: NonNegativeInt


class MemoryFinding(Record):
    """One wrong access to memory, or one race, as a memory checker told it."""

    kind: str
    """In the checker's words, such as ``Invalid __global__ write of size 4 bytes``."""
    kernel: str | None = None
    """The kernel, or the function on a CPU."""
    place: str | None = None
    """File and line of the candidate, where the checker knows it."""
    count: int = Field(default=1, ge=1)


class DeepCheck(Record):
    """One run of the candidate under a memory checker."""

    tool: str
    ran: bool
    """Whether the candidate ran under it to the end, or until something was found."""
    message: str
    """One line: what was found, or why it did not run."""
    workloads: NonNegativeInt = 0
    """On how many it was run."""
    findings: tuple[MemoryFinding, ...] = ()
    seconds: NonNegativeFloat = 0.0

    @model_validator(mode="after")
    def _only_a_run_finds(self) -> DeepCheck:
        if self.findings and not self.ran:
            raise ValueError("a check that did not run cannot have found anything")
        return self


class Severity(StrEnum):
    """How much a flag weighs."""

    NOTE = "note"
    WARNING = "warning"
    VIOLATION = "violation"


class Flag(Record):
    """One observation that a reader should know, with its evidence."""

    rule: str
    severity: Severity
    evidence: str


class Owner(StrEnum):
    """Whose code a kernel, op or function is."""

    OWN = "own"
    """Written in the candidate's source."""
    LIBRARY = "library"
    """torch's and its vendors': ATen, cuBLAS, cuDNN, copies and fills."""
    COMPILER = "compiler"
    """Made by ``torch.compile`` while the candidate ran."""


class CensusMethod(StrEnum):
    """How it was seen what a call runs."""

    PROFILER = "profiler"
    """Kernels on the device with their times, by CUPTI."""
    DISPATCH = "dispatch"
    """ATen ops and Triton launches, counted on the host."""
    HOST = "host"
    """ATen ops and native functions on a CPU, with their times."""
    INTERPRETER = "interpreter"
    """Triton launches in the interpreter."""


class KernelUse(Record):
    """One kernel, op or native function in one call."""

    name: str
    owner: Owner
    launches: NonNegativeInt
    share: float | None = Field(default=None, ge=0.0, le=1.0)
    """Of the time of all that the call runs; None where nothing was timed."""


class WorkloadCensus(Record):
    """What one call of the candidate runs on one workload, beside the reference."""

    workload: str
    method: CensusMethod
    launches: NonNegativeInt
    """Kernels, copies and fills of one call; with ``dispatch`` and ``host``, ops and functions."""
    reference_launches: NonNegativeInt | None = None
    own_share: float | None = Field(default=None, ge=0.0, le=1.0)
    library_share: float | None = Field(default=None, ge=0.0, le=1.0)
    """Of the time, in library kernels that compute; copies and fills are neither."""
    kernels: tuple[KernelUse, ...] = ()
    """The most expensive first; kept back for a held-out workload."""
    reference_ops: dict[str, NonNegativeInt] = Field(default_factory=dict)
    """ATen ops of the reference and how often it calls them, views and allocations left out."""
    reference_flops: NonNegativeInt = 0
    """What its products, convolutions and attention multiply and add; other ops count nothing."""
    unimproved: bool = False
    """Whether the library does the reference's work in the candidate too, or other library
    kernels do in its place: no kernel of the candidate's own explains a gain."""
    brief: bool = False
    """Whether its times, on the host, are mostly those of calling; longer workloads then speak."""


class Triviality(Record):
    """Whether a win is worth a maintainer's time."""

    trivial: bool
    score: float = Field(ge=0.0, le=1.0)
    """The evidence that it is not; ``trivial`` from the policy's threshold on."""
    reasons: tuple[str, ...] = ()
    """Sentences, the weightiest first."""


class Environment(Record):
    """The machine and the versions that a number belongs to."""

    machine: str
    device: str
    cpu_count: NonNegativeInt
    threads: NonNegativeInt
    python: str
    torch: str
    triton: str | None = None
    driver: str | None = None
    compiler: str | None = None
    sandbox: str


class Evaluation(Record):
    """What the evaluator found about one candidate."""

    schema_version: Literal[1] = 1
    candidate_id: str
    problem_id: str
    backend: BackendName
    status: Status
    message: str
    """One line: the verdict's reason, or the failure's cause and place."""
    finished_at: datetime
    seconds: NonNegativeFloat
    """Wall time that the evaluation took."""
    stage_seconds: dict[Stage, NonNegativeFloat] = Field(default_factory=dict)
    """What each stage took of it; together at most ``seconds``."""
    device_seconds: NonNegativeFloat = 0.0
    """For how long it held the device that candidates are timed on."""
    environment: Environment
    regime: Regime
    correctness: tuple[WorkloadCorrectness, ...] = ()
    derived_workloads: NonNegativeInt = 0
    """Of those that the evaluator made itself, how many the candidate passed."""
    precision: tuple[OutputPrecision, ...] = ()
    timings: tuple[WorkloadTiming, ...] = ()
    speedups: tuple[Speedup, ...] = ()
    """Per baseline: the weighted geometric mean over the workloads, jointly bootstrapped."""
    other_clock: tuple[WorkloadTiming, ...] = ()
    """A confirmation on a GPU also times the regime that does not rank; by a smaller budget."""
    aa_check: AaCheck | None = None
    confirmed: bool = False
    """Whether the speedups come from fresh processes that had no part in a selection."""
    resources: tuple[KernelResources, ...] = ()
    deep: tuple[DeepCheck, ...] = ()
    """The memory checkers that the candidate was run under; none unless they were asked for."""
    flags: tuple[Flag, ...] = ()
    census: tuple[WorkloadCensus, ...] = ()
    triviality: Triviality | None = None
    attested: dict[str, Attestor] = Field(default_factory=dict)
    log_tail: str = ""

    @model_validator(mode="after")
    def _fields_fit_the_status(self) -> Evaluation:
        timed = bool(self.timings) and bool(self.speedups)
        if self.status is Status.OK and not timed:
            raise ValueError("status ok needs timings and speedups")
        if self.status is not Status.OK and (self.timings or self.speedups or self.other_clock):
            raise ValueError(f"status {self.status.value} cannot carry timings or speedups")
        passed = bool(self.correctness) and all(c.passed for c in self.correctness)
        if self.status in (Status.OK, Status.NOT_MEASURED) and not passed:
            raise ValueError(f"status {self.status.value} needs every workload to pass")
        harmful = any(check.findings for check in self.deep)
        if harmful and self.status is not Status.INCORRECT:
            raise ValueError(f"a memory error makes a candidate incorrect, not {self.status.value}")
        failed = harmful or not all(c.passed for c in self.correctness)
        if self.status is Status.INCORRECT and not failed:
            raise ValueError("status incorrect needs a workload that failed")
        return self

    def speedup(self, baseline: Baseline = Baseline.EAGER) -> Speedup | None:
        """Return the overall speedup against ``baseline`` where it was measured."""
        return next((s for s in self.speedups if s.baseline is baseline), None)
