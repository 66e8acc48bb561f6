"""From ``path::qualname`` to a problem's directory: the steps of extraction, in order."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import JsonValue, ValidationError

from evaluator.correctness.intake import inspect_reference
from evaluator.problem import Assumption, Entry, Origin, Problem, sha256_text
from evaluator.records import complaint
from evaluator.sandbox import Sandbox
from integrations.errors import Refused, TargetError, WorkloadsError
from integrations.extraction.closure import TOO_DEEP, Closure, close_over
from integrations.extraction.construction import (
    constructed_state,
    constructor_hints,
    constructor_values,
    has_own_constructor,
)
from integrations.extraction.contract import build_contract, unlike_code
from integrations.extraction.folding import SOME_TENSOR
from integrations.extraction.hints import call_arguments, hints_for, literal_defaults
from integrations.extraction.machines import Machine
from integrations.extraction.provenance import find_origin
from integrations.extraction.reference import Adapter, reference_source
from integrations.extraction.refusals import certain, find_refusals
from integrations.extraction.resolution import Resolver
from integrations.extraction.selections import output_tags
from integrations.extraction.source import SourceTree
from integrations.extraction.target import Target, find_target
from integrations.extraction.template import ask_for_workloads
from integrations.extraction.writes import written_arguments
from integrations.extraction.writing import check_destination, write_problem
from integrations.workloads import (
    UserWorkloads,
    common_scalars,
    expand,
    read_workloads,
    tensor_names,
    without_lists,
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
    adapter: Adapter
    constructor: tuple[JsonValue, ...] | None = None

    @property
    def entry(self) -> Entry:
        """What to call in the reference and in a candidate."""
        function = self.adapter.name(self.closure.entry.name)
        owner, constructed = self.closure.owner, self.closure.constructed
        if constructed is not None:
            return Entry(
                function=function,
                class_name=constructed,
                candidate_function=f"{constructed}New",
                constructor=self.constructor,
            )
        if owner is None:
            return Entry(function=function, candidate_function=function)
        name = f"{snake_case(owner.name)}_{function}"
        return Entry(function=function, class_name=owner.name, candidate_function=name)

    @property
    def assumptions(self) -> list[Assumption]:
        """What was dropped, folded or assumed, definition by definition."""
        pieces = [a for piece in self.closure.everything for a in piece.edits.assumptions]
        for name, length in self.adapter.lists.items():
            detail = f"{name} is a list of {length} tensors, which come as {name}_0 and so on"
            pieces.append(Assumption(kind="list", detail=detail))
        return pieces


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
    given = read_workloads(workloads) if workloads is not None else None
    root, resolver, found = _open_target(target, repo, machine)
    plain = close_over(found, resolver, {})
    if given is None:
        construct = plain.needs_constructor and has_own_constructor(found)
        if construct:
            plain = close_over(found, resolver, {}, constructed=True)
        _refuse_hopeless(found, plain)
        hints = hints_for(found, resolver, plain.state)
        constructor = constructor_hints(found) if construct else None
        raise ask_for_workloads(found.spelled, hints, output, root, constructor)

    user, lists = without_lists(given)
    is_constructed = user.constructor is not None
    if is_constructed:
        plain = close_over(found, resolver, {}, constructed=True)
    hints = hints_for(found, resolver, plain.state)
    defaults = literal_defaults(hints)
    known = known_scalars(user, defaults, plain.state)
    extracted = _extract_source(
        found, resolver, plain, known, find_origin(root, found), lists=lists
    )
    if user.constructor is not None:
        extracted, user = _with_constructed_state(extracted, user, user.constructor, sandbox)
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
    looked_at = close_over(found, resolver, known, constructed=is_constructed)
    tags = output_tags(looked_at)
    contract, assumed = build_contract(facts, tags, user.contract)
    assumed += unlike_code(contract.writes, written_arguments(looked_at), extracted.arguments)
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
    target: str,
    repo: Path,
    *,
    machine: Machine = Machine.CUDA,
    known: Mapping[str, object] = {},
    constructed: bool = False,
) -> Extracted:
    """Do the static part alone: no workloads, nothing run, nothing written.

    ``known`` holds scalars by argument (``top_k``) and by attribute (``self.top_k``);
    ``constructed`` keeps the class, as a ``constructor:`` in the workloads does.

    Raises:
        IntegrationError: the target cannot be found, or not faithfully extracted.
    """
    root, resolver, found = _open_target(target, repo, machine)
    plain = close_over(found, resolver, {}, constructed=constructed)
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


def _extract_source(
    target: Target,
    resolver: Resolver,
    plain: Closure,
    known: Mapping[str, object],
    origin: Origin,
    *,
    lists: Mapping[str, int] = {},
) -> Extracted:
    """Choose between the whole function and the one specialised to the workloads' scalars.

    The whole function is kept where it can be; branches are left out only where what is in
    them would forbid the extraction.
    """
    try:
        return _faithful(target, resolver, plain, known, origin, lists)
    except RecursionError as error:
        raise Refused(target.spelled, (TOO_DEEP,)) from error


def _faithful(
    target: Target,
    resolver: Resolver,
    plain: Closure,
    known: Mapping[str, object],
    origin: Origin,
    lists: Mapping[str, int],
) -> Extracted:
    closure, reasons = plain, find_refusals(plain)
    if reasons and known:
        closure = close_over(target, resolver, known, constructed=plain.constructed is not None)
        reasons = find_refusals(closure)
    if reasons:
        raise Refused(target.spelled, tuple(reasons))
    names = tuple(a.arg for a in call_arguments(target))
    adapter = Adapter(names, lists)
    arguments, state = adapter.parameters, tuple(closure.state)
    shared = set(arguments) & set(state)
    if shared:
        reason = f"an argument and an attribute of self share the name {', '.join(sorted(shared))}"
        raise Refused(target.spelled, (reason,))
    source = reference_source(closure, origin, adapter)
    return Extracted(target, origin, closure, source, arguments, state, adapter)


def _with_constructed_state(
    extracted: Extracted,
    user: UserWorkloads,
    given: Mapping[str, JsonValue],
    sandbox: Sandbox | None,
) -> tuple[Extracted, UserWorkloads]:
    """Add the parameters and buffers of the constructed class, which the user may overrule."""
    target, name = extracted.target, extracted.closure.constructed
    assert name is not None
    constructor = constructor_values(target, given)
    held = constructed_state(extracted.source, name, constructor, target, sandbox)
    shared = set(held) & set(extracted.arguments)
    if shared:
        reason = f"an argument and a parameter share the name {', '.join(sorted(shared))}"
        raise Refused(target.spelled, (reason,))
    extended = replace(extracted, state=tuple(held), constructor=constructor)
    return extended, user.model_copy(update={"arguments": {**held, **user.arguments}})


def _refuse_hopeless(target: Target, plain: Closure) -> None:
    """Refuse what no workloads can save before the user is asked to write any."""
    reasons = certain(find_refusals(plain), plain)
    if reasons:
        raise Refused(target.spelled, tuple(reasons))
