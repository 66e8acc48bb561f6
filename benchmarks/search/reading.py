"""From a finished run to its row: its steps, its overhead, and what adaptive stopping would do."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from benchmarks.search.rows import SearchRow, Step, Stop
from evaluator.evaluation import Baseline, Evaluation, Stage, Verdict
from evaluator.problem import Problem
from evolver.adaptive import Advice, Point, advise, point_after
from evolver.costs import Cost
from evolver.headroom import Headroom, headroom_of
from evolver.run import Run
from evolver.state import has_verdict
from evolver.store import EntryKind, LogEntry
from policies.model import AdaptiveRule, EvaluatorPolicy, SearchPolicy


def row_of_run(run: Run, row: SearchRow, policy: EvaluatorPolicy) -> SearchRow:
    """Return ``row`` with what the log of a finished search says.

    Args:
        run: open, its search at its end.
        row: with its unit.
        policy: that the candidates were judged by.
    """
    entries = list(run.log())
    history = list(points_of(entries))
    headroom = predicted(entries, run.loaded.problem, policy)
    best = run.best()
    speedup = best.evaluation.speedup() if best is not None else None
    evaluations = [e.evaluation for e in entries if e.evaluation is not None]
    costs = run.summary().costs
    return row.model_copy(
        update={
            "steps": tuple(map(_step, history)),
            "confirmed": speedup.value if speedup else None,
            "confirmed_lower": speedup.lower_99 if speedup else None,
            "device_seconds": math.fsum(map(_device_seconds, evaluations)),
            "search_seconds": costs.elapsed_seconds,
            "overhead_seconds": costs.overhead_seconds,
            "proposers": tuple(sorted({e.proposer for e in entries if e.proposer})),
            "headroom": headroom.speedup_possible if headroom else None,
            "stop": stop_of(history, headroom, SearchPolicy.default().adaptive),
        }
    )


def points_of(entries: Iterable[LogEntry]) -> Iterator[Point]:
    """The search after each evaluation of a new candidate; what was measured again counts anew."""
    latest: dict[str, Evaluation] = {}
    cost, evaluated = Cost(), 0
    for entry in entries:
        cost += Cost(
            seconds=entry.cost.seconds,
            device_seconds=_device_seconds(entry.evaluation) if entry.evaluation else 0.0,
        )
        if entry.kind not in (EntryKind.EVALUATED, EntryKind.REMEASURED):
            continue
        if not has_verdict(entry.evaluation) or entry.candidate_id is None:
            continue  # the machine's fault: it costs, and is tried again
        latest[entry.candidate_id] = entry.evaluation
        if entry.kind is EntryKind.EVALUATED:
            evaluated += 1
            leader = max(latest.values(), key=_lower)
            yield point_after(
                leader if _lower(leader) else None,
                cost=cost,
                evaluated=evaluated,
                proposer=entry.proposer,
            )


def predicted(
    entries: Sequence[LogEntry], problem: Problem, policy: EvaluatorPolicy
) -> Headroom | None:
    """The headroom by what the first candidate that was timed told of the reference."""
    search = SearchPolicy.default().headroom
    for entry in entries:
        if entry.kind is EntryKind.EVALUATED and entry.evaluation is not None:
            found = headroom_of(entry.evaluation, problem, search, costs=policy.triviality)
            if found is not None:
                return found
    return None


def stop_of(history: Sequence[Point], headroom: Headroom | None, rule: AdaptiveRule) -> Stop | None:
    """Where ``rule`` would have ended a search that ran on to the end of ``history``.

    Exact for a search that only stops. Where the rule would have sent it elsewhere first, the
    replay goes on with what was proposed instead: what redirecting brings is not in it.
    """
    redirected: list[int] = []
    for count in range(1, len(history) + 1):
        decision = advise(history[:count], headroom, rule, redirected=redirected)
        last = history[count - 1]
        if decision.advice is Advice.STOP:
            return Stop(
                evaluated=last.evaluated,
                device_seconds=last.cost.device_seconds,
                reason=decision.reason,
            )
        if decision.advice is Advice.REDIRECT:
            redirected.append(last.evaluated)
    return None


def _device_seconds(evaluation: Evaluation) -> float:
    """Without the reference's comparison with itself, which serves whoever comes later too."""
    shared = evaluation.stage_seconds.get(Stage.SELF_COMPARISON, 0.0)
    return max(0.0, evaluation.device_seconds - shared)


def _step(point: Point) -> Step:
    return Step(
        evaluated=point.evaluated,
        device_seconds=point.cost.device_seconds,
        lower=max(1.0, point.best_lower or 1.0),
    )


def _lower(evaluation: Evaluation) -> float:
    """The lower bound that counts: none for work that is the library's."""
    speedup = evaluation.speedup(Baseline.EAGER)
    if speedup is None or speedup.verdict is Verdict.UNIMPROVED:
        return 0.0
    return speedup.lower_99
