"""One kernel of a plan in C++: the loop over its rows, and the stores of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evolver.proposers.synth import ir
from evolver.proposers.synth.emit import cpp_text as cpp
from evolver.proposers.synth.emit.call import indented
from evolver.proposers.synth.emit.cpp_stages import Row, combination
from evolver.proposers.synth.emit.cpp_values import bare
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
class _Write:
    """A value's store: from where to where, and the loops over it."""

    target: Target
    source: Place
    place: Place
    loops: tuple[Variable, ...]

    @property
    def in_place(self) -> bool:
        """Whether an argument is overwritten."""
        return self.target.tensor.parameter is not None


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
        row, writes, body = self._written(frozenset())
        held = _hazards(row, writes)
        if held:
            row, writes, body = self._written(held)
        return self._rows(row, [*row.scopes.row.lines, *body])

    def _written(self, held: frozenset[int]) -> tuple[Row, list[_Write], list[str]]:
        names = self._names.copy()
        lanes = Lanes(self._plan.axes, self._row_variables(names), names)
        row = Row(self._plan, self._memory, lanes, names, self._comment, held)
        writes = [
            _write(lanes, target)
            for store, tensor in zip(self._step.stores, self._stored, strict=True)
            for target in targets(self._plan.program, store, tensor)
        ]
        # What goes to a tensor of its own comes first: it may read what is overwritten then.
        writes.sort(key=lambda write: write.in_place)
        groups: list[list[_Write]] = []
        for write in writes:
            if groups and groups[-1][0].loops == write.loops:
                groups[-1].append(write)
            else:
                groups.append([write])
        return row, writes, [line for group in groups for line in self._stores(row, group)]

    def _row_variables(self, names: Names) -> dict[int, Variable]:
        atoms = self._step.rows
        if not self._step.lanes and len(atoms) > 1:
            atoms = atoms[:-1]
        extents = self._plan.axes.extents
        return {
            atom: Variable(names.row(position, len(atoms)), extents[atom])
            for position, atom in enumerate(atoms)
        }

    def _stores(self, row: Row, writes: Sequence[_Write]) -> list[str]:
        """One loop that stores values of one shape."""

        def body() -> str:
            *others, last = (self._store(row, write) for write in writes)
            row.scopes.inner.lines.extend(others)
            return last

        said = [self._comment(self._plan.program.nodes[w.target.value]) for w in writes]
        comments = [f"// {line}" for line in dict.fromkeys(said) if line]
        indexed = any(w.target.region.indices for w in writes)
        pragma = "" if indexed else "#pragma omp simd"
        return [*comments, *row.loops(writes[0].loops, body, pragma)]

    def _store(self, row: Row, write: _Write) -> str:
        tensor, region = write.target.tensor, write.target.region
        value = row.value(region.value, write.source)
        element = f"{tensor.name}[{row.index(tensor.offset(write.place))}]"
        if region.combine != "store":
            old = cpp.loaded(element, tensor.dtype)
            value = combination(region.combine, old, value, tensor.dtype)
        return f"{element} = {cpp.stored(bare(value), tensor.dtype)};"

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


def _write(lanes: Lanes, target: Target) -> _Write:
    spread = lanes.over_rows(target.value)
    return _Write(target, spread.place, target.place(spread.place), spread.loops)


def _hazards(row: Row, writes: Sequence[_Write]) -> frozenset[int]:
    """Values that must be whole before any of them is stored over what they are made of."""
    in_place = [w for w in writes if w.in_place]
    places = {(w.target.tensor.parameter, w.place) for w in in_place}
    parameters = {parameter for parameter, _ in places}
    read = {(parameter, place) for parameter, place in row.reads if parameter in parameters}
    if not read or (len(in_place) == 1 and read == places):
        return frozenset()
    return frozenset(w.target.value for w in in_place)
