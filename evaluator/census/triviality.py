"""Whether a win is worth a maintainer's time, with reasons that a maintainer would accept.

Pure. Each rule weighs one kind of evidence that a win is trivial: it is small, the compiler
gives it too, it fuses launches of a tiny graph, the library already runs at the roofline, it
saves nothing end to end. What counts as small depends on how complex the reference is:
nobody reviews a kernel for 10 % of an addition, many do for 3 % of a router. The thresholds
are ``triviality`` in ``policies/default.yml``; ``tests/triviality`` validates them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

import yaml
from pydantic import Field, NonNegativeInt, PositiveFloat

from evaluator.evaluation import (
    Attestor,
    Baseline,
    Evaluation,
    Speedup,
    Triviality,
    Verdict,
)
from evaluator.records import Record
from policies.model import EvaluatorPolicy, TrivialityPolicy

CORPUS_FILE = "labelled.yml"
_DECISIVE = 1.0


class WinFacts(Record):
    """What is known of a win; None where it is not."""

    gain: PositiveFloat
    """Speedup against eager."""
    gain_low: PositiveFloat
    """Its one-sided 99 % lower bound."""
    over_compiled: PositiveFloat | None = None
    """Speedup against ``torch.compile`` of the reference."""
    over_compiled_low: PositiveFloat | None = None
    eager_us: PositiveFloat
    candidate_us: PositiveFloat
    eager_launches: NonNegativeInt | None = None
    launches: NonNegativeInt | None = None
    launch_us: PositiveFloat
    """What a launch costs by the clock that was used."""
    reference_ops: dict[str, NonNegativeInt]
    """ATen ops of the reference by plain name, views and allocations left out."""
    roofline_before: float | None = Field(default=None, ge=0.0)
    """The share of the roofline that eager reaches."""
    similarity: float | None = Field(default=None, ge=0.0, le=1.0)
    """To the compiler's first translation, see ``evaluator.census.similarity``."""
    end_to_end_share: float | None = Field(default=None, ge=0.0, le=1.0)
    """Of the whole program's time that the reference takes."""
    degenerate: bool = False
    """Whether zeros, a mean or another input's output would pass as its output."""
    unimproved: bool = False


class Complexity(Record):
    """How much a reference does: a score by its ops, and the class it falls into."""

    score: float
    name: str
    """``move``, ``simple``, ``composite`` or ``complex``."""


def complexity(ops: Mapping[str, int], policy: TrivialityPolicy) -> Complexity:
    """Return how complex a reference of these ops is.

    A distinct op counts by its kind's weight, each repetition by ``policy.repeat_weight``.
    """
    weights = {op: _weight(op, policy) for op in ops}
    repeats = sum(count - 1 for count in ops.values())
    score = sum(weights.values()) + policy.repeat_weight * repeats
    if all(w <= policy.move_weight for w in weights.values()):
        return Complexity(score=score, name="move")
    name = "simple" if score <= policy.simple_up_to else "composite"
    return Complexity(score=score, name="complex" if score > policy.composite_up_to else name)


def _weight(op: str, policy: TrivialityPolicy) -> float:
    plain = op.strip("_")
    return next((k.weight for k in policy.kinds.values() if plain in k.ops), policy.other_weight)


def judge_triviality(facts: WinFacts, policy: TrivialityPolicy) -> Triviality:
    """Judge a win by all rules; the weightiest reasons come first."""
    found = sorted(_evidence(facts, policy), key=lambda e: -e[0])
    score = min(1.0, sum(weight for weight, _ in found))
    return Triviality(
        trivial=score >= policy.trivial_from,
        score=round(score, 3),
        reasons=tuple(reason for _, reason in found),
    )


def _evidence(facts: WinFacts, policy: TrivialityPolicy) -> Iterator[tuple[float, str]]:
    kind = complexity(facts.reference_ops, policy)
    yield from _no_win(facts)
    yield from _by_compiler(facts, kind, policy)
    saved = _saved_end_to_end(facts)
    if saved is not None and saved >= policy.worthwhile_end_to_end:
        return
    if saved is not None and saved < policy.negligible_end_to_end:
        yield _DECISIVE, f"it saves {saved:.2%} of the time of the whole program"
    yield from _small_gain(facts, kind, policy)
    yield from _launches(facts, kind, policy)
    yield from _near_roofline(facts, policy)


def _no_win(facts: WinFacts) -> Iterator[tuple[float, str]]:
    if facts.unimproved:
        yield _DECISIVE, "the library does the work in it, not a kernel of its own"
    if facts.degenerate:
        yield _DECISIVE, "an output that computes nothing would pass, so a win proves nothing"
    if not facts.reference_ops:
        yield _DECISIVE, "the reference computes nothing: it returns its inputs or views of them"


def _by_compiler(
    facts: WinFacts, kind: Complexity, policy: TrivialityPolicy
) -> Iterator[tuple[float, str]]:
    low, alike = facts.over_compiled_low, facts.similarity
    wanted = policy.over_compiled[kind.name]
    if low is not None and facts.over_compiled is not None and low < wanted:
        share = min(1.0, 1 / facts.over_compiled)
        yield _DECISIVE, f"torch.compile already gives {share:.0%} of this speed"
    if alike is not None and alike >= policy.same_program and (low is None or low < wanted):
        weight = _DECISIVE if low is None else 0.5
        yield weight, f"its kernels are {alike:.0%} alike to the compiler's first translation"


def _saved_end_to_end(facts: WinFacts) -> float | None:
    if facts.end_to_end_share is None:
        return None
    return facts.end_to_end_share * max(0.0, 1 - 1 / facts.gain_low)


def _small_gain(
    facts: WinFacts, kind: Complexity, policy: TrivialityPolicy
) -> Iterator[tuple[float, str]]:
    wanted = policy.gain[kind.name]
    calls = sum(facts.reference_ops.values())
    if facts.gain_low < wanted:
        yield (
            _DECISIVE,
            f"it is surely {facts.gain_low - 1:.1%} faster than eager; for {_described(facts)} "
            f"less than {wanted - 1:.0%} is not worth a kernel",
        )
    elif calls == 1 and facts.gain_low < policy.one_op_gain:
        yield _DECISIVE, f"it replaces one library call, {_op(facts)}, for {facts.gain - 1:.0%}"


def _launches(
    facts: WinFacts, kind: Complexity, policy: TrivialityPolicy
) -> Iterator[tuple[float, str]]:
    """Fewer launches of a small graph: a CUDA graph or a larger batch would end the win."""
    if facts.eager_launches is None or facts.launches is None:
        return
    launching = min(facts.eager_us, facts.eager_launches * facts.launch_us)
    fewer = max(0, facts.eager_launches - facts.launches) * facts.launch_us
    saved = facts.eager_us - facts.candidate_us
    mostly = launching >= policy.launch_share * facts.eager_us
    if saved <= 0 or not mostly or fewer < policy.launch_share * saved:
        return
    yield (
        policy.launch_weight[kind.name],
        f"eager spends {launching:.2g} of {facts.eager_us:.2g} us launching "
        f"{facts.eager_launches} kernels of {_described(facts)}; the win is fewer launches",
    )


def _near_roofline(facts: WinFacts, policy: TrivialityPolicy) -> Iterator[tuple[float, str]]:
    if facts.roofline_before is not None and facts.roofline_before >= policy.near_roofline:
        yield _DECISIVE, f"eager already reaches {facts.roofline_before:.0%} of the roofline"


def _described(facts: WinFacts) -> str:
    calls = sum(facts.reference_ops.values())
    return f"one op ({_op(facts)})" if calls == 1 else f"a problem of {calls} ops"


def _op(facts: WinFacts) -> str:
    return next(iter(facts.reference_ops))


def with_triviality(
    evaluation: Evaluation,
    policy: EvaluatorPolicy,
    *,
    similarity: float | None = None,
    end_to_end_share: float | None = None,
) -> Evaluation:
    """Return the record with a judgement if it is of a win; call it again when more is known.

    Args:
        evaluation: any.
        policy: for the thresholds.
        similarity: to the compiler's first translation, see ``evaluator.census.similarity``.
        end_to_end_share: of the whole program's time that the reference takes.
    """
    eager = evaluation.speedup(Baseline.EAGER)
    won = eager is not None and eager.verdict in (Verdict.FASTER, Verdict.UNIMPROVED)
    known = {"similarity": similarity, "end_to_end_share": end_to_end_share}
    facts = facts_of(evaluation, policy, **known) if won else None
    if facts is None:
        return evaluation
    judged = judge_triviality(facts, policy.triviality)
    attested = {**evaluation.attested, "triviality": Attestor.SUPERVISOR}
    return evaluation.model_copy(update={"triviality": judged, "attested": attested})


def facts_of(
    evaluation: Evaluation,
    policy: EvaluatorPolicy,
    *,
    similarity: float | None = None,
    end_to_end_share: float | None = None,
) -> WinFacts | None:
    """Read the facts from a record; None where it was not timed or has no census.

    Times and launches are of the median workload; a problem's reference does the same on all.
    """
    eager = evaluation.speedup(Baseline.EAGER)
    if eager is None or not evaluation.timings or not evaluation.census:
        return None
    compiled = evaluation.speedup(Baseline.COMPILED)
    theirs = [c.reference_launches for c in evaluation.census if c.reference_launches is not None]
    candidate_us = _typical([t.candidate_us for t in evaluation.timings])
    clock = evaluation.timings[0].clock.value
    return WinFacts(
        gain=eager.value,
        gain_low=eager.lower_99,
        over_compiled=_value(compiled),
        over_compiled_low=compiled.lower_99 if compiled else None,
        eager_us=candidate_us * eager.value,
        candidate_us=candidate_us,
        eager_launches=round(median(theirs)) if theirs else None,
        launches=round(median(c.launches for c in evaluation.census)),
        launch_us=policy.triviality.launch_us[clock],
        roofline_before=_roofline_before(evaluation),
        reference_ops=max((c.reference_ops for c in evaluation.census), key=len),
        similarity=similarity,
        end_to_end_share=end_to_end_share,
        degenerate=any(f.rule == "degenerate" for f in evaluation.flags),
        unimproved=eager.verdict is Verdict.UNIMPROVED,
    )


def _roofline_before(evaluation: Evaluation) -> float | None:
    """The share of the roofline that eager reaches; the lowest of the workloads."""
    reached = [
        t.roofline_fraction * t.candidate_us / t.baselines_us[Baseline.EAGER]
        for t in evaluation.timings
        if t.roofline_fraction is not None and Baseline.EAGER in t.baselines_us
    ]
    return min(reached) if reached else None


def _value(speedup: Speedup | None) -> float | None:
    return None if speedup is None else speedup.value


def _typical(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


class LabelledWin(Record):
    """One case of the corpus: what a maintainer would say, and what is known."""

    id: str
    trivial: bool
    facts: WinFacts


def read_corpus(folder: Path) -> tuple[LabelledWin, ...]:
    """Return the labelled wins of ``folder``/labelled.yml.

    Raises:
        OSError: there is no such file.
        pydantic.ValidationError: a case does not fit the model.
    """
    document = yaml.safe_load((folder / CORPUS_FILE).read_text(encoding="utf-8"))
    return tuple(LabelledWin.model_validate(case) for case in document)


def score_corpus(
    cases: Sequence[LabelledWin], policy: TrivialityPolicy
) -> tuple[float, float, int]:
    """Return precision, recall and the number of cases, ``trivial`` being what is looked for.

    Raises:
        ValueError: no case is trivial, or none is judged so.
    """
    judged = [(judge_triviality(c.facts, policy).trivial, c.trivial) for c in cases]
    hits = sum(found and true for found, true in judged)
    found, true = (sum(column) for column in zip(*judged, strict=True))
    if not found or not true:
        raise ValueError("precision and recall need wins that are trivial and are judged so")
    return hits / found, hits / true, len(cases)
