"""How a one-dimensional grid is walked: one program per tile, a persistent loop, or chunks.

A persistent kernel starts a fixed number of programs, each of which strides over the tiles;
a chunked one gives each program a few tiles that follow one another (rows per program, for
a kernel with a row per program). Both turn the body into a loop over ``tile`` and are told
how many tiles there are, by a new last parameter ``num_tiles``. A kernel that has been
turned is not turned again; a persistent one can change its number of programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import libcst as cst
import libcst.matchers as m

from evolver.proposers.mutate.operators import Option, fresh_name
from evolver.proposers.mutate.triton_source import (
    Launch,
    NodeEdit,
    TritonSource,
    find_tl_calls,
    integer,
    keyword_argument,
    laid_out,
    names_in,
    parse_triton,
    set_integer,
)

PROGRAM_COUNTS = (132, 264, 528, 1056)
"""One, two, four and eight programs per multiprocessor of a 132-multiprocessor device."""
TILES_PER_PROGRAM = (2, 4, 8)


def grid_options(source: str) -> list[Option]:
    """Make a kernel persistent or chunked, or change how many programs a persistent one has."""
    parsed = parse_triton(source)
    options: list[Option] = []
    for name, kernel in parsed.kernels.items():
        launches = [launch for launch in parsed.launches if launch.kernel == name]
        options += [o for launch in launches for o in _resize(parsed, launch)]
        extents = [_only_extent(launch) for launch in launches]
        if launches and all(extents) and _can_turn(kernel):
            counts = [_persistent(parsed, kernel, launches, n) for n in PROGRAM_COUNTS]
            options += counts + [_chunked(parsed, kernel, launches, n) for n in TILES_PER_PROGRAM]
    return options


def _only_extent(launch: Launch) -> cst.BaseExpression | None:
    """Return E of a grid that is written ``(E,)`` in a launch by keywords after positions."""
    if not isinstance(launch.grid, cst.Tuple) or len(launch.grid.elements) != 1:
        return None
    return launch.grid.elements[0].value


def _can_turn(kernel: cst.FunctionDef) -> bool:
    if find_tl_calls(kernel, "num_programs") or m.findall(kernel, m.Return()):
        return False
    pids = find_tl_calls(kernel, "program_id")
    only_axis_0 = all(c.args and integer(c.args[0].value) == 0 for c in pids)
    has_default = any(p.default is not None for p in kernel.params.params)
    looped = any(find_tl_calls(f.iter, "program_id") for f in _loops(kernel))
    if not pids or not only_axis_0 or has_default or looped:
        return False
    before, rest = _split(kernel)
    # A name that the loop gives another type or value would be carried from tile to tile.
    outer = {p.name.value for p in kernel.params.params} | _assigned(before)
    return not outer & _assigned(rest)


def _loops(kernel: cst.FunctionDef) -> list[cst.For]:
    return [cst.ensure_type(n, cst.For) for n in m.findall(kernel.body, m.For())]


def _split(
    kernel: cst.FunctionDef,
) -> tuple[list[cst.BaseStatement], list[cst.BaseStatement]]:
    """Return the statements before the first use of the program id, and those from there on."""
    statements = [s for s in kernel.body.body if isinstance(s, cst.BaseStatement)]
    first = next(i for i, s in enumerate(statements) if find_tl_calls(s, "program_id"))
    return statements[:first], statements[first:]


def _assigned(statements: Sequence[cst.BaseStatement]) -> set[str]:
    targets = m.AssignTarget() | m.AnnAssign() | m.AugAssign()
    found: set[str] = set()
    for statement in statements:
        for node in m.findall(statement, targets):
            if isinstance(node, cst.AssignTarget | cst.AnnAssign | cst.AugAssign):
                found |= names_in(node.target)
    return found


def _persistent(
    parsed: TritonSource, kernel: cst.FunctionDef, launches: Sequence[Launch], programs: int
) -> Option:
    return Option(
        f"persistent grid of {programs} programs in {kernel.name.value}",
        lambda: _turn(
            parsed,
            kernel,
            launches,
            loop="tl.range(tl.program_id(0), {tiles}, tl.num_programs(0))",
            grid=f"min({{extent}}, {programs})",
        ),
    )


def _chunked(
    parsed: TritonSource, kernel: cst.FunctionDef, launches: Sequence[Launch], count: int
) -> Option:
    start = f"tl.program_id(0) * {count}"
    return Option(
        f"{count} tiles per program in {kernel.name.value}",
        lambda: _turn(
            parsed,
            kernel,
            launches,
            loop=f"tl.range({start}, tl.minimum({start} + {count}, {{tiles}}))",
            # Not triton.cdiv: a division by cdiv in the grid is one by a tile's size.
            grid=f"({{extent}} + {count - 1}) // {count}",
        ),
    )


def _turn(
    parsed: TritonSource,
    kernel: cst.FunctionDef,
    launches: Sequence[Launch],
    *,
    loop: str,
    grid: str,
) -> str:
    taken = names_in(kernel)
    tiles, tile = fresh_name("num_tiles", taken), fresh_name("tile", taken)
    body = _looped(kernel, tile=tile, iterable=loop.format(tiles=tiles))
    parameters = [*kernel.params.params, cst.Param(cst.Name(tiles))]
    params = kernel.params.with_changes(params=laid_out(parameters, like=kernel.params.params))
    turned = kernel.with_changes(body=body, params=params)
    edits: dict[cst.CSTNode, NodeEdit] = {kernel: lambda _: turned}
    for launch in launches:
        edits[launch.call] = _launch_edit(parsed, launch, tiles, grid)
    return parsed.replace(edits)


def _looped(kernel: cst.FunctionDef, *, tile: str, iterable: str) -> cst.IndentedBlock:
    before, rest = _split(kernel)
    body = cst.IndentedBlock(rest)
    in_loop = m.replace(
        body, m.Call(func=m.Attribute(m.Name("tl"), m.Name("program_id"))), cst.Name(tile)
    )
    loop = cst.For(
        target=cst.Name(tile),
        iter=cst.parse_expression(iterable),
        body=cst.ensure_type(in_loop, cst.IndentedBlock),
    )
    return cst.ensure_type(kernel.body, cst.IndentedBlock).with_changes(body=[*before, loop])


def _launch_edit(parsed: TritonSource, launch: Launch, tiles: str, grid: str) -> NodeEdit:
    extent = _only_extent(launch)
    text = parsed.text(extent) if extent is not None else ""
    is_atom = isinstance(extent, cst.Call | cst.Name | cst.Integer)
    new_grid = cst.parse_expression(f"({grid.format(extent=text if is_atom else f'({text})')},)")

    def rewrite(node: cst.CSTNode) -> cst.Call:
        call = cst.ensure_type(node, cst.Call)
        subscript = cst.ensure_type(call.func, cst.Subscript)
        index = cst.SubscriptElement(cst.Index(new_grid))
        args = laid_out([*call.args, keyword_argument(tiles, text)], like=call.args)
        return call.with_changes(func=subscript.with_changes(slice=[index]), args=args)

    return rewrite


def _resize(parsed: TritonSource, launch: Launch) -> list[Option]:
    """Return the other numbers of programs of a launch whose grid is ``(min(E, N),)``."""
    extent = _only_extent(launch)
    capped = m.Call(func=m.Name("min"), args=[m.Arg(), m.Arg(value=m.Integer())])
    if not isinstance(extent, cst.Call) or not m.matches(extent, capped):
        return []
    literal = extent.args[1].value
    old = integer(literal)
    return [
        Option(
            f"persistent grid {old} -> {new} programs in {launch.kernel}",
            partial(parsed.replace, {literal: set_integer(new)}),
        )
        for new in PROGRAM_COUNTS
        if new != old
    ]
