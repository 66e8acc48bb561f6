"""The prompt, after Kernel-Smith: one Jinja template each for system, user and repair.

The system prompt states the objective, the hardware as found, the criteria and the
constraints; the user prompt the reference, the top programs, previous attempts, the parent
with its feedback, and one of KernelZero's four heuristics as a hint. A prompt over the budget
loses what matters least first: what worked elsewhere, failed attempts, diverse programs, the
best ones, the log.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from evaluator.backends import language_of
from evolver.library.entry import Known
from evolver.proposers.base import Attempt, ProposalContext
from evolver.proposers.llm.endpoint import ExchangeFailed
from evolver.proposers.llm.feedback import Feedback, feedback_on, shown_workloads, signature_of
from evolver.proposers.llm.parsing import BLOCK_END, BLOCK_START
from evolver.proposers.llm.tokens import TokenCounter
from policies.model import EvaluatorPolicy

KNOWN_SHOWN = 3


class Hint(StrEnum):
    """KernelZero's heuristics (papers: arXiv 2609.33074), one per proposal."""

    TILING = "tiling"
    FUSION = "fusion"
    PIPELINE = "pipeline"
    REORDERING = "reordering"

    @property
    def text(self) -> str:
        """What the model is told."""
        return _HINTS[self]


_HINTS = {
    Hint.TILING: "Tiling: choose block shapes so that data is loaded once and reused from "
    "registers, shared memory or cache; match them to the extents and to the hardware.",
    Hint.FUSION: "Fusion: merge kernels and passes so that intermediate results never go through "
    "memory; compute what is cheap again rather than storing it.",
    Hint.PIPELINE: "Pipeline: overlap loads with arithmetic (software pipelining, stages, "
    "prefetching, several independent accumulators), and keep enough work in flight.",
    Hint.REORDERING: "Reordering: change the order of loops, of operations or of the data's "
    "traversal, so that accesses are contiguous and wide and reductions need fewer steps.",
}


class Form(StrEnum):
    """What is asked for."""

    FULL = "full"
    DIFF = "diff"


class PromptTooLong(ExchangeFailed):
    """The reference and the parent alone exceed the budget."""


@dataclass(frozen=True)
class Prompt:
    """What is sent first, and how much of it there is."""

    system: str
    user: str
    tokens: int
    left_out: tuple[str, ...]
    """What the budget had no room for."""

    @property
    def messages(self) -> list[dict[str, str]]:
        """The conversation's beginning."""
        return [
            {"role": "system", "content": self.system},
            {"role": "user", "content": self.user},
        ]


@dataclass(frozen=True)
class _Contents:
    """What is shown beside the reference: the least important first in each."""

    base: Feedback | None
    programs: tuple[Feedback, ...]
    """Slowest first: a model heeds what comes last."""
    diverse: tuple[Feedback, ...]
    failures: tuple[Feedback, ...]
    known: tuple[Known, ...]
    """The most telling first."""


def make_prompt(
    context: ProposalContext,
    base: Attempt | None,
    *,
    hardware: str,
    form: Form,
    hint: Hint,
    counter: TokenCounter,
    budget_tokens: int,
) -> Prompt:
    """Return the prompt for a child of ``base``, or for a first program, within the budget.

    Raises:
        PromptTooLong: what cannot be left out exceeds the budget.
    """
    task = _task(context)
    system = render("system", hardware=hardware, form=form, **task)
    contents = _contents(context, base)
    left_out: list[str] = []
    while True:
        user = render(
            "user", c=contents, form=form, hint=hint, start=BLOCK_START, end=BLOCK_END, **task
        )  # fmt: skip
        tokens = counter.count(system) + counter.count(user)
        if tokens <= budget_tokens:
            return Prompt(system, user, tokens, tuple(left_out))
        contents, what = _less(contents)
        if what is None:
            raise PromptTooLong(
                f"the reference and the parent take {tokens} tokens ({counter.method}), the "
                f"prompt may have {budget_tokens}; use a model with a longer context"
            )
        left_out.append(what)


def repair_message(fault: str, form: Form, entry: str) -> str:
    """Return the turn that says what is wrong with the last reply."""
    return render("repair", fault=fault, form=form, entry=entry)


def render(template: str, **values: Any) -> str:
    """Return the template ``<name>.md.j2`` with ``values``."""
    return _environment().get_template(f"{template}.md.j2").render(**values).strip() + "\n"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("evolver.proposers.llm"),
        autoescape=False,  # noqa: S701 - prompts are no HTML
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(fenced=fenced, argument=signature_of)
    return environment


def fenced(source: str, language: str = "python") -> str:
    """Return ``source`` as a Markdown block whose fence the source cannot close."""
    longest = max((len(run) for run in re.findall(r"`{3,}", source)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{source.rstrip()}\n{fence}"


def _task(context: ProposalContext) -> dict[str, Any]:
    problem = context.loaded.problem
    language = language_of(context.backend)
    return {
        "problem": problem,
        "workloads": shown_workloads(problem),
        "reference": context.loaded.reference_source,
        "backend": context.backend.value,
        "language": language.value,
        "native": language.native,
        "imports": _allowed_imports().get(language.value, ()),
    }


@cache
def _allowed_imports() -> dict[str, tuple[str, ...]]:
    return EvaluatorPolicy.default().source.python_imports


def _contents(context: ProposalContext, base: Attempt | None) -> _Contents:
    from evolver.selection import BEST_EXEMPLARS

    problem = context.loaded.problem
    apart = base.candidate.id if base is not None else None

    def shown(attempts: Sequence[Attempt]) -> tuple[Feedback, ...]:
        kept = [a for a in attempts if a.candidate.id != apart]
        return tuple(feedback_on(a, problem).without_log() for a in kept)

    exemplars = list(context.exemplars)
    return _Contents(
        base=feedback_on(base, problem) if base is not None else None,
        programs=shown(exemplars[:BEST_EXEMPLARS][::-1]),
        diverse=shown(exemplars[BEST_EXEMPLARS:]),
        failures=shown(context.failures),
        known=tuple(context.known[:KNOWN_SHOWN]),
    )


def _less(contents: _Contents) -> tuple[_Contents, str | None]:
    """Leave out what matters least, and say what; None where nothing can be."""
    c = contents
    if c.known:
        return replace(c, known=c.known[:-1]), "what worked elsewhere"
    if c.failures:
        return replace(c, failures=c.failures[1:]), "a failed attempt"
    if c.diverse:
        return replace(c, diverse=c.diverse[1:]), "a diverse program"
    if c.programs:
        return replace(c, programs=c.programs[1:]), "a top program"
    if c.base is not None and c.base.log:
        return replace(c, base=c.base.without_log()), "the parent's log"
    return c, None
