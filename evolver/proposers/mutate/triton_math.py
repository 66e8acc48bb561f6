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
    find_tl_calls,
    is_tl_call,
    laid_out,
    parse_triton,
    set_keywords,
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


def nan_options(source: str) -> list[Option]:
    """Let go of NaN in maxima and minima, one helper or one kind of call at a time.

    Helpers are known by what they do, not by their names: a combine function for
    ``tl.reduce`` that compares two values, a reduction that wraps ``tl.max`` in a test, and
    ``propagate_nan=`` of ``tl.maximum``.
    """
    parsed = parse_triton(source)
    options: list[Option] = []
    for name, function in parsed.kernels.items():
        kind = _combine_kind(parsed, function) or _reduction_kind(parsed, function)
        edits = _helper_edits(parsed, name, kind) if kind else {}
        if edits:
            description = f"{name} -> tl.{kind} (NaN no longer carried)"
            options.append(Option(description, partial(parsed.replace, edits)))
    return options + _elementwise_options(parsed)


def _combine_kind(parsed: TritonSource, function: cst.FunctionDef) -> str | None:
    """Return ``max`` or ``min`` for a function of two values that compares and tests for NaN."""
    names = [p.name.value for p in function.params.params]
    if len(names) != 2 or _touches_memory(function):
        return None
    text = parsed.text(function.body).replace(" ", "")
    a, b = names
    if f"{a}!={a}" not in text:
        return None
    if f"{a}>{b}" in text or f"{a}>={b}" in text:
        return "max"
    return "min" if f"{a}<{b}" in text or f"{a}<={b}" in text else None


def _reduction_kind(parsed: TritonSource, function: cst.FunctionDef) -> str | None:
    """Return ``max`` or ``min`` for a function of values and an axis that wraps ``tl.max``."""
    names = [p.name.value for p in function.params.params]
    if len(names) != 2 or _touches_memory(function):
        return None
    returns = m.findall(function.body, m.Return())
    single = not any(m.matches(r, m.Return(value=m.Tuple())) for r in returns)
    text = parsed.text(function.body).replace(" ", "")
    values, axis = names
    if not single or f"{values}!={values}" not in text:
        return None
    kinds = [k for k in ("max", "min") if f"tl.{k}({values},{axis})" in text]
    return kinds[0] if len(kinds) == 1 else None


def _touches_memory(function: cst.FunctionDef) -> bool:
    return bool(find_tl_calls(function, "load", "store", "program_id"))


def _helper_edits(parsed: TritonSource, helper: str, kind: str) -> dict[cst.CSTNode, NodeEdit]:
    combines = _combine_kind(parsed, parsed.kernels[helper]) is not None
    direct = f"tl.{kind}imum" if combines else f"tl.{kind}"
    edits: dict[cst.CSTNode, NodeEdit] = {}
    for node in m.findall(parsed.tree, m.Call()):
        call = cst.ensure_type(node, cst.Call)
        if m.matches(call.func, m.Name(helper)) and len(call.args) == 2:
            edits[call.func] = lambda _: cst.parse_expression(direct)
        elif is_tl_call(call, "reduce") and m.matches(call.args[-1].value, m.Name(helper)):
            edits[call] = lambda updated: _as_builtin(updated, kind)
    return edits


def _as_builtin(node: cst.CSTNode, kind: str) -> cst.Call:
    call = cst.ensure_type(node, cst.Call)
    function = cst.parse_expression(f"tl.{kind}")
    return call.with_changes(func=function, args=laid_out(call.args[:2], like=call.args))


def _elementwise_options(parsed: TritonSource) -> list[Option]:
    options: list[Option] = []
    for name in ("maximum", "minimum"):
        calls = find_tl_calls(parsed.tree, name)
        edits: dict[cst.CSTNode, NodeEdit] = {
            c: lambda call: set_keywords(call, propagate_nan=None)
            for c in calls
            if any(a.keyword and a.keyword.value == "propagate_nan" for a in c.args)
        }
        if edits:
            description = f"tl.{name} without propagate_nan"
            options.append(Option(description, partial(parsed.replace, edits)))
    return options
