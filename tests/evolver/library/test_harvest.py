"""What a run adds to the library: steps that a second measurement upheld, and no others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from evaluator.candidate import Candidate
from evaluator.evaluation import Evaluation
from evolver.library.entry import LONGEST_DIFF_CHARACTERS
from evolver.library.harvest import device_of, diff_of, entries_of, keep_what_worked
from evolver.library.store import Library
from evolver.proposers.base import ProposalContext
from evolver.run import Run
from tests.builders import make_environment, make_evaluation
from tests.evolver.toys import ToyEvaluator, make_run, make_search, speed_of, toy_candidate


class Steps:
    """Children of the parent at given speeds, as the named proposer would describe them."""

    def __init__(self, name: str, description: str, *speeds: float) -> None:
        self.name = name
        self._description = description
        self._left = list(speeds)

    def propose(self, context: ProposalContext) -> Candidate | None:
        if not self._left or context.parent is None:
            return None
        parent = context.parent.candidate
        return toy_candidate(
            self._left.pop(0),
            proposer=self.name,
            parents=(parent.id,),
            description=self._description,
        )


def run_steps(folder: Path, *proposers: Any, evaluator: ToyEvaluator | None = None) -> Run:
    run = make_run(folder / "run")
    make_search(run, evaluator, seeds=(1.0,), proposers=proposers).search()
    return run


def changes_in(run: Run) -> Sequence[tuple[float, tuple[str, ...], str]]:
    return [(e.gain.value, e.change.operators, e.gain.upheld_by) for e in entries_of(run)]


def test_a_gain_that_was_upheld_is_kept_with_its_operators(tmp_path: Path) -> None:
    steps = Steps("mutate", "tile: BLOCK 64 to 128; fuse: a and b", 1.5)
    with run_steps(tmp_path, steps) as run:
        (entry,) = entries_of(run)
    assert entry.gain.value == pytest.approx(1.5)
    assert entry.gain.low < 1.5 < entry.gain.high
    assert (entry.gain.upheld_by, entry.change.operators) == ("confirmed", ("tile", "fuse"))
    assert "-SPEED = 1.0\n+SPEED = 1.5" in entry.change.diff
    assert (entry.origin.problem_id, entry.features.device) == ("rms_norm", "cpu")


def test_what_a_screening_alone_saw_or_a_confirmation_refused_is_not_kept(tmp_path: Path) -> None:
    class Lucky(ToyEvaluator):
        """Sees the speed 1.9 once."""

        def screen(self, candidate: Candidate, *, incumbent_us: float | None = None) -> Evaluation:
            seen = candidate.id in self.screened
            found = super().screen(candidate, incumbent_us=incumbent_us)
            if speed_of(candidate) == 1.9 and seen:
                return make_evaluation(candidate, speedup=1.0)
            return found

    evaluator = Lucky()
    refused = toy_candidate(1.7)
    evaluator.refuses.add(refused.id)
    steps = Steps("mutate", "tile: x", 1.9, 1.7, 1.002)
    with run_steps(tmp_path, steps, evaluator=evaluator) as run:
        assert entries_of(run) == []


def test_a_models_plan_is_kept_with_what_it_led_to(tmp_path: Path) -> None:
    with run_steps(tmp_path, Steps("llm", "Fuse.", 1.5)) as run:
        made = toy_candidate(1.5, proposer="llm")
        outcome = {"schema_version": 1, "kind": "outcome", "candidate_id": made.id}
        (run.path / "llm.jsonl").write_text(json.dumps({**outcome, "plan": "Fuse. " * 500}))
        (entry,) = entries_of(run)
    assert entry.change.plan.startswith("Fuse. Fuse.")
    assert (entry.change.proposer, entry.change.operators) == ("llm", ())


def test_reading_a_run_twice_keeps_it_once(tmp_path: Path) -> None:
    library = Library(tmp_path / "library.db")
    with run_steps(tmp_path, Steps("mutate", "tile: x", 1.5)) as run:
        assert keep_what_worked(run, library) == 1
        assert keep_what_worked(run, library) == 0


def test_a_library_that_cannot_be_written_costs_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("no folder")
    with run_steps(tmp_path, Steps("mutate", "tile: x", 1.5)) as run:
        assert keep_what_worked(run, Library(tmp_path / "file" / "library.db")) == 0
    assert "is not kept there" in caplog.text


def test_a_long_diff_is_cut() -> None:
    before = "\n".join(f"a{n} = {n}" for n in range(2000))
    assert len(diff_of(before, before.replace("a", "b"))) == LONGEST_DIFF_CHARACTERS


@pytest.mark.parametrize(
    ("device", "name"),
    [("cpu", "cpu"), ("cuda:0 (NVIDIA H200)", "NVIDIA H200"), ("cuda:1", "cuda")],
)
def test_a_device_is_known_by_its_name(device: str, name: str) -> None:
    evaluation = make_evaluation(environment=make_environment(device=device))
    assert device_of(evaluation) == name
