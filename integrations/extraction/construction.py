"""Classes that only their ``__init__`` can make: those whose ``self`` holds modules.

Such a class stays a class: its ``__init__``, the target and the methods that these call. It is
constructed with what the user's ``constructor:`` says; its parameters and buffers are the
problem's state, drawn anew for every run, so that what ``__init__`` draws means nothing and may
be random. ``device=`` goes: where a tensor lies is the evaluator's to say.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from evaluator.sandbox import Sandbox
from evaluator.workload import DType
from integrations.errors import Refused, WorkloadsError
from integrations.extraction.edits import Edits
from integrations.extraction.machines import last_name
from integrations.extraction.methods import parameter_defaults
from integrations.extraction.target import Target
from integrations.workloads import TensorTemplate, ValuesTemplate

INIT = "__init__"
_NO_TENSORS = frozenset({"device", "Size", "compile", "Generator", "finfo", "iinfo"})
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def unreached(owner: ast.ClassDef, method: str) -> Edits:
    """Return edits that take out the methods which ``method`` and ``__init__`` never call."""
    methods = {s.name: s for s in owner.body if isinstance(s, _Function)}
    pending, kept = [INIT, method], set[str]()
    while pending:
        name = pending.pop()
        if name in methods and name not in kept:
            kept.add(name)
            pending += [n.attr for n in ast.walk(methods[name]) if isinstance(n, ast.Attribute)]
    edits = Edits()
    for name, statement in methods.items():
        if name not in kept:
            edits.drop(statement)
    calls = [n for n in construction(owner) if isinstance(n, ast.Call)]
    for call in sorted(calls, key=lambda c: (c.lineno, c.col_offset)):
        _place_nowhere(call, edits)
    return edits


def _place_nowhere(call: ast.Call, edits: Edits) -> None:
    for keyword in call.keywords:
        text = ast.unparse(keyword.value)
        if keyword.arg == "device" and text != "None":
            edits.replace(keyword.value, "None")
            edits.hidden.add(keyword.value)
            detail = f"device={text} dropped: the evaluator says where state lies"
            edits.assume("device", detail, call.lineno)


def construction(statement: ast.stmt) -> frozenset[ast.AST]:
    """Return the nodes that run while an instance is made: what they draw is replaced."""
    if not isinstance(statement, ast.ClassDef):
        return frozenset()
    inits = [s for s in statement.body if isinstance(s, _Function) and s.name == INIT]
    return frozenset(node for init in inits for node in ast.walk(init))


def construction_faults(owner: ast.ClassDef, edits: Edits) -> Iterator[tuple[ast.AST, str]]:
    """Yield what in a kept class makes one call depend on another."""
    passed = construction(owner)
    for statement in owner.body:
        if statement in edits.hidden:
            continue
        for node in ast.walk(statement):
            is_stored = isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load)
            if is_stored and node not in passed and ast.unparse(node).startswith("self."):
                yield node, f"assigns {ast.unparse(node)}, so that calls depend on each other"


def untracked_tensors(statement: ast.stmt) -> Iterator[tuple[ast.AST, str]]:
    """Yield the tensors of an instance that are no state: nobody draws or moves them."""
    for node in construction(statement):
        if isinstance(node, ast.Call) and last_name(node.func) == "register_buffer":
            given = [k.value for k in node.keywords if k.arg == "persistent"] or node.args[2:3]
            if given and isinstance(given[0], ast.Constant) and given[0].value is False:
                yield node, f"{ast.unparse(node)[:60]}: a buffer that is not in the state_dict"
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            value = node.value
            made = ast.unparse(value.func) if isinstance(value, ast.Call) else ""
            if made.startswith("torch.") and made.count(".") == 1 and made[6:] not in _NO_TENSORS:
                target = ast.unparse(node.targets[0])
                yield node, f"{target} = {made}(…) is a tensor, but no parameter and no buffer"


def constructor_values(target: Target, given: Mapping[str, JsonValue]) -> tuple[JsonValue, ...]:
    """Return the arguments of ``__init__`` by position: what is given, and its own defaults.

    Raises:
        WorkloadsError: one that is needed has no value, a name is none of them, or there is no
            ``__init__``.
    """
    arguments = _init_arguments(target)
    names = [a.arg for a in [*arguments.posonlyargs, *arguments.args]][1:]
    unknown = set(given) - set(names)
    if unknown:
        raise WorkloadsError(
            f"constructor names {', '.join(sorted(unknown))}; __init__ takes {', '.join(names)}"
        )
    defaults = {
        name: default.value
        for name, default in parameter_defaults(arguments).items()
        if isinstance(default, ast.Constant)
    }
    values = {**defaults, **given}
    missing = [n for n in names if n not in values]
    if missing:
        raise WorkloadsError(f"constructor has no value for {', '.join(missing)}")
    return tuple(values[n] for n in names)  # type: ignore[misc]


def constructor_hints(target: Target) -> dict[str, object]:
    """Return what ``__init__`` takes, with literal defaults and None where there is none."""
    arguments = _init_arguments(target)
    defaults = parameter_defaults(arguments)
    names = [a.arg for a in [*arguments.posonlyargs, *arguments.args]][1:]
    return {n: getattr(defaults.get(n), "value", None) for n in names}


def has_own_constructor(target: Target) -> bool:
    """Whether the target's class says itself how it is made."""
    body = target.owner.body if target.owner is not None else []
    return any(isinstance(s, ast.FunctionDef) and s.name == INIT for s in body)


def _init_arguments(target: Target) -> ast.arguments:
    assert target.owner is not None
    inits = [s for s in target.owner.body if isinstance(s, ast.FunctionDef) and s.name == INIT]
    if not inits:
        raise WorkloadsError(f"{target.owner.name} has no __init__ of its own to construct it with")
    return inits[-1].args


def constructed_state(
    source: str,
    class_name: str,
    constructor: tuple[JsonValue, ...],
    target: Target,
    sandbox: Sandbox | None,
) -> dict[str, TensorTemplate]:
    """Construct the class once in a sandbox; return its parameters and buffers, ``__`` for dots.

    Raises:
        Refused: it cannot be constructed so, or holds what no generator can draw anew.
        SandboxUnavailable: nothing is run without a sandbox.
    """
    from integrations.kernelbench.errors import NotCarried
    from integrations.kernelbench.looking import look
    from integrations.kernelbench.values import Structured, fit_state

    asked = (
        f"\n\nModel = {class_name}\n\n\ndef get_init_inputs():\n    return {list(constructor)!r}\n"
        "\n\ndef get_inputs():\n    return []\n"
    )
    try:
        seen = look(source + asked, sandbox)
        if seen.shares_state:
            raise Refused(target.spelled, ("two of its parameters or buffers are one tensor",))
        templates = {}
        for held in seen.state:
            values = fit_state(held.tensor, parameter=held.parameter)
            templates[held.name.replace(".", "__")] = TensorTemplate(
                shape=held.tensor.shape,
                dtype=DType(held.tensor.dtype),
                strides=held.tensor.strides,
                values=ValuesTemplate.model_validate(values.model_dump()),
            )
    except (NotCarried, Structured, ValueError) as error:
        reason = f"constructed with {constructor}: {error}"
        raise Refused(target.spelled, (reason,)) from error
    return templates
