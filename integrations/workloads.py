"""The user's workloads file: inputs described once, with symbols, and expanded per workload.

``docs/workloads.md`` explains the format. Shapes, strides and ranges may name symbols
(``n``, ``2 * n + 1``), which each workload gives a value. Unknown keys, duplicate keys and
wrong types are refused with their line. Numbers are read as YAML 1.2 reads them, so that
``1e-6`` is a number.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, JsonValue, PositiveFloat, ValidationError

from evaluator.problem import OutputKind, Regime, Tolerance
from evaluator.records import Record, complaint
from evaluator.workload import ArgumentValue, DType, TensorSpec, ValueKind, Values, Workload
from integrations.errors import WorkloadsError

Extent = int | str
_NUMBER = re.compile(r"^[-+]?(\d[\d_]*)(\.\d*)?[eE][-+]?\d+$|^[-+]?\.?\d[\d_]*\.?\d*[eE][-+]?\d+$")
_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


class ValuesTemplate(Record):
    """``Values`` whose bounds may name symbols."""

    kind: ValueKind = ValueKind.NORMAL
    mean: float = 0.0
    std: PositiveFloat = 1.0
    low: float | str = 0.0
    high: float | str = 1.0
    data: tuple[int, ...] = ()


class TensorTemplate(Record):
    """``TensorSpec`` whose extents may name symbols."""

    shape: tuple[Extent, ...]
    dtype: DType = DType.FLOAT32
    strides: tuple[Extent, ...] | None = None
    values: ValuesTemplate | None = None
    alias_of: str | None = None


Template = TensorTemplate | bool | int | float | str | None
ListTemplate = Annotated[tuple[TensorTemplate, ...], Field(min_length=1)]


class WorkloadEntry(Record):
    """One workload: its symbols, and what differs from the defaults."""

    name: str
    weight: PositiveFloat = 1.0
    held_out: bool = False
    symbols: dict[str, int] = Field(default_factory=dict)
    arguments: dict[str, Template | ListTemplate] = Field(default_factory=dict)


class OutputOverride(Record):
    """What the user knows better about one output."""

    kind: OutputKind | None = None
    selects: int | None = None
    order_free_dim: int | None = None
    alias_of: str | None = None


class ContractOverride(Record):
    """What the user knows better about the contract."""

    writes: tuple[str, ...] | None = None
    seen_writes: tuple[str, ...] = ()
    """What captured calls wrote; added to what the reference is seen to write."""
    outputs: dict[int, OutputOverride] = Field(default_factory=dict)


class UserWorkloads(Record):
    """The whole file."""

    arguments: dict[str, Template | ListTemplate] = Field(default_factory=dict)
    constructor: dict[str, JsonValue] | None = None
    """What the target's class is constructed with, for one whose ``self`` holds modules."""
    workloads: Annotated[tuple[WorkloadEntry, ...], Field(min_length=1)]
    contract: ContractOverride = ContractOverride()
    tolerance: Tolerance = Tolerance()
    regime: Regime = Regime.DEVICE

    @property
    def argument_names(self) -> set[str]:
        """Every argument that the file speaks of."""
        return set(self.arguments).union(*(w.arguments for w in self.workloads))


def read_workloads(path: Path) -> UserWorkloads:
    """Read and check the workloads file at ``path``.

    Raises:
        WorkloadsError: with the line and what is wrong there.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise WorkloadsError(f"{path} cannot be read: {error}") from error
    try:
        node = yaml.compose(text, Loader=_Loader)
        _refuse_duplicates(node, path)
        return UserWorkloads.model_validate(yaml.load(text, Loader=_Loader))  # noqa: S506
    except yaml.YAMLError as error:
        raise WorkloadsError(f"{path} is not YAML: {complaint(error)}") from error
    except RecursionError as error:
        raise WorkloadsError(f"{path} is nested too deeply, or holds itself") from error
    except ValidationError as error:
        raise WorkloadsError(_explain(error, node, path)) from error


def without_lists(user: UserWorkloads) -> tuple[UserWorkloads, dict[str, int]]:
    """Give each member of a list a name of its own (``scores_0``); return the lists' lengths.

    Raises:
        WorkloadsError: a list is longer in one workload than in another, or once is none.
    """
    lengths: dict[str, set[int | None]] = {}
    for arguments in (user.arguments, *(w.arguments for w in user.workloads)):
        for name, value in arguments.items():
            lengths.setdefault(name, set()).add(len(value) if isinstance(value, tuple) else None)
    for name, found in lengths.items():
        if len(found) > 1:
            raise WorkloadsError(f"{name} must be a list of one length in every workload")
    lists = {name: n for name, (n,) in ((k, tuple(v)) for k, v in lengths.items()) if n is not None}
    entries = tuple(
        w.model_copy(update={"arguments": _flattened(w.arguments)}) for w in user.workloads
    )
    update = {"arguments": _flattened(user.arguments), "workloads": entries}
    return user.model_copy(update=update), lists


def _flattened(arguments: Mapping[str, Template | ListTemplate]) -> dict[str, Template]:
    flat: dict[str, Template] = {}
    for name, value in arguments.items():
        if isinstance(value, tuple):
            flat.update({f"{name}_{i}": member for i, member in enumerate(value)})
        else:
            flat[name] = value
    return flat


def expand(
    user: UserWorkloads,
    parameters: tuple[str, ...],
    defaults: Mapping[str, object],
    *,
    ignorable: frozenset[str] = frozenset(),
) -> tuple[Workload, ...]:
    """Return the workloads with every parameter given and every symbol replaced.

    Args:
        user: the user's file.
        parameters: what the reference takes, arguments first, then state.
        defaults: literal defaults of the parameters, for those that the file leaves out.
        ignorable: names that the file may give although the reference does not take them.

    Raises:
        WorkloadsError: a parameter has no value, a name is no parameter, or a value is bad.
    """
    unknown = user.argument_names - set(parameters) - ignorable
    if unknown:
        raise WorkloadsError(
            f"the workloads name {', '.join(sorted(unknown))}, which the target does not take; "
            f"it takes {', '.join(parameters)}"
        )
    return tuple(_expand_one(user, entry, parameters, defaults) for entry in user.workloads)


def common_scalars(user: UserWorkloads, defaults: Mapping[str, object]) -> dict[str, object]:
    """Return the scalar arguments on which all workloads agree; tensors are left out."""
    names = user.argument_names | set(defaults)
    agreed: dict[str, object] = {}
    for name in names:
        values = [_template(user, w, name, defaults) for w in user.workloads]
        plain = not any(isinstance(v, TensorTemplate) for v in values)
        if plain and all(v == values[0] and type(v) is type(values[0]) for v in values):
            agreed[name] = values[0]
    return agreed


def tensor_names(user: UserWorkloads) -> set[str]:
    """Return the arguments that are a tensor in every workload."""
    return {
        name
        for name in user.argument_names
        if all(isinstance(_template(user, w, name, {}), TensorTemplate) for w in user.workloads)
    }


def _template(
    user: UserWorkloads, entry: WorkloadEntry, name: str, defaults: Mapping[str, object]
) -> object:
    for given in (entry.arguments, user.arguments, defaults):
        if name in given:
            return given[name]
    return None


def _expand_one(
    user: UserWorkloads,
    entry: WorkloadEntry,
    parameters: tuple[str, ...],
    defaults: Mapping[str, object],
) -> Workload:
    given = {**defaults, **user.arguments, **entry.arguments}
    missing = [p for p in parameters if p not in given]
    if missing:
        raise WorkloadsError(
            f"workload {entry.name!r} has no value for {', '.join(missing)}; "
            "give it under `arguments:` (a tensor needs a shape)"
        )
    try:
        arguments = {p: _value(given[p], entry.symbols) for p in parameters}
        return Workload(
            name=entry.name, arguments=arguments, weight=entry.weight, held_out=entry.held_out
        )
    except (ValidationError, ValueError) as error:
        raise WorkloadsError(f"workload {entry.name!r}: {_reason(error)}") from error


def _value(template: object, symbols: Mapping[str, int]) -> ArgumentValue:
    if not isinstance(template, TensorTemplate):
        assert template is None or isinstance(template, (bool, int, float, str))
        return template
    strides = template.strides
    return TensorSpec(
        shape=tuple(_extent(e, symbols) for e in template.shape),
        dtype=template.dtype,
        strides=None if strides is None else tuple(_extent(e, symbols) for e in strides),
        values=_values(template, symbols),
        alias_of=template.alias_of,
    )


def _values(template: TensorTemplate, symbols: Mapping[str, int]) -> Values:
    values = template.values
    if values is None:
        if template.dtype.is_floating:
            return Values()
        top = 2 if template.dtype is DType.BOOL else 8
        return Values(kind=ValueKind.INTEGERS, low=0, high=top)
    low, high = (_bound(bound, symbols) for bound in (values.low, values.high))
    return Values(
        kind=values.kind, mean=values.mean, std=values.std, low=low, high=high, data=values.data
    )


def _bound(bound: float | str, symbols: Mapping[str, int]) -> float:
    return float(_extent(bound, symbols)) if isinstance(bound, str) else bound


def _extent(extent: Extent, symbols: Mapping[str, int]) -> int:
    """Return the number that an extent such as ``2 * n`` stands for.

    Raises:
        ValueError: it is no such expression, or names a symbol that has no value.
    """
    if isinstance(extent, int):
        return extent
    try:
        return _compute(ast.parse(extent, mode="eval").body, symbols)
    except (SyntaxError, ZeroDivisionError) as error:
        raise ValueError(f"{extent!r} is not an extent; write 128, n, or 2 * n") from error


def _compute(node: ast.expr, symbols: Mapping[str, int]) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        if node.id not in symbols:
            raise ValueError(f"symbol {node.id} has no value; give it under `symbols:`")
        return symbols[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        sides = _compute(node.left, symbols), _compute(node.right, symbols)
        return _OPERATORS[type(node.op)](*sides)
    raise ValueError(f"{ast.unparse(node)!r} is not an extent; use + - * // on symbols and numbers")


class _Loader(yaml.SafeLoader):
    """YAML 1.1 with the floats of YAML 1.2."""


_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _NUMBER, list("-+.0123456789"))


def _refuse_duplicates(node: yaml.Node | None, path: Path) -> None:
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if key.value in seen:
                line = key.start_mark.line + 1
                raise WorkloadsError(f"{path}:{line}: {key.value} is given twice")
            seen.add(key.value)
            _refuse_duplicates(value, path)
    elif isinstance(node, yaml.SequenceNode):
        for child in node.value:
            _refuse_duplicates(child, path)


def _explain(error: ValidationError, root: yaml.Node | None, path: Path) -> str:
    """Return the first complaint of pydantic in the words and at the line of the file."""
    # A union complains once per member; what is wrong with the most specific one helps most.
    complaint = max(error.errors(), key=lambda e: len(e["loc"]))
    line, known = _line_of(root, complaint["loc"])
    where = ".".join(str(part) for part in known)
    if complaint["type"] == "extra_forbidden":
        return f"{path}:{line}: unknown key {where}; docs/workloads.md lists the keys"
    return f"{path}:{line}: {where or 'the file'}: {complaint['msg'].lower()}"


def _line_of(
    root: yaml.Node | None, location: tuple[int | str, ...]
) -> tuple[int, tuple[int | str, ...]]:
    """Follow ``location`` as far as the file has it; return the line and the part followed."""
    node, line = root, 1 if root is None else root.start_mark.line + 1
    followed: list[int | str] = []
    for part in location:
        found: tuple[yaml.Node, yaml.Node] | None = None
        if isinstance(node, yaml.MappingNode):
            found = next(((k, v) for k, v in node.value if k.value == str(part)), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            child = node.value[part] if part < len(node.value) else None
            found = None if child is None else (child, child)
        if found is None:
            continue  # the name of a union's member, not a key
        line, node = found[0].start_mark.line + 1, found[1]
        followed.append(part)
    return line, tuple(followed)


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first: Any = error.errors()[0]
        return f"{'.'.join(str(p) for p in first['loc'])}: {first['msg']}"
    return str(error)
