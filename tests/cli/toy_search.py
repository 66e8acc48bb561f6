"""``ksmith optimize`` with the toy evaluator and proposers; run by path, to be interrupted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

import bot.pipeline
from cli.main import main
from cli.optimize import register
from evaluator.candidate import BackendName, Candidate
from evaluator.problem import LoadedProblem
from policies.model import EvaluatorPolicy
from tests.evolver.toys import Nudge, Seeds, ToyEvaluator

PAUSE_SECONDS = 0.0


@contextmanager
def toy_evaluator(
    loaded: LoadedProblem, backend: BackendName, policy: EvaluatorPolicy | None = None
) -> Iterator[ToyEvaluator]:
    def announce(candidate: Candidate) -> None:
        if PAUSE_SECONDS:
            print("screening", flush=True)

    yield ToyEvaluator(PAUSE_SECONDS, announce)


def toy_lineup(*speeds: float) -> bot.pipeline.Lineup:
    return bot.pipeline.Lineup(seeders=[Seeds(*speeds)], proposers=[Nudge()])


def make_app() -> typer.Typer:
    app = typer.Typer(pretty_exceptions_enable=False)
    register(app)
    app.command()(make_app)
    return app


if __name__ == "__main__":
    PAUSE_SECONDS = 0.05
    bot.pipeline.make_evaluator = toy_evaluator
    bot.pipeline.make_lineup = lambda: toy_lineup(1.2, 0.9)
    main()
