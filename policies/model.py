"""The model of ``default.yml``: how good is good enough, and how long anything may take."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Self

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

DEFAULT_FILE = Path(__file__).with_name("default.yml")


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class VerdictPolicy(_Section):
    """When a speedup counts."""

    faster_threshold: float = Field(gt=1.0)
    """``faster`` needs the one-sided 99 % lower bound above this, ``slower`` mirrors it."""
    confidence: float = Field(gt=0.5, lt=1.0)
    """Of the two-sided interval that is reported."""
    process_noise: dict[str, NonNegativeFloat]
    """Per clock, the prior standard deviation of the log ratio from one process pair to the
    next (memory layout, caches). A CPU's is large: comparing a function with itself in fresh
    processes gave 1.6 to 1.9 %, so that no amount of blocks in one pair settles a per cent."""
    process_noise_ns: dict[str, NonNegativeFloat]
    """The part of it that does not shrink with the call, which is most of it for short ones:
    calls of 1.5 us came out 0.5 to 2 % apart in fresh processes on an H200."""


class Handling(StrEnum):
    """What follows when a rule of the source policy is broken."""

    FORBIDDEN = "forbidden"
    """The candidate is refused."""
    WARNING = "warning"
    """Its evaluation carries a flag."""
    ALLOWED = "allowed"


class SourcePreset(_Section):
    """What a named preset changes; the rest is as the section says."""

    description: str
    handling: dict[str, Handling] = {}
    """By rule (``evaluator/source_policy/rules.py``), where it is not the rule's own."""
    python_imports: tuple[str, ...] = ()
    """Allowed beside the section's own, for every language."""
    entry_may_be_class: bool = False
    """Whether ``ModelNew`` may stand where a function is asked for."""
    relative_tolerance: NonNegativeFloat = 0.0
    """What ``CorrectnessPolicy.relative_tolerance`` becomes at least."""


class SourcePolicy(_Section):
    """What a candidate's source may name."""

    enforced: bool = True
    """Off only where tests show that the sandbox holds without it."""
    preset: str
    """Which of ``presets`` is in force."""
    presets: dict[str, SourcePreset]
    python_imports: dict[str, tuple[str, ...]]
    """Per language, the modules (and no others) that a candidate may import."""
    cpp_headers: tuple[str, ...]
    cuda_headers: tuple[str, ...]
    """What CUDA and its dialects may include besides: types and device code, no library."""
    cpp_compiler_options: tuple[str, ...]
    """What ``#pragma GCC optimize`` and ``target`` may name; none that assumes finite numbers."""

    @model_validator(mode="after")
    def _preset_is_known(self) -> Self:
        if self.preset not in self.presets:
            raise ValueError(f"no preset {self.preset!r}; known: {', '.join(self.presets)}")
        return self

    @property
    def chosen(self) -> SourcePreset:
        """The preset in force."""
        return self.presets[self.preset]


class TimeLimits(_Section):
    """Seconds that the supervisor waits before a worker is killed."""

    start_seconds: PositiveFloat
    import_seconds: PositiveFloat
    compile_seconds: PositiveFloat
    call_seconds: PositiveFloat
    interpreted_call_seconds: PositiveFloat
    baseline_compile_seconds: PositiveFloat
    total_seconds: PositiveFloat
    deep_factor: PositiveFloat
    """By how much a call, an import and a start may take longer under a memory checker."""


class LayoutPolicy(StrEnum):
    """What becomes of a candidate that is wrong on strides that no workload declares."""

    REFUSE_OR_RIGHT = "refuse_or_right"
    """It must raise or be right; silently wrong is incorrect."""
    NOTE = "note"
    """A flag says so: what lands is dispatched to for the declared layouts alone."""
    OFF = "off"
    """Not tried."""


class DerivedPolicy(_Section):
    """Workloads that the evaluator derives from the declared ones."""

    shapes: NonNegativeInt
    values: NonNegativeInt
    layouts_tried: NonNegativeInt
    """At most so many of each."""
    layouts: LayoutPolicy
    heavy_bytes: PositiveInt
    heavy_each: NonNegativeInt
    """Where the smallest declared workload is larger than this, at most so many of each."""

    def at_most(self, count: int) -> Self:
        """Return this policy with at most ``count`` workloads of each kind."""
        names = ("shapes", "values", "layouts_tried")
        return self.model_copy(update={n: min(count, getattr(self, n)) for n in names})


class CorrectnessPolicy(_Section):
    """How much is checked."""

    trials: int = Field(ge=2)
    """Secret seeds per workload."""
    interpreted_elements: PositiveInt
    """Largest workload, in elements of all tensors, that the Triton interpreter is given."""
    interpreted_leading_extent: PositiveInt
    """To what a larger workload's common leading extent is cut for it."""
    derived: DerivedPolicy
    allow_lower_precision: bool
    """Whether float32 may be computed in TF32, and so on; it is named all the same."""
    relative_tolerance: NonNegativeFloat
    """Errors up to this share of a row's largest magnitude pass, whatever the problem says."""
    near_tie_draws: PositiveInt
    """Moved inputs on which the reference shows what a near tie may select."""


class TimingBudget(_Section):
    """How long one purpose (a screen, a confirmation) may measure."""

    process_pairs: PositiveInt
    min_rounds: int = Field(ge=5)
    max_rounds: PositiveInt
    workload_seconds: PositiveFloat
    """Per workload and process pair."""
    half_width: PositiveFloat
    """Sampling stops when the interval's half-width, as a share, is at most this."""
    slope_pairs: PositiveInt
    """Pairs of blocks of different length that our own clock judges a claim by."""


class SelfComparison(_Section):
    """The reference timed against itself before a series of measurements."""

    budget: TimingBudget
    limit: dict[str, PositiveFloat]
    """Per clock: the machine is unfit where the interval lies further than this from 1."""
    lasts_seconds: PositiveFloat
    """So long a result serves the screens that follow."""


class TimingPolicy(_Section):
    """How blocks are made."""

    block_milliseconds: PositiveFloat
    settle_milliseconds: PositiveFloat
    """Pause between blocks, so that one worker's spinning threads do not slow the next."""
    device_settle_milliseconds: PositiveFloat
    """The same where the device keeps the clock: host threads do not matter there."""
    clock_share: PositiveFloat
    """A round counts if the GPU's clock was the same around all its blocks, up to this share."""
    cool_down_milliseconds: PositiveFloat
    """The pause after a round in which the clock moved; it grows until a round counts again."""
    exclusive_gpu: bool
    """Whether another process that computes on the GPU makes the machine unfit."""
    slope_share: PositiveFloat
    """A claim may lie so far below what our own clock says that one more call costs."""
    slope_resolution_us: PositiveFloat
    """And by so much per pair of blocks: pipes and schedulers are no finer."""
    slope_noise_limit: PositiveFloat
    """Where our own clock is less certain than this share, no claim is believed."""
    idle_share: PositiveFloat
    """The device may be busy for this share of a block after the block's own stream ended."""
    fresh_share: PositiveFloat
    """A call on content never seen may take so many known ones longer."""
    fresh_resolution_us: PositiveFloat
    """And by so much: a core learns the branches of a sort of 300 numbers, and saves 8 us."""
    roofline_slack: float = Field(ge=0.0, lt=1.0)
    """A time so far below the least that memory allows is impossible."""
    waiting_share: PositiveFloat
    """A round counts if eager's threads waited for a core less than this share of its block.
    Alone on a machine they wait 0 to 13 %, most of it right after they are let run; where
    something else runs, tens of per cent."""
    max_dropped_share: float = Field(gt=0.0, le=1.0)
    """With more rounds than this disturbed the machine is unfit. Threads of a pool that are put
    on one core disturb each other too, so a third is no rarity on a machine of two cores."""
    short_call_us: PositiveFloat
    short_call_pairs: PositiveInt
    """Calls shorter than this differ most from process to process: so many pairs confirm them."""
    buffer_bytes: PositiveInt
    """Rotated inputs together aim at this size, within the bounds below."""
    min_buffers: int = Field(ge=2)
    max_buffers: PositiveInt
    device_content_bytes: PositiveInt
    """The same on a known GPU, where copies fill the rotation: drawing numbers takes longer
    than everything else there."""
    cold_l2_multiple: PositiveFloat
    """On a known GPU the rotation aims at this many times the L2 cache: copies of the inputs at
    other addresses are added to it."""
    max_rotation: PositiveInt
    """Inputs and copies; calls so small that this many fit the cache are timed warm."""
    threads: PositiveInt | None = None
    """Threads of candidate and baseline alike; none means one per core we may use."""
    coarse_ratio: PositiveFloat
    """A candidate this many times slower than the incumbent is timed coarsely."""
    screen: TimingBudget
    confirm: TimingBudget
    other_clock: TimingBudget
    """A confirmation on a GPU measures the regime that does not rank by this."""
    self_comparison: SelfComparison | None
    """None trusts the machine unseen."""


class CensusPolicy(_Section):
    """What is made of the kernels and library ops that a candidate's call runs."""

    enabled: bool
    """Off where a function is compared with itself on purpose; nothing is ``unimproved`` then."""
    same_work_share: float = Field(gt=0.0, le=1.0)
    """With so much of the reference's work done by the same library kernels, a candidate is
    ``unimproved``, and kernels of its own beside them are decoys."""
    own_part: float = Field(ge=0.0, le=1.0)
    """Of the time of what a candidate does in place of the reference: the least that kernels of
    its own must take where library compute is not allowed; the rest are other library kernels."""
    library_share: float = Field(ge=0.0, le=1.0)
    """Of the time: library compute up to this is not worth a word."""
    handling: dict[str, Handling]
    """Of what is seen at run time alone; other rules are handled as the source policy does."""


class OpKind(_Section):
    """ATen ops that weigh alike in a reference's complexity."""

    weight: NonNegativeFloat
    ops: tuple[str, ...]


class TrivialityPolicy(_Section):
    """When a win is not worth a maintainer's time; per class of the reference's complexity.

    The classes are ``move`` (memory moves alone), ``simple``, ``composite`` and ``complex``.
    """

    trivial_from: float = Field(gt=0.0, le=1.0)
    """The score from which a win is trivial; a decisive reason weighs 1."""
    kinds: dict[str, OpKind]
    other_weight: NonNegativeFloat
    """Of an op in no kind: element-wise arithmetic."""
    move_weight: NonNegativeFloat
    repeat_weight: NonNegativeFloat
    """Of each further call of the same op."""
    simple_up_to: PositiveFloat
    composite_up_to: PositiveFloat
    gain: dict[str, PositiveFloat]
    """Per class: a lower bound of the speedup against eager below this is small."""
    one_op_gain: PositiveFloat
    """The same where the reference is a single library call."""
    over_compiled: dict[str, PositiveFloat]
    """Per class: so much more than ``torch.compile`` a kernel has to give."""
    same_program: float = Field(gt=0.0, le=1.0)
    """The similarity from which a candidate is the compiler's first translation."""
    launch_us: dict[str, PositiveFloat]
    """Per clock, what one more launch costs."""
    launch_share: float = Field(gt=0.0, le=1.0)
    """Of eager's time and of the gain: what launches must explain to be the whole story."""
    launch_weight: dict[str, NonNegativeFloat]
    """Per class: how far that speaks against the win."""
    near_roofline: PositiveFloat
    """A reference that reaches this share of the roofline leaves nothing to win."""
    negligible_end_to_end: NonNegativeFloat
    worthwhile_end_to_end: PositiveFloat
    """Shares of a program's time: what is not worth a change, and what is, however small the
    kernel."""


class EvaluatorPolicy(_Section):
    """Everything that the evaluator takes from ``default.yml``."""

    verdict: VerdictPolicy
    source: SourcePolicy
    limits: TimeLimits
    correctness: CorrectnessPolicy
    timing: TimingPolicy
    census: CensusPolicy
    triviality: TrivialityPolicy

    def with_source_preset(self, name: str) -> Self:
        """Return the policy with another preset of the source policy in force.

        Raises:
            ValueError: there is no such preset; the message names those that there are.
        """
        source = SourcePolicy.model_validate({**self.source.model_dump(), "preset": name})
        looser = max(source.chosen.relative_tolerance, self.correctness.relative_tolerance)
        correctness = self.correctness.model_copy(update={"relative_tolerance": looser})
        return self.model_copy(update={"source": source, "correctness": correctness})

    @classmethod
    def default(cls) -> Self:
        """Return what ``policies/default.yml`` says."""
        document = yaml.safe_load(DEFAULT_FILE.read_text(encoding="utf-8"))
        return cls.model_validate(document["evaluator"])


class AdaptiveRule(_Section):
    """When a search stops by itself, or is redirected (``evolver/adaptive.py``)."""

    minimum: PositiveInt
    """Evaluations before anything is concluded, and after a redirection again."""
    hopeless: PositiveInt
    """Evaluations after which a search without anything correct ends."""
    horizon: PositiveInt
    gain: PositiveFloat
    chance: float = Field(gt=0.0, lt=1.0)
    """It is a plateau where the next ``horizon`` evaluations bring more than ``gain`` with less
    than this chance."""
    resolution: NonNegativeFloat
    """Gains below this, in log units, are luck until they add up to it."""
    prior_jumps: PositiveFloat
    prior_evaluations: PositiveFloat
    """What is believed of the rate of jumps beforehand: so many in so many evaluations."""
    prior_lives: PositiveFloat
    """After a jump a search dries up once in so many times and one; each jump adds one."""
    prior_gain: PositiveFloat
    """And of their size, in log units."""
    half_life: PositiveFloat
    """Evaluations after which a jump's size counts half."""
    roofline_margin: NonNegativeFloat
    """The best is good enough where memory allows no more than this share beyond it."""
    room: float = Field(gt=1.0)
    """On a plateau, another direction is tried where so much more is thought possible."""
    redirections: NonNegativeInt
    """Of one search, at most."""


class HeadroomPolicy(_Section):
    """How far a reference can be sped up, as guessed before the search."""

    achievable_share: float = Field(gt=0.0, le=1.0)
    """Of the roofline: what good kernels reach."""
    library_share: float = Field(ge=0.0, le=1.0)
    """Of the time, in the library's products, where it was not measured."""
    library_gain: float = Field(ge=1.0)
    """By how much kernels of our own beat the library's products, at best."""


class SearchPolicy(_Section):
    """Everything that the search takes from ``default.yml``."""

    adaptive: AdaptiveRule
    headroom: HeadroomPolicy

    @classmethod
    def default(cls) -> Self:
        """Return what ``policies/default.yml`` says."""
        document = yaml.safe_load(DEFAULT_FILE.read_text(encoding="utf-8"))
        return cls.model_validate(document["search"])
