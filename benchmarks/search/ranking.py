"""The candidates of a finished search under one naive run each, beside how we ranked them.

The naive clock is KernelBench's (100 trials between event pairs; elsewhere 100 calls by the
host's clock), in a fresh process per candidate. It orders candidates and no more: no number of
it enters a run. Who is right is said by fresh confirmations of the first of both rankings, which
had no part in either.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from benchmarks.noise.yardsticks import Yardsticks
from benchmarks.search.rows import Contender, RankingRow
from evaluator.candidate import Candidate
from evaluator.correctness.judging import Ended
from evaluator.errors import WorkerLost
from evaluator.evaluation import Baseline, Evaluation, Status, Verdict
from evaluator.sandbox import Sandbox
from evaluator.service import Evaluator
from evaluator.session import RequestFailed
from evolver.run import Run
from evolver.state import has_verdict
from evolver.store import EntryKind
from policies.model import EvaluatorPolicy

CLOCKS = ("cuda_event_100", "wall_100")
"""Of which a device has one."""
CONFIRMED_EACH = 2
"""So many of the first of each ranking are confirmed."""


def rank(
    run: Run,
    row: RankingRow,
    evaluator: Evaluator,
    sandbox: Sandbox,
    policy: EvaluatorPolicy,
) -> RankingRow:
    """Return ``row`` with the correct candidates of a finished run under both clocks.

    Raises:
        EvaluatorError: the machine, the sandbox or the reference fails.
    """
    screened = correct_candidates(run)
    naive, clock = _naive_us(run, list(screened), sandbox, policy)
    contenders = {
        i: Contender(candidate=i, naive_us=us, stable=screened[i][1]) for i, us in naive.items()
    }
    for candidate_id in to_confirm(list(contenders.values())):
        confirmed = evaluator.confirm(screened[candidate_id][0])
        contenders[candidate_id] = _judged(contenders[candidate_id], confirmed)
    return row.model_copy(update={"clock": clock, "contenders": tuple(contenders.values())})


def correct_candidates(run: Run) -> Mapping[str, tuple[Candidate, float]]:
    """Candidates whose work is their own, with the lower bound that the search ranks them by."""
    latest: dict[str, Evaluation] = {}
    for entry in run.log():
        kept = entry.kind in (EntryKind.EVALUATED, EntryKind.REMEASURED)
        if kept and entry.candidate_id and has_verdict(entry.evaluation):
            latest[entry.candidate_id] = entry.evaluation
    found = {}
    for candidate_id, evaluation in latest.items():
        speedup = evaluation.speedup(Baseline.EAGER)
        if speedup is not None and speedup.verdict is not Verdict.UNIMPROVED:
            found[candidate_id] = run.store.candidate(candidate_id), speedup.lower_99
    return found


def to_confirm(contenders: Sequence[Contender]) -> list[str]:
    """The first of each ranking, each once."""
    by_naive = sorted(contenders, key=lambda c: c.naive_us)[:CONFIRMED_EACH]
    by_ours = sorted(contenders, key=lambda c: -c.stable)[:CONFIRMED_EACH]
    return list(dict.fromkeys(c.candidate for c in (*by_naive, *by_ours)))


def _naive_us(
    run: Run, candidate_ids: Sequence[str], sandbox: Sandbox, policy: EvaluatorPolicy
) -> tuple[dict[str, float], str]:
    """One naive time per candidate, and the clock's name; whoever fails now is left out."""
    yardsticks = Yardsticks(run.loaded, sandbox, run.config.backend, policy)
    found: dict[str, float] = {}
    clock = ""
    try:
        for candidate_id in candidate_ids:
            candidate = run.store.candidate(candidate_id)
            logs = weights = 0.0
            try:
                for workload, times_us in yardsticks.times_us(candidate, CLOCKS):
                    [(clock, us)] = times_us.items()
                    logs += workload.weight * math.log(us)
                    weights += workload.weight
            except (Ended, RequestFailed, WorkerLost):
                continue
            found[candidate_id] = math.exp(logs / weights)
    finally:
        yardsticks.close()
    return found, clock


def _judged(contender: Contender, confirmed: Evaluation) -> Contender:
    speedup = confirmed.speedup(Baseline.EAGER)
    if confirmed.status is not Status.OK or speedup is None:
        return contender
    update = {"value": speedup.value, "low": speedup.low, "high": speedup.high}
    return contender.model_copy(update=update)
