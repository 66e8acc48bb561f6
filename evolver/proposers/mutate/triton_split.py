"""A sum along a row is shared out over several programs: partial sums, then a second launch.

It pays where there are too few rows to fill the device. The kernel must be a plain reduction:
one loop over the row, then the sum over the tile, stored as it is into a tensor that the
wrapper has allocated. Program ``(i, j)`` takes every S-th tile of row i, from the j-th on;
a new kernel adds up the S partial sums in a fixed order, so that results can be repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import libcst as cst
import libcst.matchers as m

from evolver.proposers.mutate.operators import Option, fresh_name
from evolver.proposers.mutate.triton_forward import single_assignment
from evolver.proposers.mutate.triton_source import (
    Launch,
    NodeEdit,
    TritonSource,
    find_tl_calls,
    integer,
    is_tl_call,
    keyword_argument,
    laid_out,
    names_in,
    parse_triton,
)
from evolver.proposers.mutate.triton_tensors import (
    arguments_of,
    base_of,
    enclosing_function,
    is_allocation,
    separate_tensors,
    traffic_of,
)

SPLITS = (2, 4, 8, 16)
_FINISH = """

@triton.jit
def {name}(partial_ptr, out_ptr, n, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < n
    total = tl.zeros([BLOCK], tl.float32)
    for part in tl.static_range(SPLITS):
        total += tl.load(partial_ptr + part * n + index, mask, other=0.0)
    tl.store(out_ptr + index, total, mask)
"""


@dataclass(frozen=True)
class _Reduction:
    """A kernel that does nothing but sum along rows, and its only launch."""

    kernel: cst.FunctionDef
    loop: cst.For
    store: cst.Call
    launch: Launch
    wrapper: cst.FunctionDef
    statement: cst.BaseStatement
    pointer: str
    output: str


def split_options(source: str) -> list[Option]:
    """Share out the sum of one reduction kernel over several programs a row."""
    parsed = parse_triton(source)
    found = [_reduction(parsed, kernel) for kernel in parsed.kernels.values()]
    return [
        Option(
            f"sums of {r.kernel.name.value} shared out over {count} programs a row",
            partial(_split, parsed, r, count),
        )
        for r in found
        if r is not None
        for count in SPLITS
    ]


def _reduction(parsed: TritonSource, kernel: cst.FunctionDef) -> _Reduction | None:
    launches = [launch for launch in parsed.launches if launch.kernel == kernel.name.value]
    statements = [s for s in kernel.body.body if isinstance(s, cst.BaseStatement)]
    loop = next((s for s in statements if isinstance(s, cst.For)), None)
    traffic = traffic_of(parsed, kernel)
    if len(launches) != 1 or loop is None or traffic is None or traffic.reads & traffic.writes:
        return None
    after = statements[statements.index(loop) + 1 :]
    store = _stored_sum(loop, after)
    wrapper = enclosing_function(parsed, launches[0])
    if store is None or wrapper is None or not _walks_tiles(loop) or _is_spread(kernel):
        return None
    pointer = base_of(store.args[0].value, kernel)
    arguments = arguments_of(launches[0], kernel)
    if arguments is None or pointer is None or not isinstance(arguments[pointer].value, cst.Name):
        return None
    output = cst.ensure_type(arguments[pointer].value, cst.Name).value
    lines = [s for s in wrapper.body.body if isinstance(s, cst.SimpleStatementLine)]
    statement = next((s for s in lines if launches[0].call in m.findall(s, m.Call())), None)
    one_axis = isinstance(launches[0].grid, cst.Tuple) and len(launches[0].grid.elements) == 1
    if statement is None or not one_axis or output not in separate_tensors(parsed, wrapper):
        return None
    if not any(_allocates_densely(s, output) for s in lines):
        return None
    return _Reduction(kernel, loop, store, launches[0], wrapper, statement, pointer, output)


def _is_spread(kernel: cst.FunctionDef) -> bool:
    """Whether the kernel already uses more of the grid than one axis of programs."""
    pids = find_tl_calls(kernel, "program_id")
    plain = all(len(c.args) == 1 and integer(c.args[0].value) == 0 for c in pids)
    several = len(m.findall(kernel.body, m.For())) != 1 or len(find_tl_calls(kernel, "store")) != 1
    return not plain or several or bool(find_tl_calls(kernel, "num_programs"))


def _walks_tiles(loop: cst.For) -> bool:
    """Whether it is ``for i in range(0, N, TILE)`` without hints that need its bounds."""
    call = loop.iter
    if not isinstance(call, cst.Call):
        return False
    is_range = is_tl_call(call, "range") or m.matches(call.func, m.Name("range"))
    plain = [a.value for a in call.args if a.keyword is None]
    return is_range and len(plain) == 3 and integer(plain[0]) == 0


def _stored_sum(loop: cst.For, after: Sequence[cst.BaseStatement]) -> cst.Call | None:
    """Return the store of ``r`` in ``r = tl.sum(acc, ...)[...]; tl.store(p, r, ...)``."""
    found = single_assignment(after[0]) if len(after) == 2 else None
    stores = find_tl_calls(after[1], "store") if found is not None else ()
    if found is None or len(stores) != 1 or not isinstance(after[1], cst.SimpleStatementLine):
        return None
    name, value = found
    total = value.value if isinstance(value, cst.Subscript) else value
    if not is_tl_call(total, "sum") or not _is_sum_in(loop, total):
        return None
    return stores[0] if m.matches(stores[0].args[1].value, m.Name(name)) else None


def _is_sum_in(loop: cst.For, total: cst.BaseExpression) -> bool:
    """Whether what is summed grows by additions alone, one a step: ``where(m, acc + e, acc)``."""
    summed = cst.ensure_type(total, cst.Call).args[0].value
    if not isinstance(summed, cst.Name):
        return False
    acc = summed.value
    values: dict[str, list[cst.BaseExpression]] = {}
    for node in m.findall(loop.body, m.Assign(targets=[m.AssignTarget(m.Name())])):
        assign = cst.ensure_type(node, cst.Assign)
        name = cst.ensure_type(assign.targets[0].target, cst.Name).value
        values.setdefault(name, []).append(assign.value)
    new = values.get(acc, [])
    others = m.findall(loop.body, m.AugAssign(target=m.Name(acc)))
    if len(new) != 1 or others or not is_tl_call(new[0], "where"):
        return False
    chosen = cst.ensure_type(new[0], cst.Call).args
    grown, kept = chosen[1].value, chosen[2].value
    if isinstance(grown, cst.Name) and len(values.get(grown.value, [])) == 1:
        grown = values[grown.value][0]
    plus = m.BinaryOperation(left=m.Name(acc), operator=m.Add())
    uses = len(m.findall(loop.body, m.Name(acc)))
    # Bound once, added to once, kept once: nothing else sees a partial sum.
    return m.matches(kept, m.Name(acc)) and m.matches(grown, plus) and uses == 3


def _allocates_densely(statement: cst.SimpleStatementLine, name: str) -> bool:
    """Whether ``name`` is allocated there in float32 without holes between its elements."""
    if not is_allocation(statement):
        return False
    assign = cst.ensure_type(statement.body[0], cst.Assign)
    call = cst.ensure_type(assign.value, cst.Call)
    allocator = cst.ensure_type(call.func, cst.Attribute).attr.value
    text = "".join(cst.Module([]).code_for_node(call).split())
    column = m.matches(call, _COLUMN) and text.count(",1),(1,") == 1
    dense = allocator in ("empty", "zeros") or column
    return m.matches(assign.targets[0].target, m.Name(name)) and dense and "torch.float32" in text


_COLUMN = m.Call(
    args=[m.Arg(m.Tuple([m.Element(), m.Element()])), m.Arg(m.Tuple()), m.ZeroOrMore()]
)


def _split(parsed: TritonSource, reduction: _Reduction, count: int) -> str:
    taken = names_in(parsed.tree)
    partials, finish = fresh_name("partial_sums", taken), fresh_name("add_partial_sums", taken)
    size = fresh_name("num_sums", taken)
    output, launch = reduction.output, reduction.launch
    grid = cst.ensure_type(launch.grid, cst.Tuple).elements[0].value
    allocate = (
        f"{partials} = torch.empty(({count}, {output}.numel()), "
        f"dtype=torch.float32, device={output}.device)"
    )
    add_up = (
        f"{finish}[(triton.cdiv({output}.numel(), 128),)]"
        f"({partials}, {output}, {output}.numel(), SPLITS={count}, BLOCK=128)"
    )
    call = _relaunched(reduction, partials, f"({parsed.text(grid)}, {count})", size)
    lines = [cst.parse_statement(allocate), call, cst.parse_statement(add_up)]
    body = [
        t for s in reduction.wrapper.body.body for t in (lines if s is reduction.statement else [s])
    ]
    wrapper = reduction.wrapper.with_changes(body=reduction.wrapper.body.with_changes(body=body))
    helper = cst.parse_statement(_FINISH.format(name=finish))
    both = cst.FlattenSentinel[cst.CSTNode]([helper, wrapper])
    edits = _in_parts(parsed, reduction, count, size)
    edits[reduction.wrapper] = lambda _: both
    return parsed.replace(edits)


def _relaunched(reduction: _Reduction, partials: str, grid: str, size: str) -> cst.BaseStatement:
    call = reduction.launch.call
    given = keyword_argument(size, f"{reduction.output}.numel()")
    index = cst.SubscriptElement(cst.Index(cst.parse_expression(grid)))
    func = cst.ensure_type(call.func, cst.Subscript).with_changes(slice=[index])
    args = [
        a.with_changes(value=cst.Name(partials))
        if m.matches(a.value, m.Name(reduction.output))
        else a
        for a in call.args
    ]
    new = call.with_changes(func=func, args=laid_out([*args, given], like=call.args))
    replaced = reduction.statement.deep_replace(call, new)
    assert isinstance(replaced, cst.BaseStatement)  # a call in it was replaced by a call
    return replaced


def _in_parts(
    parsed: TritonSource, reduction: _Reduction, count: int, size: str
) -> dict[cst.CSTNode, NodeEdit]:
    """Let the kernel take every ``count``-th tile and store to its own row of partial sums."""
    start, _, step = cst.ensure_type(reduction.loop.iter, cst.Call).args[:3]
    tile, pointer = parsed.text(step.value), reduction.store.args[0].value
    place = f"{parsed.text(pointer)} + tl.program_id(1) * {size}"

    def with_size(node: cst.CSTNode) -> cst.CSTNode:
        kernel = cst.ensure_type(node, cst.FunctionDef)
        old = kernel.params.params
        new = laid_out([*old, cst.Param(cst.Name(size))], like=old)
        return kernel.with_changes(params=kernel.params.with_changes(params=new))

    return {
        start.value: lambda _: cst.parse_expression(f"tl.program_id(1) * {tile}"),
        step.value: lambda _: cst.parse_expression(f"{count} * {tile}"),
        pointer: lambda _: cst.parse_expression(place),
        reduction.kernel: with_size,
    }
