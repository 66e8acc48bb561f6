"""From a finished run to its row: its steps, its overhead, and what adaptive stopping would do."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from benchmarks.search.rows import SearchRow, Step
from evaluator.evaluation import Baseline, Evaluation, Stage, Verdict
from evolver.adaptive import Advice
from evolver.guide import decide, predict
from evolver.headroom import Headroom
from evolver.journal import replay
from evolver.run import Run
from evolver.state import SearchState, has_verdict
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
    search = SearchPolicy.default()
    headroom = predict(replay(run), run.loaded.problem, search.headroom, policy.triviality)
    best = run.best()
    speedup = best.evaluation.speedup() if best is not None else None
    evaluations = [e.evaluation for e in entries if e.evaluation is not None]
    costs = run.summary().costs
    return row.model_copy(
        update={
            "steps": tuple(steps_of(entries)),
            "confirmed": speedup.value if speedup else None,
            "confirmed_lower": speedup.lower_99 if speedup else None,
            "device_seconds": math.fsum(map(_device_seconds, evaluations)),
            "search_seconds": costs.elapsed_seconds,
            "overhead_seconds": costs.overhead_seconds,
            "proposers": tuple(sorted({e.proposer for e in entries if e.proposer})),
            "headroom": headroom.speedup_possible if headroom else None,
            "stopped_at": stop_of(run, headroom, search.adaptive),
        }
    )


def steps_of(entries: Iterable[LogEntry]) -> Iterator[Step]:
    """The search after each evaluation of a new candidate; what was measured again counts anew."""
    latest: dict[str, float] = {}
    device_seconds, evaluated = 0.0, 0
    for entry in entries:
        evaluation = entry.evaluation
        if entry.kind not in (EntryKind.EVALUATED, EntryKind.REMEASURED) or evaluation is None:
            continue
        device_seconds += _device_seconds(evaluation)
        if not has_verdict(evaluation):
            continue  # the machine's fault: it costs, and is tried again
        latest[evaluation.candidate_id] = _lower(evaluation)
        if entry.kind is EntryKind.EVALUATED:
            evaluated += 1
            lower = max(1.0, *latest.values())
            yield Step(evaluated=evaluated, device_seconds=device_seconds, lower=lower)


def stop_of(run: Run, headroom: Headroom | None, rule: AdaptiveRule) -> int | None:
    """After how many evaluations ``rule`` would have ended a search that ran on; None if never.

    Exact for a search that only stops. Where the rule would have sent it elsewhere first, the
    replay goes on with what was proposed instead: what redirecting brings is not in it.
    """
    redirected: list[int] = []
    for state in _states(run):
        decision = decide(state, headroom, rule, redirected=redirected)
        if decision.advice is Advice.STOP:
            return state.evaluated
        if decision.advice is Advice.REDIRECT:
            redirected.append(state.evaluated)
    return None


def _states(run: Run) -> Iterator[SearchState]:
    """The state whenever a running search asks for advice: as evaluations end, after the seeds."""
    entries = list(run.log())
    seeded = max((e.sequence for e in entries if e.kind is EntryKind.SEEDED), default=0)
    state = SearchState(islands=run.config.islands, budget=run.config.budget)
    for entry in entries:
        known = entry.kind is EntryKind.EVALUATED and entry.candidate_id is not None
        candidate = run.store.candidate(str(entry.candidate_id)) if known else None
        before = state.evaluated
        state.apply(entry, candidate)
        if entry.sequence >= seeded and state.evaluated > before:
            yield state


def _device_seconds(evaluation: Evaluation) -> float:
    """Without the reference's comparison with itself, which serves whoever comes later too."""
    shared = evaluation.stage_seconds.get(Stage.SELF_COMPARISON, 0.0)
    return max(0.0, evaluation.device_seconds - shared)


def _lower(evaluation: Evaluation) -> float:
    """The lower bound that counts: none for work that is the library's."""
    speedup = evaluation.speedup(Baseline.EAGER)
    if speedup is None or speedup.verdict is Verdict.UNIMPROVED:
        return 0.0
    return speedup.lower_99
