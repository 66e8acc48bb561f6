"""What the source says about inputs: defaults, annotations, shapes in jaxtyping, docs, comments."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from integrations.extraction.folding import UNKNOWN
from integrations.extraction.methods import ClassView, parameter_defaults
from integrations.extraction.resolution import Resolver
from integrations.extraction.target import Target

_NO_DEFAULT = object()
_JAXTYPING = re.compile(r"^(?:\w+\.)?(Float|Int|Bool|BFloat16|Float16|Float32|Int32|Int64|UInt8)\[")
_DTYPES = {
    "Float": "float32",
    "Float32": "float32",
    "Float16": "float16",
    "BFloat16": "bfloat16",
    "Int": "int64",
    "Int64": "int64",
    "Int32": "int32",
    "UInt8": "uint8",
    "Bool": "bool",
}
_BRACKETS = re.compile(r"[\[(]([\w\s,*+/-]+)[\])]")
_SCALAR_TYPES = frozenset({"int", "float", "bool", "str"})


@dataclass(frozen=True)
class Hint:
    """What is known about one parameter before any workload is given."""

    name: str
    is_state: bool
    has_default: bool = False
    default: object = None
    annotation: str | None = None
    shape: tuple[str, ...] | None = None
    dtype: str | None = None
    note: str = ""

    @property
    def looks_scalar(self) -> bool:
        """Whether the annotation or the default says that this is a number, flag or string."""
        if self.annotation is not None:
            bare = re.sub(r"^Optional\[(.*)\]$|\s*\|\s*None$", r"\1", self.annotation)
            return bare in _SCALAR_TYPES
        return self.has_default


def call_arguments(target: Target) -> list[ast.arg]:
    """Return the parameters that a caller gives by position, ``self`` left out."""
    arguments = target.function.args
    listed = [*arguments.posonlyargs, *arguments.args]
    decorators = {ast.unparse(d) for d in target.function.decorator_list}
    return listed[1:] if target.owner is not None and "staticmethod" not in decorators else listed


def hints_for(target: Target, resolver: Resolver, state: list[str]) -> list[Hint]:
    """Return what the source says about each argument and each attribute, in order."""
    hints = [_argument_hint(target, argument) for argument in call_arguments(target)]
    if target.owner is not None:
        view = ClassView(resolver, target.module, target.owner)
        hints += [_state_hint(view, name) for name in state]
    return hints


def literal_defaults(hints: list[Hint]) -> dict[str, object]:
    """Return the defaults of those parameters that have a literal one."""
    return {h.name: h.default for h in hints if h.has_default}


def _argument_hint(target: Target, argument: ast.arg) -> Hint:
    default = _literal(parameter_defaults(target.function.args).get(argument.arg))
    annotation = ast.unparse(argument.annotation) if argument.annotation else None
    dtype, shape = _jaxtyping(annotation)
    if shape is None:
        shape = _documented_shape(target, argument)
    return Hint(
        name=argument.arg,
        is_state=False,
        has_default=default is not _NO_DEFAULT,
        default=None if default is _NO_DEFAULT else default,
        annotation=annotation,
        shape=shape,
        dtype=dtype,
    )


def _state_hint(view: ClassView, name: str) -> Hint:
    assigned = view.attributes.get(name, [])
    default = view.default(name)
    note = f"self.{name} = {ast.unparse(assigned[0].value)}" if assigned else "set outside __init__"
    return Hint(
        name=name,
        is_state=True,
        has_default=default is not UNKNOWN,
        default=None if default is UNKNOWN else default,
        note=note if len(note) <= 80 else note[:79] + "…",
    )


def _literal(node: ast.expr | None) -> object:
    if node is None:
        return _NO_DEFAULT
    try:
        value: object = ast.literal_eval(node)
    except ValueError:
        return _NO_DEFAULT
    return value if isinstance(value, (bool, int, float, str, type(None))) else _NO_DEFAULT


def _jaxtyping(annotation: str | None) -> tuple[str | None, tuple[str, ...] | None]:
    """Read ``Float[Tensor, "batch 256"]``."""
    match = _JAXTYPING.match(annotation or "")
    if match is None or annotation is None:
        return None, None
    text = re.search(r"""['"]([^'"]*)['"]""", annotation)
    return _DTYPES[match.group(1)], tuple(text.group(1).split()) if text else None


def _documented_shape(target: Target, argument: ast.arg) -> tuple[str, ...] | None:
    """Read a shape from the comment on the parameter's line, or from the docstring."""
    line = target.module.lines[argument.lineno - 1].partition("#")[2]
    documented = re.search(
        rf"^\s*{argument.arg}\s*(?:\([^)]*\))?\s*:(.*)$",
        ast.get_docstring(target.function) or "",
        re.MULTILINE,
    )
    for text in (line, documented.group(1) if documented else ""):
        match = _BRACKETS.search(text)
        parts = [p.strip() for p in match.group(1).split(",")] if match else []
        if parts and all(parts):
            return tuple(parts)
    return None
