"""A search to be killed: ``python -P -m benchmarks.search.subject RUN SEED STEPS``.

Problem, proposer, archive, log and resumption are the real ones, on the C++ backend; only the
judge is made up, since what a kill may change must not depend on any clock: a candidate's
speedup is drawn from its id. Each evaluation says its candidate's id on stdout as it begins.
"""

from __future__ import annotations

import random
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.search.made_up import made_up_evaluation
from benchmarks.search.problems import own_problem
from evaluator.candidate import BackendName, Candidate
from evaluator.evaluation import Evaluation
from evaluator.problem import Problem
from evolver.budget import Budget
from evolver.proposers.base import ProposalContext
from evolver.proposers.mutate import MutateProposer
from evolver.run import Run, RunConfig, problem_sha256
from evolver.search import Search

NAME = "swiglu"
_SEED = '''import torch

SOURCE = r"""
#include <cmath>
#include <cstdint>

extern "C" void swiglu_rows(const float* x, float* out, int64_t rows, int64_t width) {
#pragma omp parallel for
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < width; ++j) {
      const float gate = x[i * 2 * width + j];
      const float up = x[i * 2 * width + width + j];
      out[i * width + j] = gate / (1.0f + std::exp(-gate)) * up;
    }
  }
}
"""
SIGNATURES = {"swiglu_rows": ("const float*", "float*", "int64_t", "int64_t")}


def swiglu(x):
    out = torch.empty(x.shape[0], x.shape[1] // 2)
    native.swiglu_rows(x, out, x.shape[0], x.shape[1] // 2)
    return out
'''
_PAUSE_SECONDS = 0.004
"""Of an evaluation, so that a kill may hit one."""
_FAILING_SHARE = 0.2


class Seed:
    """Offers the one candidate that the search begins with."""

    name = "seed"

    def propose(self, context: ProposalContext) -> Candidate | None:
        """Return it; known ones are the search's to pass over, so it is offered once a session."""
        if context.exemplars:
            return None
        return Candidate.create(_SEED, backend=BackendName.CPP, proposer=self.name)


class MadeUpEvaluator:
    """Judges by the candidate's id alone."""

    lanes = 1

    def __init__(self, problem: Problem) -> None:
        """Judge candidates of ``problem``."""
        self._problem = problem

    def screen(self, candidate: Candidate, *, incumbent_us: float | None = None) -> Evaluation:  # noqa: ARG002
        """Say that it begins, wait a little, and judge."""
        print(candidate.id, flush=True)
        time.sleep(_PAUSE_SECONDS)
        return self._judge(candidate, confirmed=False)

    def confirm(self, candidate: Candidate) -> Evaluation:
        """Judge likewise; a confirmation upholds what was screened."""
        print(candidate.id, flush=True)
        time.sleep(_PAUSE_SECONDS)
        return self._judge(candidate, confirmed=True)

    def _judge(self, candidate: Candidate, *, confirmed: bool) -> Evaluation:
        rng = random.Random(candidate.id)  # noqa: S311 - made up, not a secret
        fails = rng.random() < _FAILING_SHARE and candidate.proposer != Seed.name
        return made_up_evaluation(
            candidate.id,
            None if fails else rng.uniform(0.8, 1.6),
            problem_id=self._problem.id,
            backend=candidate.backend,
            workloads=[w.name for w in self._problem.workloads],
            confirmed=confirmed,
        )


def main(path: Path, seed: int, steps: int) -> None:
    """Search in ``path``, from where it is."""
    loaded = own_problem(NAME, gpu=False)
    config = RunConfig(
        problem_id=loaded.problem.id,
        problem_sha256=problem_sha256(loaded),
        backend=BackendName.CPP,
        seed=seed,
        steps=steps,
        versions={},
        created_at=datetime.now(UTC),
    )
    run = Run.resume(path) if path.exists() else Run.create(path, loaded, config)
    with run:
        Search(
            run,
            MadeUpEvaluator(loaded.problem),
            seeders=[Seed()],
            proposers=[MutateProposer()],
            budget=Budget(steps=steps),
        ).search()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
