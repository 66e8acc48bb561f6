"""Top-k along the last dimension in C++, which Inductor leaves to torch.

``torch.topk`` on a CPU sorts every row; for the few largest of a short row (a router's
experts) an insertion into a sorted list of k, skipping blocks that hold no candidate, is
several times faster. Equal values may come out in another order than torch's, which promises
none.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .cpp_source import CleanKernel
from .cpp_wrapper import Allocate, Python, Step, is_contiguous, same_count

_LARGEST_K = 32
_LONGEST_ROW = 4096


@dataclass(frozen=True)
class TopK:
    """One call ``result = torch.topk(operand, k, -1, True, sorted)`` on a float32 buffer."""

    result: str
    operand: ast.expr
    leading: tuple[str, ...]
    """Extents before the last."""
    length: int
    k: int


def find_topk(step: Step, allocated: Mapping[str, Allocate]) -> TopK | None:
    """Read ``step`` as a top-k that can be written in C++, or return None."""
    if not isinstance(step, Python) or not isinstance(step.statement, ast.Assign):
        return None
    call = step.statement.value
    if not isinstance(call, ast.Call) or ast.unparse(call.func) != "torch.topk":
        return None
    operand, *options = call.args
    values = [ast.literal_eval(o) for o in options]
    size = _size(operand, allocated)
    if size is None or call.keywords or len(values) < 2 or not size[-1].isdigit():
        return None
    k, dim, largest = values[0], values[1], values[2] if len(values) > 2 else True
    length = int(size[-1])
    is_last = dim in (-1, len(size) - 1)
    if not (is_last and largest and 0 < k <= min(length, _LARGEST_K) and length <= _LONGEST_ROW):
        return None
    return TopK(ast.unparse(step.statement.targets[0]), operand, tuple(size[:-1]), length, k)


def _size(operand: ast.expr, allocated: Mapping[str, Allocate]) -> list[str] | None:
    """Extents of a float32 buffer, or of a view that only regroups its elements."""
    shape: list[str] | None = None
    if isinstance(operand, ast.Call) and ast.unparse(operand.func) == "torch.as_strided":
        base, size, stride = operand.args[:3]
        if len(operand.args) > 3 or not isinstance(size, ast.Tuple):
            return None
        assert isinstance(stride, ast.Tuple)
        shape, steps = ([ast.unparse(e) for e in t.elts] for t in (size, stride))
        if not is_contiguous(shape, steps):
            return None
        operand = base
    buffer = allocated.get(ast.unparse(operand))
    if buffer is None or buffer.dtype != "torch.float32":
        return None
    if not is_contiguous(buffer.size, buffer.stride):
        return None
    if shape is None:
        return list(buffer.size) or None
    return shape if same_count(shape, buffer.size) else None


def uses_of(topk: TopK, steps: Sequence[Step]) -> dict[int, str]:
    """The generated names given to the values (0) and to the indices (1) of the result."""
    found: dict[int, str] = {}
    for step in steps:
        if not isinstance(step, Python) or not isinstance(step.statement, ast.Assign):
            continue
        match step.statement.value:
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int() as part)):
                if name == topk.result:
                    found[part] = ast.unparse(step.statement.targets[0])
    return found


def rows_of(topk: TopK) -> str:
    """The number of rows, as a Python expression over the symbols."""
    constant = math.prod(int(e) for e in topk.leading if e.isdigit())
    symbols = [e for e in topk.leading if not e.isdigit()]
    return " * ".join([*symbols, *([str(constant)] if constant != 1 or not symbols else [])])


def topk_kernel(topk: TopK, wanted: Sequence[int], prefix: str) -> CleanKernel:
    """A function that writes the ``wanted`` parts (0: values, 1: indices) for every row."""
    outputs = {0: ("float*", "values", "best"), 1: ("int64_t*", "indices", "where")}
    chosen = [outputs[part] for part in wanted]
    n, k = topk.length, topk.k
    suffix = "" if len(chosen) == 2 else f"_{chosen[0][1]}"
    name = f"{prefix}top_{k}_of_{n}{suffix}"
    parameters = (
        ("const float*", "x"),
        *((kind, parameter) for kind, parameter, _ in chosen),
        ("int64_t", "rows"),
    )
    stores = "\n".join(
        f"            {parameter}[row * {k} + slot] = {local}[slot];"
        for _, parameter, local in chosen
    )
    signature = ", ".join(f"{kind} {parameter}" for kind, parameter in parameters)
    source = f"""\
// the {k} largest of each row of {n}
extern "C" void {name}({signature}) {{
    #pragma omp parallel for if(rows * {n} > 32768)
    for (int64_t row = 0; row < rows; ++row) {{
        float best[{k}];
        int64_t where[{k}];
        top_k<{k}>(x + row * {n}, {n}, best, where);
        for (int64_t slot = 0; slot < {k}; ++slot) {{
{stores}
        }}
    }}
}}
"""
    return CleanKernel(name, parameters, tuple(range(len(parameters))), source)
