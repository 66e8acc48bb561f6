"""A search in which a model proposes: its improvement wins, and its faults cost their attempt."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from evaluator.candidate import Candidate
from evaluator.evaluation import Evaluation, Status
from evaluator.source_policy import check_source
from evolver.budget import Budget
from evolver.proposers.base import Proposer
from evolver.run import Run
from evolver.store import EntryKind
from evolver.summary import Outcome, Summary
from policies.model import EvaluatorPolicy
from tests.builders import make_evaluation
from tests.evolver.proposers.llm.server import (
    BODY,
    cut,
    full,
    make_context,
    make_proposer,
    program,
    raw,
    refuse,
    say,
    scripted_server,
    stall,
)
from tests.evolver.toys import ToyEvaluator, make_run, make_search, speed_of

REWRITES_THE_REFERENCE = (
    f"SPEED = 99.0\nimport sys\nsys.modules['reference'].rms_norm = lambda *a: a\n{BODY}"
)


class PolicedEvaluator(ToyEvaluator):
    """The toy, behind the real source policy."""

    def screen(self, candidate: Candidate, *, incumbent_us: float | None = None) -> Evaluation:
        policy = EvaluatorPolicy.default().source
        broken = check_source(candidate, entry_function="rms_norm", policy=policy)
        if speed_of(candidate) > 50 and any(v.refuses for v in broken):
            self.screened.append(candidate.id)
            return make_evaluation(candidate, status=Status.POLICY_VIOLATION)
        return super().screen(candidate, incumbent_us=incumbent_us)


def test_a_models_improvement_wins_and_its_faults_cost_their_attempt(tmp_path: Path) -> None:
    steps = [
        raw(b"<html>Log in</html>"),
        say(full(program(1.3))),
        refuse(503),
        cut("<plan>"),
        say(""),
        say(full("SPEED = \0")),
        say(full(REWRITES_THE_REFERENCE)),
        say("word " * 200_000),
        say("I refuse."),
        say(full(program(1.9)), finish="length"),
        say(full(program(1.9), plan="Keep the row in registers.")),
        say(full(program(1.9))),
    ]
    evaluator = PolicedEvaluator()
    with make_run(tmp_path / "run") as run, scripted_server(*steps) as server:
        proposer = make_proposer(server, run.path)
        summary = make_search(run, evaluator, proposers=[proposer], steps=6).search()
    assert summary.outcome is Outcome.FASTER
    assert summary.speedups[0].value == 1.9
    assert summary.counts[Status.POLICY_VIOLATION] == 1
    with Run.open(tmp_path / "run") as run:
        log = list(run.log())
        best = run.best()
        assert best is not None
    kinds = [entry.kind for entry in log if entry.proposer == "llm"]
    again = [entry.candidate_id for entry in log if entry.kind is EntryKind.REMEASURED]
    assert Counter(evaluator.screened) == Counter([*set(evaluator.screened), *again])
    assert kinds.count(EntryKind.BROKEN) == 3  # the web page; two that the repair did not mend
    assert kinds.count(EntryKind.EVALUATED) == 3
    assert best.candidate.description == "Keep the row in registers."


GARBAGE = [
    raw(b"<html>Log in</html>"),
    say("<think>" + "hm " * 3000),
    say(""),
    say(full("SPEED = 9.0\0\n")),
    say(full(REWRITES_THE_REFERENCE)),
    say("word " * 200_000),
    say(full(program(9.0)), finish="length"),
    raw(b'{"generated_text": "SPEED = 9.0"}', kind="application/json"),
    say("```python\nSPEED = 9.0\n```\nand\n```python\nimport os\n```\n"),
    say(full(program(-1.0))),
    cut("<plan>"),
    refuse(503),
]


def test_garbage_never_harms_a_run(tmp_path: Path) -> None:
    """With a model that says nothing of use, a run ends with the same winner as without it."""

    def run_with(*models: Proposer) -> Summary:
        with make_run(tmp_path / f"run-{len(models)}") as run:
            search = make_search(run, PolicedEvaluator(), seeds=(0.8, 1.9, 1.1), proposers=models)
            return search.search()

    with scripted_server(*GARBAGE) as server:
        found = run_with(make_proposer(server, tmp_path))
        assert len(server.requests) >= len(GARBAGE)
    alone = run_with()
    assert (found.outcome, alone.outcome) == (Outcome.FASTER, Outcome.FASTER)
    assert (found.best_candidate_id, found.speedups) == (alone.best_candidate_id, alone.speedups)


def test_a_dead_endpoint_rests_and_the_others_go_on(tmp_path: Path) -> None:
    from tests.evolver.toys import Nudge

    with make_run(tmp_path / "run") as run:
        with scripted_server(refuse(500)) as server:
            proposer = make_proposer(server, run.path)
        summary = make_search(run, proposers=[proposer, Nudge()], steps=30).search()
        broken = [e for e in run.log() if e.kind is EntryKind.BROKEN]
    assert summary.evaluated == 30
    assert 1 <= len(broken) <= 8
    assert "no connection" in broken[0].detail


def test_what_a_killed_session_had_asked_is_in_the_runs_costs(tmp_path: Path) -> None:
    with make_run(tmp_path / "run") as run, scripted_server(say(full(program(1.9)))) as server:
        make_proposer(server, run.path).propose(make_context())  # and then it was killed
        for steps in (0, 6):
            proposer = make_proposer(server, run.path)
            summary = make_search(run, proposers=[proposer], steps=steps).search()
            assert proposer.spending.tokens == summary.costs.total.tokens > 0


def test_what_a_model_has_begun_when_time_is_up_is_in_the_runs_costs(tmp_path: Path) -> None:
    with make_run(tmp_path / "run") as run, scripted_server(stall) as server:
        proposer = make_proposer(server, run.path)

        def late() -> float:
            return 100.0 if server.requests else 0.0

        budget = Budget(minutes=1.0)
        search = make_search(
            run, ToyEvaluator(lanes=2), proposers=[proposer], budget=budget, clock=late
        )
        summary = search.search()
        abandoned = [e for e in run.log() if e.kind is EntryKind.ABANDONED]
    assert 0 < len(server.requests) <= len(abandoned)  # nobody waited for the stalled replies
    assert proposer.spending.tokens == summary.costs.total.tokens > 0
