"""Cheaper spellings of the same mathematics, where rounding or NaN may differ.

``libdevice`` functions become Triton's own (on NVIDIA devices ``tl.exp`` and friends take
the fast unit), and helpers that carry a NaN through a maximum or minimum become the plain
reduction. Both can change results; correctness is the evaluator's to judge.
"""

from __future__ import annotations

from functools import partial

import libcst as cst
import libcst.matchers as m

from evolver.proposers.mutate.operators import Option
from evolver.proposers.mutate.triton_source import (
    NodeEdit,
    TritonSource,
    is_tl_call,
    names_in,
    parse_triton,
)

_BUILTINS = (
    "exp", "exp2", "log", "log2", "sin", "cos", "sqrt", "rsqrt", "erf", "floor", "ceil", "fma",
)  # fmt: skip
_LIBDEVICE_NAMES = {name: name for name in _BUILTINS} | {"fabs": "abs", "abs": "abs"}


def libdevice_options(source: str) -> list[Option]:
    """Replace every call of one libdevice function in the module by Triton's own."""
    parsed = parse_triton(source)
    calls: dict[str, list[cst.Call]] = {}
    for node in m.findall(parsed.tree, m.Call(func=m.Attribute(m.Name("libdevice"), m.Name()))):
        call = cst.ensure_type(node, cst.Call)
        name = cst.ensure_type(call.func, cst.Attribute).attr.value
        if name in _LIBDEVICE_NAMES:
            calls.setdefault(name, []).append(call)
    return [_libdevice_option(parsed, name, found) for name, found in calls.items()]


def _libdevice_option(parsed: TritonSource, name: str, calls: list[cst.Call]) -> Option:
    function = cst.parse_expression(f"tl.{_LIBDEVICE_NAMES[name]}")
    edits: dict[cst.CSTNode, NodeEdit] = {call.func: lambda _: function for call in calls}
    description = f"libdevice.{name} -> tl.{_LIBDEVICE_NAMES[name]}"
    return Option(description, lambda: parsed.replace(edits))


def nan_helper_options(source: str) -> list[Option]:
    """Replace the NaN-carrying maximum or minimum helpers by what Triton has built in.

    ``tl.reduce(x, axis, helper)`` becomes ``tl.max(x, axis)``, ``helper(a, b)`` becomes
    ``tl.maximum(a, b)``; helpers are known by what they do, not by their names.
    """
    parsed = parse_triton(source)
    kinds = {n: k for n, f in parsed.kernels.items() if (k := _nan_helper(parsed, f)) is not None}
    options: list[Option] = []
    for helper, kind in kinds.items():
        edits = _helper_edits(parsed, helper, kind)
        if edits:
            description = f"{helper} -> tl.{kind} (NaN no longer carried)"
            options.append(Option(description, partial(parsed.replace, edits)))
    return options


def _nan_helper(parsed: TritonSource, function: cst.FunctionDef) -> str | None:
    """Return ``max`` or ``min`` for a function of two values that compares and tests for NaN."""
    names = [p.name.value for p in function.params.params]
    if len(names) != 2 or find_memory(function):
        return None
    text = parsed.text(function.body).replace(" ", "")
    a, b = names
    if f"{a}!={a}" not in text:
        return None
    if f"{a}>{b}" in text or f"{a}>={b}" in text:
        return "max"
    return "min" if f"{a}<{b}" in text or f"{a}<={b}" in text else None


def find_memory(function: cst.FunctionDef) -> bool:
    """Whether the function touches memory, as a helper for values does not."""
    return any(is_tl_call(c, "load", "store", "program_id") for c in m.findall(function, m.Call()))


def _helper_edits(parsed: TritonSource, helper: str, kind: str) -> dict[cst.CSTNode, NodeEdit]:
    edits: dict[cst.CSTNode, NodeEdit] = {}
    for node in m.findall(parsed.tree, m.Call()):
        call = cst.ensure_type(node, cst.Call)
        if m.matches(call.func, m.Name(helper)) and len(call.args) == 2:
            edits[call.func] = lambda _: cst.parse_expression(f"tl.{kind}imum")
        elif (
            is_tl_call(call, "reduce") and len(call.args) == 3 and helper in names_in(call.args[2])
        ):
            edits[call] = lambda updated: _as_builtin(updated, kind)
    return edits


def _as_builtin(node: cst.CSTNode, kind: str) -> cst.Call:
    call = cst.ensure_type(node, cst.Call)
    last = call.args[1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
    return call.with_changes(func=cst.parse_expression(f"tl.{kind}"), args=[call.args[0], last])
