"""The model of ``default.yml``: how good is good enough, and how long anything may take."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, PositiveFloat, PositiveInt

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


class SourcePolicy(_Section):
    """What a candidate's source may name."""

    enforced: bool = True
    """Off only where tests show that the sandbox holds without it."""
    python_imports: dict[str, tuple[str, ...]]
    """Per backend, the modules (and no others) that a candidate may import."""
    cpp_headers: tuple[str, ...]
    cpp_compiler_options: tuple[str, ...]
    """What ``#pragma GCC optimize`` and ``target`` may name; none that assumes finite numbers."""


class TimeLimits(_Section):
    """Seconds that the supervisor waits before a worker is killed."""

    start_seconds: PositiveFloat
    import_seconds: PositiveFloat
    compile_seconds: PositiveFloat
    call_seconds: PositiveFloat
    interpreted_call_seconds: PositiveFloat
    baseline_compile_seconds: PositiveFloat
    total_seconds: PositiveFloat


class CorrectnessPolicy(_Section):
    """How much is checked."""

    trials: int = Field(ge=2)
    """Secret seeds per workload."""
    interpreted_elements: PositiveInt
    """Largest workload, in elements of all tensors, that the Triton interpreter is given."""
    interpreted_leading_extent: PositiveInt
    """To what a larger workload's common leading extent is cut for it."""


class TimingBudget(_Section):
    """How long one purpose (a screen, a confirmation) may measure."""

    process_pairs: PositiveInt
    min_rounds: int = Field(ge=5)
    max_rounds: PositiveInt
    workload_seconds: PositiveFloat
    """Per workload and process pair."""
    half_width: PositiveFloat
    """Sampling stops when the interval's half-width, as a share, is at most this."""


class TimingPolicy(_Section):
    """How blocks are made."""

    block_milliseconds: PositiveFloat
    settle_milliseconds: PositiveFloat
    """Pause between blocks, so that one worker's spinning threads do not slow the next."""
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
    threads: PositiveInt | None = None
    """Threads of candidate and baseline alike; none means one per core we may use."""
    coarse_ratio: PositiveFloat
    """A candidate this many times slower than the incumbent is timed coarsely."""
    screen: TimingBudget
    confirm: TimingBudget


class EvaluatorPolicy(_Section):
    """Everything that the evaluator takes from ``default.yml``."""

    verdict: VerdictPolicy
    source: SourcePolicy
    limits: TimeLimits
    correctness: CorrectnessPolicy
    timing: TimingPolicy

    @classmethod
    def default(cls) -> Self:
        """Return what ``policies/default.yml`` says."""
        document = yaml.safe_load(DEFAULT_FILE.read_text(encoding="utf-8"))
        return cls.model_validate(document["evaluator"])
