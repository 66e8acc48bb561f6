"""One kernel of a plan in C++: the loop over its rows, and the stores of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evolver.proposers.synth import ir
from evolver.proposers.synth.emit import cpp_text as cpp
from evolver.proposers.synth.emit.cpp_stages import Row, combined
from evolver.proposers.synth.emit.cpp_values import bare, indented
from evolver.proposers.synth.emit.index import Place, Variable
from evolver.proposers.synth.emit.lanes import Lanes
from evolver.proposers.synth.emit.memory import Memory, Tensor
from evolver.proposers.synth.emit.names import Names
from evolver.proposers.synth.emit.regions import Target, targets
from evolver.proposers.synth.extents import Extent, product
from evolver.proposers.synth.plan import KernelStep, Plan

SERIAL_WORK = 16384
"""Elements up to which starting threads costs more than it brings."""


@dataclass(frozen=True)
class _Loop:
    target: Target
    place: Place
    lines: list[str]


class CppKernel:
    """Writes the statements of one step."""

    def __init__(
        self,
        plan: Plan,
        step: KernelStep,
        memory: Memory,
        stored: Sequence[Tensor],
        names: Names,
        comment: Callable[[ir.Node], str],
    ) -> None:
        self._plan = plan
        self._step = step
        self._memory = memory
        self._stored = stored
        self._names = names
        self._comment = comment

    def lines(self) -> list[str]:
        """The kernel: rows in parallel, their stages, then their stores."""
        row, loops = self._written(frozenset())
        held = _hazards(row, loops)
        if held:
            row, loops = self._written(held)
        body = [*row.scopes.row.lines, *(line for loop in loops for line in loop.lines)]
        return self._rows(row, body)

    def _written(self, held: frozenset[int]) -> tuple[Row, list[_Loop]]:
        names = self._names.copy()
        lanes = Lanes(self._plan.axes, self._row_variables(names), names)
        row = Row(self._plan, self._memory, lanes, names, self._comment, held)
        found = [
            self._store(row, lanes, target)
            for store, tensor in zip(self._step.stores, self._stored, strict=True)
            for target in targets(self._plan.program, store, tensor)
        ]
        # What goes to a tensor of its own comes first: it may read what is overwritten then.
        return row, sorted(found, key=lambda loop: loop.target.tensor.parameter is not None)

    def _row_variables(self, names: Names) -> dict[int, Variable]:
        atoms = self._step.rows
        if not self._step.lanes and len(atoms) > 1:
            atoms = atoms[:-1]
        extents = self._plan.axes.extents
        return {
            atom: Variable(names.row(position, len(atoms)), extents[atom])
            for position, atom in enumerate(atoms)
        }

    def _store(self, row: Row, lanes: Lanes, target: Target) -> _Loop:
        node = self._plan.program.nodes[target.value]
        spread = lanes.over_rows(target.value)
        place = target.place(spread.place)

        def body() -> str:
            value = row.value(target.value, spread.place)
            element = f"{target.tensor.name}[{row.index(target.tensor.offset(place))}]"
            dtype = target.tensor.dtype
            if target.region.combine == "store":
                return f"{element} = {cpp.stored(bare(value), dtype)};"
            op = ir.Put(target.region.combine)  # type: ignore[arg-type]
            both = combined(op, cpp.loaded(element, dtype), value, dtype).split(" = ", 1)[1][:-1]
            return f"{element} = {cpp.stored(both, dtype)};"

        pragma = "#pragma omp simd" if not target.region.indices else ""
        lines = row.loops(spread.loops, body, pragma)
        said = self._comment(node)
        return _Loop(target, place, ([f"// {said}"] if said else []) + lines)

    def _rows(self, row: Row, body: Sequence[str]) -> list[str]:
        variables = list(row.lanes.rows.values())
        scratch = [
            f"const std::unique_ptr<{s.c_type}[]> {s.name}(new {s.c_type}[{s.size}]);"
            for s in row.scratch
        ]
        if not variables:
            return ["{", *indented([*scratch, *body]), "}"]
        work = self._work()
        small = work.constant is not None and work.constant <= SERIAL_WORK
        condition = f" if ({self._memory.size(work)} > {SERIAL_WORK})"
        condition = condition if work.constant is None else ""
        collapse = f" collapse({len(variables)})" if len(variables) > 1 else ""
        chunk = f" schedule(static, {self._step.genes.rows})" if self._step.genes.rows > 1 else ""
        loops = list(body)
        for variable in reversed(variables):
            end = row.size(variable.extent)
            head = f"for (int64_t {variable.name} = 0; {variable.name} < {end}; "
            loops = [f"{head}++{variable.name}) {{", *indented(loops), "}"]
        if small:
            return ["{", *indented([*scratch, *loops]), "}"] if scratch else loops
        if not scratch:
            return [f"#pragma omp parallel for{collapse}{chunk}{condition}", *loops]
        inner = [*scratch, f"#pragma omp for{collapse}{chunk}", *loops]
        return [f"#pragma omp parallel{condition}", "{", *indented(inner), "}"]

    def _work(self) -> Extent:
        """How many elements the kernel computes, at least."""
        extents = self._plan.axes.extents
        sizes = [
            product(extents[a] for axis in self._plan.axes.of[n] for a in axis)
            for n in (*self._step.body, *(s.node for s in self._step.stores))
        ]
        return max(sizes, key=lambda e: e.at(dict.fromkeys(e.symbols, 64)))


def _hazards(row: Row, loops: Sequence[_Loop]) -> frozenset[int]:
    """Values that must be whole before any of them is stored over what they are made of."""
    written: dict[str, list[Place]] = {}
    for loop in loops:
        if loop.target.tensor.parameter is not None:
            written.setdefault(loop.target.tensor.parameter, []).append(loop.place)
    read = {(p, place) for p, place in row.reads if p in written}
    alone = len([place for places in written.values() for place in places]) == 1
    if not read or (alone and all(written[p] == [place] for p, place in read)):
        return frozenset()
    return frozenset(o.target.value for o in loops if o.target.tensor.parameter is not None)
