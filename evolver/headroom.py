"""How far a problem's reference can be sped up, guessed before the search spends anything; pure.

A call can be no faster than memory lets its bytes move, than one launch, and (unless our own
kernels beat the library's) than the products in it: the prediction is eager's time over the
largest of these, each as good kernels reach it. Where no memory floor is known, each op of the
reference counts as one pass over memory; fusing them all leaves one, fusing nothing leaves all,
and the middle of that is predicted, in logs. What ``torch.compile``
gave, where it was measured, is certainly possible. All facts are the reference's own: any
evaluation that was timed has them, whichever candidate it judged.

It is a guess for budgets and nobody's bound: arithmetic outside of products counts nothing, and
an algorithm that moves fewer bytes than the reference's contract asks for cannot be foreseen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from evaluator.correctness.probe import Intake
from evaluator.evaluation import Baseline, Evaluation, WorkloadTiming
from evaluator.problem import Problem
from policies.model import HeadroomPolicy, TrivialityPolicy


class Bound(StrEnum):
    """What sets the least time of a call."""

    LAUNCH = "launch"
    MEMORY = "memory"
    LIBRARY = "library"
    """Products, convolutions and attention, at which the library is good."""
    UNKNOWN = "unknown"
    """No floor is known here; ops were counted as passes over memory."""


@dataclass(frozen=True)
class Headroom:
    """The speedup over eager that seems possible, and how far that guess may be off."""

    speedup_possible: float
    low: float
    """What is certain: ``torch.compile``'s speedup where it was measured, else 1."""
    high: float
    """What no floor that is known forbids."""
    bound_by: Bound
    """Of the workloads that weigh most."""
    evidence: str


@dataclass(frozen=True)
class ReferenceFacts:
    """One workload's reference on the device; None where something is not known."""

    eager_us: float
    launch_us: float
    """What one launch costs by the clock that was used."""
    weight: float = 1.0
    floor_us: float | None = None
    """What memory needs at least."""
    compiled_us: float | None = None
    ops: int | None = None
    """Of the library that touch memory, in one call."""
    products: int = 0
    """Those among them that multiply matrices."""


@dataclass(frozen=True)
class _Guess:
    possible: float
    low: float
    high: float
    bound: Bound


def headroom_of(
    evaluation: Evaluation,
    problem: Problem,
    policy: HeadroomPolicy,
    *,
    costs: TrivialityPolicy,
    intake: Intake | None = None,
) -> Headroom | None:
    """Return the headroom by the reference's side of any timed evaluation; None of others.

    Args:
        evaluation: of whichever candidate.
        problem: for the workloads' weights.
        policy: how near to the floors kernels come.
        costs: says what a launch costs, and which ops are products.
        intake: what the probe found; where something trivial passes, no floor binds.
    """
    weights = {w.name: w.weight for w in problem.workloads}
    censuses = {c.workload: c.reference_ops for c in evaluation.census}
    facts = [
        _facts(timing, weights.get(timing.workload, 1.0), censuses.get(timing.workload, {}), costs)
        for timing in evaluation.timings
    ]
    if not facts:
        return None
    return predict(facts, policy, trivial=intake is not None and bool(intake.trivial))


def predict(
    facts: Sequence[ReferenceFacts], policy: HeadroomPolicy, *, trivial: bool = False
) -> Headroom:
    """Return the weighted geometric mean of the workloads' headrooms.

    ``trivial`` says that zeros or the like would pass: then only a launch bounds from above.
    """
    guesses = [_guess(f, policy, trivial=trivial) for f in facts]
    weights = [f.weight for f in facts]
    shares = {
        b: sum(w for w, g in zip(weights, guesses, strict=True) if g.bound is b) for b in Bound
    }
    bound = max(Bound, key=lambda b: shares[b])
    return Headroom(
        speedup_possible=_mean([g.possible for g in guesses], weights),
        low=_mean([g.low for g in guesses], weights),
        high=_mean([g.high for g in guesses], weights),
        bound_by=bound,
        evidence=_evidence(facts, bound),
    )


def _guess(facts: ReferenceFacts, policy: HeadroomPolicy, *, trivial: bool) -> _Guess:
    floors = {Bound.LAUNCH: facts.launch_us}
    high = facts.eager_us / max(facts.launch_us, 0.0 if trivial else facts.floor_us or 0.0)
    share = policy.library_share if facts.products else 0.0
    if share:
        floors[Bound.LIBRARY] = share * facts.eager_us / policy.library_gain
    if facts.floor_us is not None:
        floors[Bound.MEMORY] = facts.floor_us / policy.achievable_share
    else:
        floors[Bound.UNKNOWN] = (1 - share) * facts.eager_us / math.sqrt(_passes(facts))
    bound = max(floors, key=lambda b: floors[b])
    low = max(1.0, facts.eager_us / facts.compiled_us) if facts.compiled_us else 1.0
    possible = max(low, facts.eager_us / floors[bound])
    return _Guess(possible, low, max(high, possible), bound)


def _passes(facts: ReferenceFacts) -> int:
    return max(1, (facts.ops or 1) - facts.products)


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    logs = sum(w * math.log(v) for v, w in zip(values, weights, strict=True))
    return math.exp(logs / sum(weights))


def _facts(
    timing: WorkloadTiming, weight: float, ops: Mapping[str, int], costs: TrivialityPolicy
) -> ReferenceFacts:
    products = {op for kind in ("product", "attention") for op in costs.kinds[kind].ops}
    return ReferenceFacts(
        eager_us=timing.baselines_us[Baseline.EAGER],
        launch_us=costs.launch_us[timing.clock.value],
        weight=weight,
        floor_us=timing.floor_us,
        compiled_us=timing.baselines_us.get(Baseline.COMPILED),
        ops=sum(ops.values()) or None,
        products=sum(count for op, count in ops.items() if op.strip("_") in products),
    )


def _evidence(facts: Sequence[ReferenceFacts], bound: Bound) -> str:
    """Speak of the longest workload."""
    longest = max(facts, key=lambda f: f.eager_us)
    said = [f"eager takes {longest.eager_us:.4g} us"]
    if longest.ops is not None:
        said[0] += f" in {longest.ops} ops" + (
            f", {longest.products} of them products" if longest.products else ""
        )
    if longest.floor_us is not None:
        said.append(f"memory allows {longest.floor_us:.4g} us")
    if longest.compiled_us is not None:
        said.append(f"torch.compile takes {longest.compiled_us:.4g} us")
    if bound is Bound.LAUNCH:
        said.append(f"a launch takes {longest.launch_us:.4g} us")
    return ", ".join(said)
