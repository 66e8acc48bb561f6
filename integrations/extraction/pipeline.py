"""From ``path::qualname`` to a problem's directory: the steps of extraction, in order."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from evaluator.correctness.intake import inspect_reference
from evaluator.problem import Assumption, Entry, Origin, Problem, sha256_text
from evaluator.records import complaint
from evaluator.sandbox import Sandbox
from integrations.errors import Refused, TargetError, WorkloadsError
from integrations.extraction.closure import Closure, close_over
from integrations.extraction.contract import build_contract
from integrations.extraction.folding import SOME_TENSOR
from integrations.extraction.hints import call_arguments, hints_for, literal_defaults
from integrations.extraction.machines import Machine
from integrations.extraction.provenance import find_origin
from integrations.extraction.reference import reference_source
from integrations.extraction.refusals import certain, find_refusals
from integrations.extraction.resolution import Resolver
from integrations.extraction.selections import output_tags
from integrations.extraction.source import SourceTree
from integrations.extraction.target import Target, find_target
from integrations.extraction.template import ask_for_workloads
from integrations.extraction.writing import check_destination, write_problem
from integrations.workloads import (
    UserWorkloads,
    common_scalars,
    expand,
    read_workloads,
    tensor_names,
)


@dataclass(frozen=True)
class Extracted:
    """A target turned into source, before any workload."""

    target: Target
    origin: Origin
    closure: Closure
    source: str
    arguments: tuple[str, ...]
    state: tuple[str, ...]

    @property
    def entry(self) -> Entry:
        """What to call in the reference and in a candidate."""
        function = self.closure.entry.name
        owner = self.closure.owner
        if owner is None:
            return Entry(function=function, candidate_function=function)
        name = f"{snake_case(owner.name)}_{function}"
        return Entry(function=function, class_name=owner.name, candidate_function=name)

    @property
    def assumptions(self) -> list[Assumption]:
        """What was dropped, folded or assumed, definition by definition."""
        return [a for piece in self.closure.everything for a in piece.edits.assumptions]


def extract(
    target: str,
    repo: Path,
    output: Path,
    *,
    workloads: Path | None = None,
    machine: Machine = Machine.CUDA,
    force: bool = False,
    sandbox: Sandbox | None = None,
) -> Problem:
    """Extract ``target`` from ``repo`` into the problem directory ``output``.

    Args:
        target: ``path::function``, ``path::Class.method``, or ``path::Class`` for its forward.
        repo: the repository's root; nothing in it is imported or changed.
        output: the problem's directory; written whole or not at all.
        workloads: the user's workloads file.
        machine: what platform questions are answered for.
        force: replace a problem that lies at ``output``.
        sandbox: where the reference is run to find its contract; by default the machine's own.

    Raises:
        IntegrationError: see ``integrations.errors``.
        WorkloadsNeeded: no workloads were given; a template was written.
        ReferenceFailed: the reference cannot run a workload.
        SandboxUnavailable: nothing is run without a sandbox.
    """
    output = output.absolute()
    check_destination(output, force=force)
    user = read_workloads(workloads) if workloads is not None else None
    root, resolver, found = _open_target(target, repo, machine)
    if user is None:
        plain = _close(found, resolver, {})
        _refuse_hopeless(found, plain)
        hints = hints_for(found, resolver, plain.state)
        raise ask_for_workloads(found.spelled, hints, output, root)

    plain = _close(found, resolver, {})
    hints = hints_for(found, resolver, plain.state)
    defaults = literal_defaults(hints)
    known = known_scalars(user, defaults, plain.state)
    extracted = _extract_source(found, resolver, plain, known, find_origin(root, found))
    parameters = extracted.arguments + extracted.state
    everything = frozenset([*(h.name for h in hints), *plain.state])
    expanded = expand(user, parameters, defaults, ignorable=everything)
    facts = inspect_reference(
        extracted.source,
        extracted.entry,
        extracted.arguments,
        extracted.state,
        expanded,
        sandbox=sandbox,
    )
    if not facts.deterministic:
        raise Refused(found.spelled, ("two calls on the same input differ",))
    # Branches that the scalars decide are left out of this look, though kept in the reference.
    tags = output_tags(_close(found, resolver, known))
    contract, assumed = build_contract(facts, tags, user.contract)
    try:
        problem = Problem(
            id=problem_id(found.spelled),
            origin=extracted.origin,
            entry=extracted.entry,
            arguments=extracted.arguments,
            state=extracted.state,
            contract=contract,
            workloads=expanded,
            tolerance=user.tolerance,
            regime=user.regime,
            assumptions=(*extracted.assumptions, *assumed),
            upstream_compiled=extracted.closure.entry.edits.compiled,
            reference_sha256=sha256_text(extracted.source),
        )
    except ValidationError as error:  # what the user's file says of workloads and contract
        raise WorkloadsError(f"{workloads} contradicts itself: {complaint(error)}") from error
    write_problem(output, problem, extracted.source)
    return problem


def extract_source(
    target: str, repo: Path, *, machine: Machine = Machine.CUDA, known: Mapping[str, object] = {}
) -> Extracted:
    """Do the static part alone: no workloads, nothing run, nothing written.

    ``known`` holds scalars by argument (``top_k``) and by attribute (``self.top_k``).

    Raises:
        IntegrationError: the target cannot be found, or not faithfully extracted.
    """
    root, resolver, found = _open_target(target, repo, machine)
    plain = _close(found, resolver, {})
    return _extract_source(found, resolver, plain, known, find_origin(root, found))


def known_scalars(
    user: UserWorkloads, defaults: Mapping[str, object], state: list[str]
) -> dict[str, object]:
    """Return what every workload agrees on, attributes as ``self.name``."""
    known = {**common_scalars(user, defaults), **dict.fromkeys(tensor_names(user), SOME_TENSOR)}
    return {f"self.{n}" if n in state else n: value for n, value in known.items()}


def snake_case(name: str) -> str:
    """Return ``default_router_noaux_tc_impl`` for ``DefaultRouterNoauxTCImpl``."""
    spaced = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    return re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", spaced).lower().strip("_")


def problem_id(target: str) -> str:
    """Return an identifier for a target: its file's stem and its qualified name."""
    path, _, qualname = target.partition("::")
    return re.sub(r"[^A-Za-z0-9_.-]", "_", f"{Path(path).stem}.{qualname}")[-120:]


def _open_target(target: str, repo: Path, machine: Machine) -> tuple[Path, Resolver, Target]:
    root = repo.resolve()
    if not root.is_dir():
        raise TargetError(f"{repo} is not a folder; --repo names the repository's root")
    tree = SourceTree(root)
    resolver = Resolver(tree, machine)
    return root, resolver, find_target(tree, resolver, target)


def _close(target: Target, resolver: Resolver, known: Mapping[str, object]) -> Closure:
    return close_over(target, resolver, known)


def _extract_source(
    target: Target,
    resolver: Resolver,
    plain: Closure,
    known: Mapping[str, object],
    origin: Origin,
) -> Extracted:
    """Choose between the whole function and the one specialised to the workloads' scalars.

    The whole function is kept where it can be; branches are left out only where what is in
    them would forbid the extraction.
    """
    closure, reasons = plain, find_refusals(plain)
    if reasons and known:
        closure = _close(target, resolver, known)
        reasons = find_refusals(closure)
    if reasons:
        raise Refused(target.spelled, tuple(reasons))
    arguments = tuple(a.arg for a in call_arguments(target))
    state = tuple(closure.state)
    shared = set(arguments) & set(state)
    if shared:
        reason = f"an argument and an attribute of self share the name {', '.join(sorted(shared))}"
        raise Refused(target.spelled, (reason,))
    source = reference_source(closure, origin)
    return Extracted(target, origin, closure, source, arguments, state)


def _refuse_hopeless(target: Target, plain: Closure) -> None:
    """Refuse what no workloads can save before the user is asked to write any."""
    reasons = certain(find_refusals(plain), plain)
    if reasons:
        raise Refused(target.spelled, tuple(reasons))
