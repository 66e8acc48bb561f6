"""Replacing ``triton_helpers`` and ``tl_math``: by ``tl`` where that says the same, else by text.

The replacements below keep torch's treatment of NaN. Reductions are written with ``tl.sum``,
``tl.max`` and ``tl.min`` instead of a custom combine function: the same values, and the
Triton interpreter runs them vectorised. Any other helper is taken over from the source of the
installed torch (BSD-3-Clause, see ``LICENCE_NOTE``), with the helpers that it calls.
"""

from __future__ import annotations

import ast
import copy
import inspect

from .workloads import EmissionFailed

LICENCE_NOTE = (
    "Contains helper functions of PyTorch (torch/_inductor/runtime/triton_helpers.py),\n"
    "Copyright (c) Facebook, Inc. and its affiliates, BSD-3-Clause."
)

_OWN_HELPERS = '''
@triton.jit
def max2(values, axis: tl.constexpr):
    """Maximum along axis; NaN where any value is NaN, as torch.amax has it."""
    largest = tl.max(values, axis)
    if values.dtype.is_floating():
        has_nan = tl.max((values != values).to(tl.int32), axis) != 0
        largest = tl.where(has_nan, float("nan"), largest)
    return largest


@triton.jit
def min2(values, axis: tl.constexpr):
    """Minimum along axis; NaN where any value is NaN, as torch.amin has it."""
    smallest = tl.min(values, axis)
    if values.dtype.is_floating():
        has_nan = tl.max((values != values).to(tl.int32), axis) != 0
        smallest = tl.where(has_nan, float("nan"), smallest)
    return smallest


@triton.jit
def max_with_index(values, indices, axis: tl.constexpr):
    """Maximum along axis with the lowest index that holds it; NaN counts as the largest."""
    largest = max2(values, axis)
    is_largest = (values == tl.expand_dims(largest, axis)) | (values != values)
    return largest, tl.min(tl.where(is_largest, indices, 2147483647), axis)


@triton.jit
def min_with_index(values, indices, axis: tl.constexpr):
    """Minimum along axis with the lowest index that holds it; NaN counts as the smallest."""
    smallest = min2(values, axis)
    is_smallest = (values == tl.expand_dims(smallest, axis)) | (values != values)
    return smallest, tl.min(tl.where(is_smallest, indices, 2147483647), axis)


@triton.jit
def online_softmax_reduce(maxima, sums, axis: tl.constexpr, use_fast_math: tl.constexpr):
    """Combine partial maxima and sums of exponentials; a NaN arrives through the sums."""
    largest = tl.max(maxima, axis)
    largest_kept = tl.expand_dims(largest, axis)
    shift = tl.where(largest_kept == float("-inf"), 0, maxima - largest_kept)
    return largest, tl.sum(sums * exp(shift, use_fast_math), axis)


@triton.jit
def online_softmax_combine(maxima, sums, values, use_fast_math: tl.constexpr):
    """Add one block of values to running maxima and sums of exponentials."""
    largest = tl.maximum(maxima, values, propagate_nan=tl.PropagateNan.ALL)
    is_empty = largest == float("-inf")
    scale = tl.where(is_empty, 1.0, exp(maxima - largest, use_fast_math))
    added = tl.where(is_empty, 1.0, exp(values - largest, use_fast_math))
    return largest, sums * scale + added


@triton.jit
def exp(x, use_fast_math: tl.constexpr):
    """The exponential, by libdevice unless the short form is asked for."""
    if use_fast_math:
        return tl.exp(x)
    else:
        return libdevice.exp(x)


@triton.jit
def any(values, axis: tl.constexpr):
    """Whether any value along axis is true."""
    return tl.max(values.to(tl.int32), axis) != 0


@triton.jit
def welford(means, squares, counts, axis: tl.constexpr):
    """Combine partial means, sums of squared deviations and counts along axis."""
    count = tl.sum(counts, axis)
    mean = tl.sum(means * counts, axis) / count
    deviation = means - tl.expand_dims(mean, axis)
    return mean, tl.sum(squares + counts * deviation * deviation, axis), count
'''

_RENAMED = {
    "max2": "nan_max",
    "min2": "nan_min",
    "max_with_index": "argmax_pair",
    "min_with_index": "argmin_pair",
    "any": "any_true",
    "exp": "exponential",
    "welford": "welford_combine_all",
}
"""Names that would hide a builtin or say little."""

_PLAIN_TL = {"maximum", "minimum"}
"""Elementwise: ``tl`` has them with an option for NaN."""

_ELEMENTARY = frozenset(
    {"abs", "ceil", "cos", "erf", "exp", "exp2", "fdiv", "floor", "fma", "log", "log2"}
    | {"rsqrt", "sin", "sqrt", "sqrt_rn", "div_rn", "umulhi"}
)
"""Functions that ``tl`` itself has; others are in ``tl.math``."""

_IMPORTED_NAMES = {
    "_log2": "from triton.language.standard import _log2",
    "libdevice": "from triton.language.extra import libdevice",
}


class HelperLibrary:
    """Collects the helper functions that the kernels of one module use."""

    def __init__(self) -> None:
        self._own = _functions(_OWN_HELPERS)
        self._torch: dict[str, ast.FunctionDef] | None = None
        self._used: dict[str, ast.FunctionDef] = {}
        self.uses_torch_source = False

    @property
    def functions(self) -> list[ast.FunctionDef]:
        """The functions to put before the kernels, callees first."""
        return list(self._used.values())

    def rewrite(self, function: ast.FunctionDef) -> None:
        """Replace every ``triton_helpers.f`` and ``tl_math.f`` in ``function``, in place.

        Raises:
            EmissionFailed: a helper exists neither here nor in the installed torch.
        """
        _Rewriter(self).visit(function)

    def require(self, name: str) -> str:
        """Have helper ``name`` in the module; return the name that it has there."""
        shown = _RENAMED.get(name, name.lstrip("_"))
        if shown in self._used:
            return shown
        source = self._own.get(name) or self._from_torch(name)
        function = copy.deepcopy(source)
        function.name = shown
        function.decorator_list = [ast.parse("triton.jit", mode="eval").body]
        known = set(self._own) | set(self._torch or ())
        _CalleeRenamer(self, known - {name} - _local_names(function)).visit(function)
        self._used[shown] = function
        return shown

    def _from_torch(self, name: str) -> ast.FunctionDef:
        if self._torch is None:
            from torch._inductor.runtime import triton_helpers

            self._torch = _functions(inspect.getsource(triton_helpers))
        if name not in self._torch:
            raise EmissionFailed(f"the kernel calls triton_helpers.{name}, which is no function")
        self.uses_torch_source = True
        return self._torch[name]


def imports_for(source: str) -> list[str]:
    """Import lines for the names in ``source`` that neither torch nor triton binds."""
    names = {n.id for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Name)}
    return [line for name, line in _IMPORTED_NAMES.items() if name in names]


def _functions(source: str) -> dict[str, ast.FunctionDef]:
    body = ast.parse(source).body
    return {n.name: n for n in body if isinstance(n, ast.FunctionDef)}


def _local_names(function: ast.FunctionDef) -> set[str]:
    stored = {
        n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    return stored | {a.arg for a in function.args.args}


class _Rewriter(ast.NodeTransformer):
    """Rewrites attribute accesses on Inductor's helper modules."""

    def __init__(self, library: HelperLibrary) -> None:
        self._library = library

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = _helper_name(node.func)
        self.generic_visit(node)
        if name in _PLAIN_TL:
            node.func = ast.parse(f"tl.{name}", mode="eval").body
            propagate = ast.parse("tl.PropagateNan.ALL", mode="eval").body
            node.keywords.append(ast.keyword("propagate_nan", propagate))
        if name == "if_mask":
            mask, value = node.args
            is_none = isinstance(mask, ast.Constant) and mask.value is None
            return ast.Constant(None) if is_none else value
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        name = _helper_name(node)
        if name is not None:
            if name in _PLAIN_TL or name == "if_mask":
                return node
            return ast.Name(self._library.require(name), node.ctx)
        if isinstance(node.value, ast.Name) and node.value.id in ("tl_math", "math"):
            owner = "tl" if node.attr in _ELEMENTARY else "tl.math"
            return ast.parse(f"{owner}.{node.attr}", mode="eval").body
        return self.generic_visit(node)


class _CalleeRenamer(_Rewriter):
    """Within a helper's own body its callees are plain names."""

    def __init__(self, library: HelperLibrary, known: set[str]) -> None:
        super().__init__(library)
        self._known = known

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in self._known and isinstance(node.ctx, ast.Load):
            return ast.Name(self._library.require(node.id), node.ctx)
        return node


def _helper_name(node: ast.expr) -> str | None:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.attr if node.value.id == "triton_helpers" else None
    return None
