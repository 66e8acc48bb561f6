"""Cheaper arithmetic in kernels: reciprocals, powers of two, and plain indices.

A division becomes a multiplication by the reciprocal (or back), ``exp`` becomes ``exp2``;
both round a little differently. Index arithmetic is simplified only where the values that
it guards against cannot occur: sizes that the wrapper took from a shape are not negative,
and an index made of program ids, ranges and positive numbers is not either. A stride that
is written plainly lets Triton see that it divides by 16, and so load in wide vectors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache, partial

import libcst as cst
import libcst.matchers as m

from evolver.proposers.mutate.operators import Option
from evolver.proposers.mutate.triton_source import (
    NodeEdit,
    TritonSource,
    find_tl_calls,
    integer,
    is_tl_call,
    names_in,
    parse_triton,
)
from evolver.proposers.mutate.triton_tensors import arguments_of, enclosing_function

LOG2_E = "1.4426950408889634"
_ONE = m.Integer("1") | m.Float("1.0")
_SIZE = m.Subscript(value=m.Attribute(attr=m.Name("shape"))) | m.Call(
    func=m.Attribute(attr=m.Name("numel") | m.Name("size"))
)
_RECIPROCAL = m.BinaryOperation(left=_ONE, operator=m.Divide())
_GUARDED_STRIDE = re.compile(r"1\*\(1>=(\w+)\)\+(\w+)\*\((\w+)>1\)")


def division_options(source: str) -> list[Option]:
    """Multiply by the reciprocal instead of dividing, or the other way round."""
    parsed = parse_triton(source)
    return [
        option
        for name, kernel in parsed.kernels.items()
        for node in m.findall(kernel.body, m.BinaryOperation())
        if isinstance(node, cst.BinaryOperation)
        for option in _divisions(parsed, name, kernel, node)
    ]


def _divisions(
    parsed: TritonSource, name: str, kernel: cst.FunctionDef, node: cst.BinaryOperation
) -> Iterator[Option]:
    constants = {p.name.value for p in kernel.params.params if p.annotation is not None}
    place = f"{_short(parsed, node)} in {name}"
    if isinstance(node.operator, cst.Divide) and not m.matches(node.left, _ONE):
        if names_in(node) - constants:
            yield _option(parsed, f"times the reciprocal: {place}", {node: _as_product})
    elif isinstance(node.operator, cst.Multiply) and m.matches(node.right, _RECIPROCAL):
        yield _option(parsed, f"divided at once: {place}", {node: _as_quotient})


def _as_product(node: cst.CSTNode) -> cst.BaseExpression:
    quotient = cst.ensure_type(node, cst.BinaryOperation)
    inverse = cst.BinaryOperation(
        cst.Float("1.0"), cst.Divide(), quotient.right, [cst.LeftParen()], [cst.RightParen()]
    )
    return quotient.with_changes(operator=cst.Multiply(), right=inverse)


def _as_quotient(node: cst.CSTNode) -> cst.BaseExpression:
    product = cst.ensure_type(node, cst.BinaryOperation)
    divisor = cst.ensure_type(product.right, cst.BinaryOperation).right
    return product.with_changes(operator=cst.Divide(), right=divisor)


def exponential_options(source: str) -> list[Option]:
    """Let every ``tl.exp`` of a kernel be ``tl.exp2``, which is what the device has."""
    parsed = parse_triton(source)
    options: list[Option] = []
    for name, kernel in parsed.kernels.items():
        calls = [c for c in find_tl_calls(kernel.body, "exp") if len(c.args) == 1]
        if calls:
            edits: dict[cst.CSTNode, NodeEdit] = {call: _as_exp2 for call in calls}
            options.append(_option(parsed, f"tl.exp -> tl.exp2 in {name}", edits))
    return options


def _as_exp2(node: cst.CSTNode) -> cst.BaseExpression:
    argument = cst.Module([]).code_for_node(cst.ensure_type(node, cst.Call).args[0].value)
    return cst.parse_expression(f"tl.exp2(({argument}) * {LOG2_E})")


def index_options(source: str) -> list[Option]:
    """Simplify the index arithmetic of one kernel where its guards cannot matter."""
    parsed = parse_triton(source)
    options: list[Option] = []
    for name, kernel in parsed.kernels.items():
        sizes = _sizes(parsed, kernel)
        for what, find in _SIMPLER:
            edits = find(parsed, kernel, sizes)
            if edits:
                options.append(_option(parsed, f"{what} in {name}", edits))
    return options


_Finder = Callable[[TritonSource, cst.FunctionDef, frozenset[str]], dict[cst.CSTNode, NodeEdit]]


def _sizes(parsed: TritonSource, kernel: cst.FunctionDef) -> frozenset[str]:
    """Return the parameters that are sizes of tensors in every launch."""
    launches = [launch for launch in parsed.launches if launch.kernel == kernel.name.value]
    found: list[frozenset[str]] = []
    for launch in launches:
        function, arguments = enclosing_function(parsed, launch), arguments_of(launch, kernel)
        if function is None or arguments is None:
            return frozenset()
        found.append(frozenset(p for p, a in arguments.items() if _is_size(function, a.value)))
    return frozenset.intersection(*found) if found else frozenset()


def _is_size(function: cst.FunctionDef, value: cst.BaseExpression) -> bool:
    if isinstance(value, cst.Name):
        return value.value in _named_sizes(function)
    return m.matches(value, _SIZE)


@lru_cache(maxsize=64)
def _named_sizes(function: cst.FunctionDef) -> frozenset[str]:
    """Return the variables that are bound once, to the size of a tensor."""
    bound = [n for t in m.findall(function, m.AssignTarget()) for n in names_in(t)]
    sizes: set[str] = set()
    for node in m.findall(function, m.Assign(targets=[m.AssignTarget(m.Name())], value=_SIZE)):
        sizes |= names_in(cst.ensure_type(node, cst.Assign).targets[0])
    return frozenset(n for n in sizes if bound.count(n) == 1)


def _plain_strides(
    parsed: TritonSource, kernel: cst.FunctionDef, sizes: frozenset[str]
) -> dict[cst.CSTNode, NodeEdit]:
    """Find ``1 * (1 >= n) + n * (n > 1)`` in addresses: n, unless the tensor is empty."""
    found: dict[cst.CSTNode, NodeEdit] = {}
    for call in find_tl_calls(kernel.body, "load", "store"):
        for node in m.findall(call.args[0].value, m.BinaryOperation(operator=m.Add())):
            text = "".join(parsed.text(node).split())
            text = text[1:-1] if cst.ensure_type(node, cst.BinaryOperation).lpar else text
            match = _GUARDED_STRIDE.fullmatch(text)
            if match is not None and len({*match.groups()}) == 1 and match[1] in sizes:
                found[node] = partial(_expression, match[1])
    return found


def _plain_quotients(
    parsed: TritonSource, kernel: cst.FunctionDef, sizes: frozenset[str]
) -> dict[cst.CSTNode, NodeEdit]:
    """Find calls of a helper that rounds quotients down, where neither side is negative."""
    found: dict[cst.CSTNode, NodeEdit] = {}
    for node in m.findall(kernel.body, m.Call(func=m.Name())):
        call = cst.ensure_type(node, cst.Call)
        helper = parsed.kernels.get(cst.ensure_type(call.func, cst.Name).value)
        if helper is None or len(call.args) != 2 or not _rounds_down(parsed, helper):
            continue
        index, size = (a.value for a in call.args)
        known = isinstance(size, cst.Name) and size.value in sizes
        if (known or (integer(size) or 0) > 0) and is_index(kernel, index):
            text = f"(({parsed.text(index)}) // {parsed.text(size)})"
            found[call] = partial(_expression, text)
    return found


def _rounds_down(parsed: TritonSource, helper: cst.FunctionDef) -> bool:
    names = [p.name.value for p in helper.params.params]
    text = "".join(parsed.text(helper.body).split())
    if len(names) != 2:
        return False
    a, b = names
    return all(t in text for t in (f"={a}//{b}", f"={a}%{b}", f"where(({a}<0)!=({b}<0),"))


def _narrow_comparisons(
    parsed: TritonSource, kernel: cst.FunctionDef, _: frozenset[str]
) -> dict[cst.CSTNode, NodeEdit]:
    """Find ``index.to(tl.int64) < 32``: the same without widening the index first."""
    wide = m.Attribute(m.Name("tl"), m.Name("int64") | m.Name("int32"))
    convert = m.Call(func=m.Attribute(attr=m.Name("to")), args=[m.Arg(wide, keyword=None)])
    compare = m.Comparison(left=convert, comparisons=[m.ComparisonTarget(comparator=m.Integer())])
    found: dict[cst.CSTNode, NodeEdit] = {}
    for node in m.findall(kernel.body, compare):
        call = cst.ensure_type(cst.ensure_type(node, cst.Comparison).left, cst.Call)
        index = cst.ensure_type(call.func, cst.Attribute).value
        if is_index(kernel, index):
            found[call] = partial(_expression, parsed.text(index))
    return found


_SIMPLER: tuple[tuple[str, _Finder], ...] = (
    ("strides written plainly", _plain_strides),
    ("quotients of indices without a sign", _plain_quotients),
    ("comparisons of indices in 32 bits", _narrow_comparisons),
)


def is_index(kernel: cst.FunctionDef, value: cst.BaseExpression, depth: int = 8) -> bool:
    """Whether ``value`` is made of program ids, ranges and positive numbers: never negative."""
    if isinstance(value, cst.Integer):
        return True
    if isinstance(value, cst.Call):
        return is_tl_call(value, "program_id", "arange")
    if isinstance(value, cst.Subscript):
        return is_index(kernel, value.value, depth)
    if isinstance(value, cst.BinaryOperation):
        kinds = (cst.Add, cst.Multiply, cst.FloorDivide, cst.Modulo)
        sides = (value.left, value.right)
        return isinstance(value.operator, kinds) and all(is_index(kernel, s, depth) for s in sides)
    return isinstance(value, cst.Name) and depth > 0 and _holds_index(kernel, value.value, depth)


def _holds_index(kernel: cst.FunctionDef, name: str, depth: int) -> bool:
    parameter = next((p for p in kernel.params.params if p.name.value == name), None)
    targets = m.findall(kernel.body, m.AssignTarget(m.Name(name)) | m.For(target=m.Name(name)))
    targets = [*targets, *m.findall(kernel.body, m.AugAssign(target=m.Name(name)))]
    if parameter is not None:
        return not targets and parameter.annotation is not None  # a block's size
    assigns = m.findall(kernel.body, m.Assign(targets=[m.AssignTarget(m.Name(name))]))
    values = [cst.ensure_type(a, cst.Assign).value for a in assigns]
    return len(targets) == len(values) == 1 and is_index(kernel, values[0], depth - 1)


def _expression(text: str, _: cst.CSTNode) -> cst.BaseExpression:
    return cst.parse_expression(text)


def _option(parsed: TritonSource, description: str, edits: dict[cst.CSTNode, NodeEdit]) -> Option:
    return Option(description, lambda: parsed.replace(edits))


def _short(parsed: TritonSource, node: cst.CSTNode) -> str:
    text = " ".join(parsed.text(node).split())
    return text if len(text) <= 40 else text[:37] + "..."
