"""The ``synth`` proposers: our own lowering of a reference to fused kernels; need no model.

A reference is traced to an ATen graph in the sandbox (``aten.py``), lowered to row programs
(``lowering/``, ``ir.py``), planned by a genome (``genome.py``, ``plan.py``) that says which nodes
share a kernel, which algorithm each operation takes and how it is launched, and written
(``emit/``); source is a pure function of programs and genome. ``SynthSeeder`` offers the first
guesses, ``SynthProposer`` changes and crosses genomes that the archive likes.

A candidate's genome stands in its ``description``, as JSON after a few words on what is new. The
source has no trace of it: it goes to other people's repositories, where a line for our own use
has no place, and an edit of the source by another proposer is a candidate of that proposer's,
whose genome is rightly unknown. Descriptions are kept in ``run.db``, so a resumed run knows them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from evaluator.backends import Language, language_of
from evaluator.candidate import BackendName, Candidate
from evaluator.problem import LoadedProblem
from evaluator.sandbox import Sandbox
from evolver.proposers.base import ProposalContext
from evolver.proposers.synth import ir
from evolver.proposers.synth.aten import TraceFailed
from evolver.proposers.synth.emit import EMITTERS, EmitError, emit
from evolver.proposers.synth.genome import Genes, Genome
from evolver.proposers.synth.guesses import first_guesses
from evolver.proposers.synth.lowering import Lowered, lower_problem
from evolver.proposers.synth.plan import PlanError, plan
from evolver.proposers.synth.variation import cross, mutate

NAME = "synth"
GENOME_MARK = "; genome "
CROSSOVER_PROBABILITY = 0.2
"""How often a mate is asked first, where there is one."""
ATTEMPTS = 8
"""Children drawn until one can be written."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Lowering:
    """A problem's row programs for one backend, with what they serve."""

    loaded: LoadedProblem
    backend: BackendName
    groups: tuple[Lowered, ...]

    @property
    def programs(self) -> tuple[ir.Program, ...]:
        """One per group of workloads."""
        return tuple(g.program for g in self.groups if g.program is not None)

    @property
    def on_gpu(self) -> bool:
        """Whether warps and launches mean anything."""
        return language_of(self.backend) is not Language.CPP

    def write(self, genome: Genome) -> str:
        """Return the source that ``genome`` stands for.

        Raises:
            PlanError: the genome is none of these programs'.
            EmitError: the backend's emitter cannot write it.
        """
        if len(genome.programs) != len(self.programs):
            raise PlanError("the genome is of another problem")
        plans = [
            (group.graph.group, plan(program, genes))
            for group, program, genes in zip(
                self.groups, self.programs, genome.programs, strict=True
            )
        ]
        return emit(self.loaded, plans, self.backend)


class Lowerings:
    """Lowers each problem once; what cannot be lowered is None, and the reason is kept."""

    def __init__(self, sandbox: Sandbox | None = None) -> None:
        self._sandbox = sandbox
        self._known: dict[tuple[str, BackendName], Lowering | None] = {}
        self.failures: list[str] = []
        """Why problems have no programs; for the run's log."""

    def of(self, context: ProposalContext) -> Lowering | None:
        """Return the context's programs.

        Raises:
            SandboxUnavailable: nothing can be isolated here.
        """
        key = (context.loaded.problem.reference_sha256, context.backend)
        if key not in self._known:
            self._known[key] = self._lowered(context.loaded, context.backend)
        return self._known[key]

    def _lowered(self, loaded: LoadedProblem, backend: BackendName) -> Lowering | None:
        if backend not in EMITTERS:
            return None
        try:
            groups = lower_problem(loaded, backend, self._sandbox)
        except TraceFailed as error:
            self._failed(str(error))
            return None
        refusals = [str(r) for group in groups for r in group.refusals]
        if refusals:
            self._failed("; ".join(refusals[:5]))
            return None
        return Lowering(loaded, backend, groups)

    def _failed(self, reason: str) -> None:
        log.info("synth: %s", reason)
        self.failures.append(reason)


class SynthSeeder:
    """Offers the first guesses one by one; parents and feedback are not looked at."""

    name = NAME

    def __init__(self, lowerings: Lowerings) -> None:
        self._lowerings = lowerings
        self._waiting: dict[tuple[str, BackendName], list[Genome]] = {}

    def propose(self, context: ProposalContext) -> Candidate | None:
        """Return the next first guess that can be written, None after the last."""
        lowering = self._lowerings.of(context)
        if lowering is None:
            return None
        key = (context.loaded.problem.reference_sha256, context.backend)
        if key not in self._waiting:
            self._waiting[key] = first_genomes(lowering)
        while self._waiting[key]:
            genome = self._waiting[key].pop(0)
            candidate = _candidate(lowering, genome, "first guess", ())
            if candidate is not None:
                return candidate
        return None


class SynthProposer:
    """Changes the parent's genome, or one of the exemplars', or crosses two."""

    name = NAME

    def __init__(self, lowerings: Lowerings) -> None:
        self._lowerings = lowerings

    def propose(self, context: ProposalContext) -> Candidate | None:
        """Return a child of a genome, None where there is no program or nothing new is found."""
        lowering = self._lowerings.of(context)
        if lowering is None or not lowering.programs:
            return None
        known = _relatives(context, lowering)
        for _ in range(ATTEMPTS):
            child = _child(lowering, known, context)
            if child is not None and child.id not in child.parents:
                return child
        return None


def first_genomes(lowering: Lowering) -> list[Genome]:
    """Return the first guesses of all programs together, the most promising first."""
    guesses = [first_guesses(p, on_gpu=lowering.on_gpu) for p in lowering.programs]
    if not all(guesses):
        return []
    longest = max(map(len, guesses))
    rows = [tuple(g[min(i, len(g) - 1)] for g in guesses) for i in range(longest)]
    return [Genome(programs=row) for row in dict.fromkeys(rows)]


def genome_of(candidate: Candidate) -> Genome | None:
    """Return the genome that a candidate of ours was written from, None where it is another's."""
    if candidate.proposer != NAME or GENOME_MARK not in candidate.description:
        return None
    text = candidate.description.partition(GENOME_MARK)[2]
    try:
        return Genome.model_validate_json(text)
    except ValidationError:
        return None


def _relatives(
    context: ProposalContext, lowering: Lowering
) -> list[tuple[Candidate | None, Genome]]:
    """The genomes at hand, the parent's first; the first guesses where there is none."""
    attempts = [*([context.parent] if context.parent else []), *context.exemplars]
    found: dict[str, tuple[Candidate | None, Genome]] = {}
    for attempt in attempts:
        genome = genome_of(attempt.candidate)
        if genome is not None and len(genome.programs) == len(lowering.programs):
            found[attempt.candidate.id] = (attempt.candidate, genome)
    return list(found.values()) or [(None, genome) for genome in first_genomes(lowering)]


def _child(
    lowering: Lowering,
    known: Sequence[tuple[Candidate | None, Genome]],
    context: ProposalContext,
) -> Candidate | None:
    if not known:
        return None
    rng, on_gpu = context.rng, lowering.on_gpu
    (parent, genome), *mates = known
    # Workloads of one kind are most often all there are; else one program is changed at a time.
    number = rng.randrange(len(lowering.programs))
    program, genes = lowering.programs[number], genome.programs[number]
    change, mate = None, None
    if mates and rng.random() < CROSSOVER_PROBABILITY:
        mate, other = rng.choice(mates)
        change = cross(program, genes, other.programs[number], rng, on_gpu=on_gpu)
    if change is None:
        mate = None
        change = mutate(program, genes, rng, on_gpu=on_gpu)
    if change is None:
        return None
    parents = tuple(c.id for c in (parent, mate) if c is not None)
    return _candidate(lowering, _with(genome, number, change.genes), change.description, parents)


def _with(genome: Genome, number: int, genes: Genes) -> Genome:
    programs = list(genome.programs)
    programs[number] = genes
    return Genome(programs=tuple(programs))


def _candidate(
    lowering: Lowering, genome: Genome, description: str, parents: tuple[str, ...]
) -> Candidate | None:
    try:
        source = lowering.write(genome)
        return Candidate.create(
            source,
            backend=lowering.backend,
            proposer=NAME,
            parents=parents,
            description=f"{description}{GENOME_MARK}{genome.model_dump_json(exclude_defaults=True)}",
        )
    except (EmitError, PlanError, SyntaxError) as error:
        log.debug("synth: %s: %s", description, error)
        return None
