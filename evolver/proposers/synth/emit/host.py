"""The Python around the kernels: sizes, checks, outputs, library products, what is returned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from evolver.proposers.synth import ir
from evolver.proposers.synth.aten import AtenGroup
from evolver.proposers.synth.emit.memory import Memory, Tensor, argument, contiguous
from evolver.proposers.synth.emit.names import Names, wanted_name
from evolver.proposers.synth.emit.scopes import EmitError
from evolver.proposers.synth.extents import Extent
from evolver.proposers.synth.plan import KernelStep, LibraryStep, Plan
from evolver.proposers.synth.types import TensorType


@dataclass
class Host:
    """The body of one function, while it is written."""

    plan: Plan
    names: Names
    group: AtenGroup | None = None
    """Of workloads that the plan serves; it knows arguments that the program does not read."""
    sizes: dict[str, str] = field(default_factory=dict)
    """Names of the symbols' sizes."""
    lines: list[str] = field(default_factory=list)
    written_back: list[tuple[str, str]] = field(default_factory=list)
    """Arguments that are written, with what kernels write to."""
    in_python: dict[int, str] = field(default_factory=dict)
    """How nodes that lie in memory are called."""

    def __post_init__(self) -> None:
        self.program = self.plan.program
        self.written = {parameter for parameter, _ in self.program.writes}
        self._bind_sizes()
        self.memory = Memory(self.sizes)
        self._arguments()

    @property
    def inputs(self) -> list[tuple[int, str]]:
        """Nodes that are arguments, with the parameter."""
        return [
            (number, node.op.parameter)
            for number, node in enumerate(self.program.nodes)
            if isinstance(node.op, ir.Input)
        ]

    def size(self, extent: Extent) -> str:
        """An extent in Python."""
        return self.memory.size(extent)

    def shape(self, shape: Sequence[Extent]) -> str:
        """A shape in Python."""
        inner = ", ".join(self.size(e) for e in shape)
        return f"({inner},)" if len(shape) == 1 else f"({inner})"

    def _bind_sizes(self) -> None:
        for symbol in self.program.symbols:
            name, expression = self._bound(symbol.name)
            self.sizes[symbol.name] = name
            self.lines.append(f"{name} = {expression}")

    def _bound(self, symbol: str) -> tuple[str, str]:
        """A symbol's name and how to read it off an argument's shape."""
        candidates = self._extents_of(symbol)
        if not candidates:
            raise EmitError(f"the size {symbol} is no argument's extent")
        _, axis, parameter, extent = min(candidates, key=lambda c: c[:2])
        base = Extent(tuple(t for t in extent.terms if t[0]))
        offset = (extent - base).constant or 0
        ((monomial, factor),) = base.terms
        if monomial != (symbol,):
            raise EmitError(f"the size {symbol} cannot be read off {parameter}'s shape")
        expression = f"{parameter}.shape[{axis}]"
        if offset:
            expression = f"({expression} - {offset})".replace("- -", "+ ")
        if factor != 1:
            expression = f"{expression} // {factor}"
        plain = symbol if not symbol.startswith("s") else f"{parameter}_size_{axis}"
        return self.names.fresh(plain), expression

    def _extents_of(self, symbol: str) -> list[tuple[int, int, str, Extent]]:
        """Extents that tell a symbol: how many terms, the axis, the argument, the extent."""
        found = [
            (len(extent.terms), axis, parameter, extent)
            for number, parameter in self.inputs
            for axis, extent in enumerate(self.program.nodes[number].type.shape)
            if extent.symbols == {symbol} and len(extent.terms) <= 2
        ]
        tensors = self.group.tensors if self.group is not None and not found else ()
        return found + [
            (1, axis, tensor.name, Extent.of(symbol))
            for tensor in tensors
            for axis, dimension in enumerate(tensor.dimensions)
            if dimension.symbol == symbol
        ]

    def _arguments(self) -> None:
        for number, parameter in self.inputs:
            type_ = self.program.nodes[number].type
            name = self._unit_strided(parameter, type_)
            tensor = argument(parameter, type_, name)
            self.memory.add_argument(parameter, tensor)
            self.memory.add_node(number, tensor)
            self.in_python[number] = parameter

    def _unit_strided(self, parameter: str, type_: TensorType) -> str:
        """Make an argument's last stride 1, and return its name from then on."""
        if not type_.rank:
            return parameter
        self.lines.append(f"assert {parameter}.shape == {self.shape(type_.shape)}")
        name = parameter
        if parameter in self.written:
            name = self.names.fresh(f"{parameter}_rows")
            self.written_back.append((parameter, name))
            self.lines.append(f"{name} = {parameter}")
        self.lines.append(f"if {name}.stride(-1) != 1:")
        self.lines.append(f"    {name} = {name}.contiguous()")
        return name

    @property
    def device(self) -> str:
        """Where outputs are made."""
        if not self.inputs:
            raise EmitError("there is no tensor among the arguments")
        return f"{self.inputs[0][1]}.device"

    def outputs(self, step: KernelStep) -> list[Tensor]:
        """Allocate what a kernel makes, and return all tensors that it stores to, in order."""
        tensors = []
        for store in step.stores:
            if store.parameter is not None:
                tensors.append(self.memory.arguments[store.parameter])
                continue
            node = self.program.nodes[store.node]
            name = self.names.fresh(node.label or "out")
            self.lines.append(
                f"{name} = torch.empty({self.shape(node.type.shape)}, "
                f"dtype=torch.{node.type.dtype.value}, device={self.device})"
            )
            tensors.append(contiguous(name, node.type))
        return tensors

    def stored(self, step: KernelStep, tensors: Sequence[Tensor]) -> None:
        """From here on kernels read what ``step`` stored."""
        for store, tensor in zip(step.stores, tensors, strict=True):
            self.memory.add_node(store.node, tensor)
            self.in_python[store.node] = tensor.name

    def library(self, step: LibraryStep) -> None:
        """Let the library compute a product."""
        node = self.program.nodes[step.node]
        if not isinstance(node.op, ir.Matmul):
            raise EmitError(f"a call of the library for {node.op.name} is not known")
        a, b = (self._view(o) for o in node.operands)
        name = self.names.fresh(wanted_name(node))
        self.lines.append(f"{name} = torch.matmul({a}, {b})")
        self.memory.add_node(step.node, contiguous(name, node.type))
        self.in_python[step.node] = name

    def _view(self, number: int) -> str:
        if number in self.in_python:
            return self.in_python[number]
        node = self.program.nodes[number]
        inner = self._view(node.operands[0]) if node.op.moves else ""
        match node.op:
            case ir.Reshape():
                return f"{inner}.reshape({self.shape(node.type.shape)})"
            case ir.Permute(order):
                return f"{inner}.permute({order})"
            case ir.Expand():
                return f"{inner}.expand({self.shape(node.type.shape)})"
            case ir.Slice(axis, start, length, step) if step > 0:
                end = start + (length - 1) * step + 1
                cut = f"{self.size(start)}:{self.size(end)}" + (f":{step}" if step > 1 else "")
                return f"{inner}[{':, ' * axis}{cut}]"
        raise EmitError(f"%{number} ({node.op}) is not in memory for the library")

    def returned(self) -> list[str]:
        """What follows the kernels: copies back into arguments, and the return statement."""
        lines = []
        for parameter, name in self.written_back:
            lines += [f"if {name} is not {parameter}:", f"    {parameter}.copy_({name})"]
        return [*lines, self._return()]

    def _return(self) -> str:
        values = [self._returned(r) for r in self.program.returns]
        if not self.program.returns_tuple:
            return f"return {values[0]}" if values else "return None"
        inner = ", ".join(values)
        return f"return {inner}," if len(values) == 1 else f"return {inner or '()'}"

    def _returned(self, value: ir.Returned) -> str:
        if value.argument is not None:
            return value.argument
        if value.node is None:
            return repr(value.constant)
        fresh = [s for k in self.plan.kernels for s in k.stores]
        if any(s.node == value.node and s.parameter is None for s in fresh):
            return self.in_python[value.node]
        return self._view(value.node)
