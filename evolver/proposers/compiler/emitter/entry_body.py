"""The body of Inductor's ``call`` to the statements of a plain entry function.

Checks, deletions, streams and alignment copies belong to torch's runtime and go; allocations,
views and library calls become public torch functions; launches are gathered for the module
writer, which knows the kernels.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .naming import Names, rename
from .workloads import EmissionFailed

if TYPE_CHECKING:
    from .tracing import TracedGraph
_DROPPED_VALUES = ("get_raw_stream", "copy_if_misaligned")
_PUBLIC_ATEN = frozenset({"topk", "sort", "cumsum", "bincount", "kthvalue", "searchsorted"})
_FORBIDDEN = re.compile(r"inductor|async_compile|alloc_from_pool|_quantized|nccl|_C\b")

_DROPPED_CALLS = (
    "args.clear",
    "assert_size_stride",
    "assert_alignment",
    "torch.cuda.set_device",
    "start_graph",
    "end_graph",
)


@dataclass
class LaunchCall:
    """One ``kernel.run(...)``: marked in the text by ``marker``."""

    marker: str
    kernel: str
    arguments: list[str]


@dataclass
class EntryBody:
    """Statements in order, launches as markers, and the expressions of the results."""

    statements: list[str]
    launches: list[LaunchCall] = field(default_factory=list)
    results: list[str] = field(default_factory=list)


class BodyWriter:
    """Translates one ``call`` body."""

    def __init__(self, traced: TracedGraph, reserved: Sequence[str]) -> None:
        self._traced = traced
        self._names = Names({*reserved, "torch", "triton", "tl", "math", "device"})
        self._mapping: dict[str, str] = {}
        self._body = EntryBody([])
        self._device = ""

    def write(self, statements: Sequence[ast.stmt]) -> EntryBody:
        """Translate ``statements``.

        Raises:
            EmissionFailed: a statement has no public equivalent.
        """
        kept = _fold_reuse([s for s in statements if not _is_noise(s)])
        kept = _fold_numels(kept)
        self._bind_inputs(kept[0])
        returned = [s for s in kept if isinstance(s, ast.Return)]
        if len(returned) != 1 or not isinstance(returned[0].value, ast.Tuple):
            raise EmissionFailed("Inductor's call does not return one tuple")
        self._name_buffers(kept, returned[0].value.elts)
        for statement in kept[1:]:
            self._statement(statement)
        return self._body

    def _bind_inputs(self, statement: ast.stmt) -> None:
        """``arg0_1, arg1_1 = args``: the arguments are the function's parameters."""
        if not isinstance(statement, ast.Assign) or ast.unparse(statement.value) != "args":
            raise EmissionFailed("Inductor's call does not begin by unpacking its arguments")
        target = statement.targets[0]
        elements = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
        placeholders = [ast.unparse(e) for e in elements]
        for placeholder, name in zip(placeholders, self._traced.input_names, strict=True):
            self._mapping[placeholder] = name
        self._device = f"{self._traced.input_names[0]}.device"

    def _name_buffers(self, statements: Sequence[ast.stmt], results: Sequence[ast.expr]) -> None:
        symbols = {str(v): k for k, v in self._traced.symbols.items()}
        self._mapping.update({k: self._names.unique(v) for k, v in symbols.items()})
        outputs = [e.id for e in results if isinstance(e, ast.Name)]
        distinct = [o for o in dict.fromkeys(outputs) if o not in self._mapping]
        for number, output in enumerate(distinct):
            wanted = "out" if len(distinct) == 1 else f"out{number}"
            self._mapping[output] = self._names.unique(wanted)
        for statement in statements:
            for target in _assigned(statement):
                if target not in self._mapping:
                    word = "buffer" if re.fullmatch(r"buf\d+", target) else target
                    self._mapping[target] = self._names.unique(word)

    def _statement(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Return):
            assert isinstance(statement.value, ast.Tuple)
            self._body.results = [self._text(e) for e in statement.value.elts]
            return
        run = _run_call(statement)
        if run is not None:
            self._launch(run)
            return
        text = self._text(statement)
        if _FORBIDDEN.search(text):
            raise EmissionFailed(f"Inductor's call needs its own runtime: {text}")
        self._body.statements.append(text)

    def _launch(self, call: ast.Call) -> None:
        assert isinstance(call.func, ast.Attribute)
        kernel = ast.unparse(call.func.value)
        marker = f"__launch_{len(self._body.launches)}__"
        arguments = [self._text(a) for a in call.args]
        self._body.launches.append(LaunchCall(marker, kernel, arguments))
        self._body.statements.append(marker)

    def _text(self, node: ast.AST) -> str:
        node = _Public(self._device).visit(node)
        rename(node, self._mapping)
        return ast.unparse(ast.fix_missing_locations(node))


def _is_noise(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Delete):
        return True
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return ast.unparse(statement.value.func) in _DROPPED_CALLS
    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
        return ast.unparse(statement.value.func) in _DROPPED_VALUES
    return isinstance(statement, ast.Assign) and ast.unparse(statement.value) == "None"


def _assigned(statement: ast.stmt) -> list[str]:
    if not isinstance(statement, ast.Assign):
        return []
    return [n.id for t in statement.targets for n in ast.walk(t) if isinstance(n, ast.Name)]


def _run_call(statement: ast.stmt) -> ast.Call | None:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        function = statement.value.func
        if isinstance(function, ast.Attribute) and function.attr == "run":
            return statement.value
    return None


def _fold_numels(statements: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Put ``kernel_0_xnumel = 512*s95`` and ``arg0_1_size = arg0_1.size()`` where they are read."""
    values: dict[str, ast.expr] = {}
    kept: list[ast.stmt] = []
    for statement in statements:
        names = _assigned(statement)
        if len(names) == 1 and names[0].endswith("_size"):
            assert isinstance(statement, ast.Assign)
            values[names[0]] = _shape(statement.value)
            continue
        if len(names) == 1 and re.search(r"_[xyzr\d]*_?numel$", names[0]):
            assert isinstance(statement, ast.Assign)
            values[names[0]] = statement.value
        else:
            kept.append(_replaced(statement, values))
    return kept


def _shape(value: ast.expr) -> ast.expr:
    """``t.size()`` as ``t.shape``."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        return ast.Attribute(value.func.value, "shape", ast.Load())
    return value


class _Replace(ast.NodeTransformer):
    def __init__(self, values: Mapping[str, ast.expr]) -> None:
        self._values = values

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self._values.get(node.id, node) if isinstance(node.ctx, ast.Load) else node


def _replaced(statement: ast.stmt, values: Mapping[str, ast.expr]) -> ast.stmt:
    if not values:
        return statement
    result: ast.stmt = _Replace(values).visit(statement)
    return result


def _fold_reuse(statements: Sequence[ast.stmt]) -> list[ast.stmt]:
    """``buf7 = buf4`` renames; a buffer that is only viewed once is allocated in that form."""
    kept: list[ast.stmt] = []
    aliases: dict[str, ast.expr] = {}
    reads = _read_counts(statements)
    for statement in statements:
        statement = _replaced(statement, aliases)
        names = _assigned(statement)
        if len(names) == 1 and isinstance(statement, ast.Assign):
            is_plain = isinstance(statement.targets[0], ast.Name)
            if is_plain and isinstance(statement.value, ast.Name):
                aliases[names[0]] = statement.value
                continue
            if _allocates_for(kept, statement, reads):
                continue
        kept.append(statement)
    return kept


def _read_counts(statements: Sequence[ast.stmt]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                counts[node.id] = counts.get(node.id, 0) + 1
    return counts


def _allocates_for(kept: list[ast.stmt], view: ast.Assign, reads: Mapping[str, int]) -> bool:
    """Whether ``view`` reshapes a fresh buffer that is used for nothing else; if so, do it."""
    call = view.value
    if not isinstance(call, ast.Call) or ast.unparse(call.func) != "reinterpret_tensor":
        return False
    base, size, stride, offset = call.args
    if not isinstance(base, ast.Name) or reads.get(base.id) != 1 or ast.unparse(offset) != "0":
        return False
    for statement in kept:
        if _assigned(statement) == [base.id] and isinstance(statement, ast.Assign):
            made = statement.value
            if isinstance(made, ast.Call) and "empty_strided" in ast.unparse(made.func):
                made.args[0], made.args[1] = size, stride
                statement.targets = view.targets
                return True
    return False


class _Public(ast.NodeTransformer):
    """Torch's private functions to public ones."""

    def __init__(self, device: str) -> None:
        self._device = device

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = ast.unparse(node.func)
        if name == "empty_strided_cuda":
            return self._allocation(node)
        if name == "reinterpret_tensor":
            return _view(node)
        if name == "device" or name == "torch.device":
            return _expression(self._device)
        if name.startswith("extern_kernels."):
            node.func = _expression(_library_function(name.removeprefix("extern_kernels.")))
        if name.startswith("aten."):
            node.func = _expression(f"torch.ops.{name}")
        return _public_aten(node)

    def _allocation(self, node: ast.Call) -> ast.AST:
        size, stride, dtype = (ast.unparse(a) for a in node.args)
        tail = f"dtype={dtype}, device={self._device}"
        if _is_contiguous(node.args[0], node.args[1]):
            return _expression(f"torch.empty({size}, {tail})")
        return _expression(f"torch.empty_strided({size}, {stride}, {tail})")


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _library_function(name: str) -> str:
    public = {"bias_addmm": "addmm"}.get(name, name)
    if public not in {"mm", "addmm", "bmm", "baddbmm", "convolution"}:
        raise EmissionFailed(f"Inductor calls its own extern_kernels.{name}")
    return f"torch.{public}"


def _public_aten(node: ast.Call) -> ast.AST:
    match = re.fullmatch(r"torch\.ops\.aten\.(\w+)\.(default|stable)", ast.unparse(node.func))
    if match and match[1] in _PUBLIC_ATEN:
        node.func = _expression(f"torch.{match[1]}")
    return node


def _view(node: ast.Call) -> ast.AST:
    base, size, stride, offset = node.args
    text = f"torch.as_strided({ast.unparse(base)}, {ast.unparse(size)}, {ast.unparse(stride)}"
    if ast.unparse(offset) == "0":
        return _expression(text + ")")
    # Inductor's offset counts from where the tensor begins, torch's from its storage.
    return _expression(f"{text}, {ast.unparse(base)}.storage_offset() + {ast.unparse(offset)})")


def _is_contiguous(size: ast.expr, stride: ast.expr) -> bool:
    if not isinstance(size, ast.Tuple) or not isinstance(stride, ast.Tuple):
        return False
    step = 1
    for extent, given in zip(reversed(size.elts), reversed(stride.elts), strict=True):
        if ast.unparse(given) != str(step):
            return False
        if isinstance(extent, ast.Constant) and isinstance(extent.value, int):
            step *= max(extent.value, 1)
        else:
            step = -1  # only the outermost extent may be a symbol
    return True
