"""Launch constants: tile sizes, ``num_warps`` and ``num_stages``, one at a time.

A tile's size moves by a factor of two and takes ``triton.cdiv(n, B)`` in the grid with it.
Which tiles may move, and which may only shrink, is decided in ``triton_tiles.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import prod

import libcst as cst
import libcst.matchers as m

from evolver.proposers.mutate.operators import Option
from evolver.proposers.mutate.triton_source import (
    Launch,
    NodeEdit,
    TritonSource,
    find_tl_calls,
    integer,
    parse_triton,
    set_integer,
    set_keywords,
)
from evolver.proposers.mutate.triton_tiles import Tile, movable_tiles

MAX_TILE = 8192
MAX_TILE_ELEMENTS = 65536
"""Beyond this a tile no longer fits the registers of one block of 1,024 threads."""
MIN_DOT_TILE = 16
"""``tl.dot`` takes no smaller dimension."""
MAX_WARPS = 32
MAX_STAGES = 6
REGISTERS = (32, 64, 128)
DEFAULTS = {"num_warps": 4, "num_stages": 3}
"""What Triton assumes where the launch does not say."""


@dataclass(frozen=True)
class _Size:
    """Where the size of a tile is written: in the launch, or in a variable of its own."""

    value: int
    literal: cst.Integer
    variable: str | None


def tile_options(source: str) -> list[Option]:
    """Double or halve one tile."""
    parsed = parse_triton(source)
    return [o for launch in parsed.launches for o in _launch_tiles(parsed, launch)]


def warps_options(source: str) -> list[Option]:
    """Double or halve ``num_warps``."""
    return _knob_options(source, "num_warps", lambda n: (n * 2, n // 2), MAX_WARPS)


def stages_options(source: str) -> list[Option]:
    """Move ``num_stages`` by one, in kernels with a loop to pipeline."""
    return _knob_options(source, "num_stages", lambda n: (n + 1, n - 1), MAX_STAGES)


def registers_options(source: str) -> list[Option]:
    """Bound the registers of a thread, so that more blocks run at once, or no longer."""
    parsed = parse_triton(source)
    options: list[Option] = []
    for launch in parsed.launches:
        argument = launch.keyword("maxnreg")
        now = None if argument is None else parsed.text(argument.value)
        for count in (*map(str, REGISTERS), None):
            if count != now:
                what = "registers as needed" if count is None else f"at most {count} registers"
                edit = partial(set_keywords, maxnreg=count)
                build = partial(parsed.replace, {launch.call: edit})
                options.append(Option(f"{what} in {launch.kernel}", build))
    return options


def _launch_tiles(parsed: TritonSource, launch: Launch) -> Iterator[Option]:
    kernel = parsed.kernels[launch.kernel]
    smallest = MIN_DOT_TILE if find_tl_calls(kernel, "dot") else 1
    sizes = {t: s for t in movable_tiles(kernel) if (s := _size(parsed, launch, t.name))}
    elements = prod(s.value for s in sizes.values())
    for tile, size in sizes.items():
        grid = _grid_edits(parsed, launch, tile, size)
        if grid is None:
            continue
        for new in (size.value * 2, size.value // 2):
            fits = elements * new // size.value <= MAX_TILE_ELEMENTS
            if smallest <= new <= MAX_TILE and (new < size.value or (fits and tile.masked)):
                yield _tile_option(parsed, launch, tile, size, new, grid)


def _tile_option(
    parsed: TritonSource, launch: Launch, tile: Tile, size: _Size, new: int, grid: list[cst.Integer]
) -> Option:
    edits: dict[cst.CSTNode, NodeEdit] = {n: set_integer(new) for n in (size.literal, *grid)}
    description = f"{tile.name} {size.value} -> {new} in {launch.kernel}"
    return Option(description, lambda: parsed.replace(edits))


def _size(parsed: TritonSource, launch: Launch, name: str) -> _Size | None:
    argument = launch.keyword(name)
    if argument is None:
        return None
    variable = argument.value.value if isinstance(argument.value, cst.Name) else None
    literal = argument.value if variable is None else _only_value(parsed, launch, variable)
    value = integer(literal)
    if not isinstance(literal, cst.Integer) or value is None or value & (value - 1) or value < 1:
        return None
    return _Size(value, literal, variable)


def _only_value(parsed: TritonSource, launch: Launch, variable: str) -> cst.BaseExpression | None:
    """Return what ``variable`` is assigned, if that happens once and only this launch uses it."""
    assigned = _assigned_values(parsed, variable)
    others = [o for o in parsed.launches if o is not launch and _mentions(o.call, variable)]
    return assigned[0] if len(assigned) == 1 and not others else None


def _assigned_values(parsed: TritonSource, variable: str) -> list[cst.BaseExpression]:
    target = m.Assign(targets=[m.AssignTarget(target=m.Name(variable))])
    return [cst.ensure_type(a, cst.Assign).value for a in m.findall(parsed.tree, target)]


def _mentions(node: cst.CSTNode, variable: str) -> bool:
    return bool(m.findall(node, m.Name(variable)))


def _grid_edits(
    parsed: TritonSource, launch: Launch, tile: Tile, size: _Size
) -> list[cst.Integer] | None:
    """Return the literals that must follow the tile's size; None if the grid cannot follow."""
    if tile.axis is None:
        return []
    extent = _grid_extent(parsed, launch, tile.axis)
    if extent is None:
        return None
    # A persistent kernel is also told its number of tiles: the same division, by keyword.
    places = [extent, *(a.value for a in launch.call.args if a.keyword is not None)]
    divisors = [d for place in places for d in _cdiv_divisors(place)]
    if size.variable is not None:
        return [] if any(_mentions(d, size.variable) for d in _cdiv_divisors(extent)) else None
    if any(m.matches(d, _meta(tile.name)) for d in _cdiv_divisors(extent)):
        return []
    literals = [d for d in divisors if isinstance(d, cst.Integer) and integer(d) == size.value]
    return literals if any(d in literals for d in _cdiv_divisors(extent)) else None


def _grid_extent(parsed: TritonSource, launch: Launch, axis: int) -> cst.BaseExpression | None:
    grid: cst.BaseExpression = launch.grid
    if isinstance(grid, cst.Name):
        assigned = _only_value(parsed, launch, grid.value)
        if assigned is None:
            return None
        grid = assigned
    if isinstance(grid, cst.Lambda):
        grid = grid.body
    if not isinstance(grid, cst.Tuple) or axis >= len(grid.elements):
        return None
    return grid.elements[axis].value


def _cdiv_divisors(extent: cst.BaseExpression) -> list[cst.BaseExpression]:
    cdiv = m.Call(func=m.Attribute(value=m.Name("triton"), attr=m.Name("cdiv")))
    calls = [cst.ensure_type(c, cst.Call) for c in m.findall(extent, cdiv)]
    return [c.args[1].value for c in calls if len(c.args) == 2]


def _meta(name: str) -> m.Subscript:
    index = m.Index(m.SimpleString(f'"{name}"') | m.SimpleString(f"'{name}'"))
    return m.Subscript(slice=[m.SubscriptElement(index)])


def _knob_options(
    source: str, knob: str, moves: Callable[[int], tuple[int, int]], largest: int
) -> list[Option]:
    parsed = parse_triton(source)
    options: list[Option] = []
    for launch in parsed.launches:
        if knob == "num_stages" and not m.findall(parsed.kernels[launch.kernel], m.For()):
            continue  # nothing to pipeline
        argument = launch.keyword(knob)
        old = DEFAULTS[knob] if argument is None else integer(argument.value)
        if old is None:
            continue
        news = [n for n in moves(old) if 1 <= n <= largest]
        options += [_knob_option(parsed, launch, knob, old, new) for new in news]
    return options


def _knob_option(parsed: TritonSource, launch: Launch, knob: str, old: int, new: int) -> Option:
    argument = launch.keyword(knob)
    edits: dict[cst.CSTNode, NodeEdit] = (
        {launch.call: lambda call: set_keywords(call, **{knob: str(new)})}
        if argument is None
        else {argument.value: set_integer(new)}
    )
    return Option(f"{knob} {old} -> {new} in {launch.kernel}", lambda: parsed.replace(edits))
