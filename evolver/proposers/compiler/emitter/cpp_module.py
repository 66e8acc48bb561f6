"""A traced graph's wrapper and kernels to the pieces of one standalone ``cpp`` module."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .cpp_source import CleanKernel, CleanStyle, clean_kernel
from .cpp_topk import TopK, find_topk, rows_of, topk_kernel, uses_of
from .cpp_wrapper import (
    Allocate,
    Launch,
    Python,
    Step,
    Wrapper,
    is_contiguous,
    names_used,
    same_count,
)

_UNINTERESTING = frozenset(
    [
        "clone",
        "convert_element_type",
        "copy",
        "empty",
        "empty_like",
        "expand",
        "full",
        "lift_fresh_copy",
        "permute",
        "reshape",
        "scalar_tensor",
        "select",
        "slice",
        "slice_scatter",
        "split",
        "squeeze",
        "t",
        "to_copy",
        "transpose",
        "unsafe_view",
        "unsqueeze",
        "view",
        "zeros",
        "zeros_like",
    ]
)
_NAMED_OPERATORS = 4


@dataclass(frozen=True)
class Piece:
    """What one graph contributes to a module."""

    functions: tuple[CleanKernel, ...]
    body: tuple[str, ...]
    """Statements of the entry, without the return."""
    outputs: tuple[str, ...]
    """A Python expression for each output of the graph."""


def assemble(
    wrapper: Wrapper,
    names: Mapping[str, str],
    style: CleanStyle,
    operators: frozenset[str],
    prefix: str = "",
) -> Piece:
    """Clean the kernels of ``wrapper`` and write its steps.

    Args:
        wrapper: what Inductor generated.
        names: what to call each generated argument and symbol.
        style: how to write the C++.
        operators: names of operators that may be part of kernels' names.
        prefix: put before each function's name, to keep several graphs apart.

    Raises:
        Untranslatable: a kernel has no plain counterpart.
    """
    names = {**names, **_buffer_names(wrapper, set(names.values()))}
    writer = _Writer(wrapper, names, style, operators, prefix)
    for step in wrapper.steps:
        writer.write(step)
    return Piece(tuple(writer.functions), writer.finished(), writer.outputs())


def _buffer_names(wrapper: Wrapper, taken: set[str]) -> dict[str, str]:
    """``out`` for what is returned, the operator's name for library results, else ``buffer``."""
    returned = [n for e in wrapper.returned for n in names_used([e])]
    targets = {n: "buffer" for n in _defined(wrapper)}
    for step in wrapper.steps:
        if isinstance(step, Python) and isinstance(step.statement, ast.Assign):
            name = ast.unparse(step.statement.targets[0])
            targets[name] = _result_name(step.statement.value, targets)
    targets.update({n: "out" for n in returned if n in targets})
    counts = Counter(targets.values())
    result: dict[str, str] = {}
    used = set(taken)
    for name, stem in targets.items():
        candidates = [stem] if counts[stem] == 1 else []
        number = 0
        while not candidates or candidates[-1] in used:
            candidates.append(f"{stem}{number}")
            number += 1
        result[name] = candidates[-1]
        used.add(candidates[-1])
    return result


def _defined(wrapper: Wrapper) -> list[str]:
    return [s.name for s in wrapper.steps if isinstance(s, Allocate)]


def _result_name(value: ast.expr, known: Mapping[str, str]) -> str:
    match value:
        case ast.Subscript(value=ast.Name(id=base), slice=ast.Constant(value=int() as index)):
            stem = known.get(base, "result").removesuffix("_result")
            parts = ("values", "indices") if stem in ("topk", "sort") else ()
            return f"{stem}_{parts[index] if index < len(parts) else index}"
        case ast.Call(func=ast.Attribute(attr=function)):
            return "view" if function == "as_strided" else f"{function.strip('_')}_result"
    return "value"


class _Writer:
    """Writes steps in order; kernels are cleaned as their launches come."""

    def __init__(
        self,
        wrapper: Wrapper,
        names: Mapping[str, str],
        style: CleanStyle,
        operators: frozenset[str],
        prefix: str,
    ) -> None:
        self._wrapper = wrapper
        self._names = names
        self._style = style
        self._operators = operators
        self._prefix = prefix
        self._lines: list[ast.stmt] = []
        self._allocated = {s.name: s for s in wrapper.steps if isinstance(s, Allocate)}
        self._topk_results: set[str] = set()
        self._contiguous: dict[str, tuple[str, ...]] = {}
        self.functions: list[CleanKernel] = []

    def write(self, step: Step) -> None:
        match step:
            case Allocate():
                self._allocate(step)
            case Launch(kernel, arguments):
                self._launch(kernel, arguments)
            case Python(statement):
                topk = find_topk(step, self._allocated) if self._style.own_topk else None
                if topk is not None:
                    self._topk(topk)
                elif not self._is_part_of_topk(statement):
                    self._add(statement)

    def _add(self, statement: ast.stmt) -> None:
        renamed = _Renamer(self._names, self._contiguous).visit(ast.parse(ast.unparse(statement)))
        self._lines.append(renamed.body[0])

    def _allocate(self, step: Allocate) -> None:
        if is_contiguous(step.size, step.stride):
            self._empty(step.name, step.size, step.dtype)
            return
        size, stride = _tuple(step.size), _tuple(step.stride)
        text = f"{step.name} = torch.empty_strided({size}, {stride}, dtype={step.dtype})"
        self._add(ast.parse(text).body[0])

    def _empty(self, name: str, size: tuple[str, ...], dtype: str) -> None:
        self._contiguous[name] = size
        self._add(ast.parse(f"{name} = torch.empty({_tuple(size)}, dtype={dtype})").body[0])

    def _launch(self, kernel: str, arguments: list[ast.expr]) -> None:
        texts = [ast.unparse(a) for a in arguments]
        wanted = [self._argument_name(a) for a in arguments]
        text = self._wrapper.kernels[kernel]
        operators = _operators_of(kernel, self._operators)
        clean = clean_kernel(
            text,
            self._function_name(operators),
            wanted,
            frozenset(self._private(texts)),
            self._style,
            ", ".join(operators),
        )
        self.functions.append(clean)
        kept = ", ".join(texts[i] for i in clean.kept)
        self._add(ast.parse(f"native.{clean.name}({kept})").body[0])

    def _topk(self, topk: TopK) -> None:
        """Allocate what is used of the result and write a launch of a function of our own."""
        parts = uses_of(topk, self._wrapper.steps)
        function = topk_kernel(topk, sorted(parts), self._prefix)
        if function.name not in {f.name for f in self.functions}:
            self.functions.append(function)
        size = (*topk.leading, str(topk.k))
        for part in sorted(parts):
            dtype = ("torch.float32", "torch.int64")[part]
            self._empty(parts[part], size, dtype)
        arguments = [ast.unparse(topk.operand), *(parts[p] for p in sorted(parts)), rows_of(topk)]
        self._add(ast.parse(f"native.{function.name}({', '.join(arguments)})").body[0])
        self._topk_results.add(topk.result)

    def _is_part_of_topk(self, statement: ast.stmt) -> bool:
        match statement:
            case ast.Assign(value=ast.Subscript(value=ast.Name(id=name))):
                return name in self._topk_results
        return False

    def _argument_name(self, argument: ast.expr) -> str:
        """The C++ name: the variable's, or the viewed tensor's."""
        if isinstance(argument, ast.Name):
            return self._names.get(argument.id, argument.id)
        used = [self._names.get(n, n) for n in names_used([argument]) if n != "torch"]
        return f"{used[0]}_view" if used else "value"

    def _private(self, texts: Sequence[str]) -> list[str]:
        """Buffers allocated for this launch alone."""
        allocated = set(self._allocated)
        uses: Counter[str] = Counter()
        for step in self._wrapper.steps:
            if isinstance(step, Launch):
                uses.update(set(names_used(step.arguments)))
            elif isinstance(step, Python):
                uses.update(names_used([step.statement]))
        uses.update(names_used(self._wrapper.returned))
        return [self._names[t] for t in texts if t in allocated and uses[t] == 1]

    def _function_name(self, operators: Sequence[str]) -> str:
        interesting = [o for o in operators if o not in _UNINTERESTING] or list(operators)
        stem = "_".join(interesting[:_NAMED_OPERATORS]) or "kernel"
        stem = self._prefix + (f"{stem}_kernel" if len(interesting) == 1 else stem)
        taken = {f.name for f in self.functions}
        name, number = stem, 2
        while name in taken:
            name, number = f"{stem}{number}", number + 1
        return name

    def finished(self) -> tuple[str, ...]:
        """The statements; allocations and values that nothing uses any more are left out."""
        statements = list(self._lines)
        outputs = [ast.parse(o, mode="eval") for o in self.outputs()]
        while True:
            used = Counter(names_used([*statements, *outputs]))
            kept = [s for s in statements if not _is_dead(s, used)]
            if len(kept) == len(statements):
                return tuple(ast.unparse(s) for s in kept)
            statements = kept

    def outputs(self) -> tuple[str, ...]:
        """The returned expressions under their names."""
        renamer = _Renamer(self._names, self._contiguous)
        return tuple(
            ast.unparse(renamer.visit(ast.parse(ast.unparse(e), mode="eval")))
            for e in self._wrapper.returned
        )


def _tuple(items: Sequence[str]) -> str:
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


def _is_dead(statement: ast.stmt, used: Mapping[str, int]) -> bool:
    if not isinstance(statement, ast.Assign):
        return False
    return all(not used.get(ast.unparse(t), 0) for t in statement.targets)


def _operators_of(kernel: str, known: frozenset[str]) -> list[str]:
    """``cpp_fused_add_mean_0`` to ``["add", "mean"]``."""
    middle = re.sub(r"^cpp_fused_?|_?\d+$", "", kernel)
    longest_first = sorted(known, key=len, reverse=True)
    found: list[str] = []
    while middle:
        name = next((k for k in longest_first if middle == k or middle.startswith(k + "_")), None)
        name = name or middle.split("_")[0] or "_"
        found.append(name.strip("_"))
        middle = middle[len(name) :].removeprefix("_")
    return [f for f in dict.fromkeys(found) if f]


class _Renamer(ast.NodeTransformer):
    """Names for people; a view of a whole contiguous buffer becomes ``.view``."""

    def __init__(self, names: Mapping[str, str], contiguous: Mapping[str, tuple[str, ...]]) -> None:
        self._names = names
        self._contiguous = contiguous

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self._names.get(node.id, node.id), node.ctx)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if ast.unparse(node.func) == "torch.as_strided" and len(node.args) == 3:
            base, size, stride = node.args
            if self._is_plain_view(base, size, stride):
                text = f"{ast.unparse(base)}.view({ast.unparse(size)})"
                node = ast.parse(text, mode="eval").body  # type: ignore[assignment]
        self.generic_visit(node)
        return node

    def _is_plain_view(self, base: ast.expr, size: ast.expr, stride: ast.expr) -> bool:
        if not isinstance(base, ast.Name) or base.id not in self._contiguous:
            return False
        assert isinstance(size, ast.Tuple)
        assert isinstance(stride, ast.Tuple)
        shape, steps = ([ast.unparse(e) for e in t.elts] for t in (size, stride))
        whole = same_count(shape, self._contiguous[base.id])
        return whole and is_contiguous(shape, steps)
