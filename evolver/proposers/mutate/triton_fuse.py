"""Two launches become one: one after the other in each program, or side by side in one grid.

With the same grid, each program of the fused kernel does the first kernel's work and then the
second's. Programs do not wait for each other, so the second may read what the first wrote
only where its own program wrote it: the value is handed over in registers, and where the
text does not show that, the fusion is not offered. With other grids, the two must touch
nothing that the other writes; the first programs then do one kernel's work, the rest the
other's. Launches between the two are passed over where they touch nothing in common either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import libcst as cst
import libcst.matchers as m

from evolver.proposers.mutate.operators import Option, fresh_name
from evolver.proposers.mutate.triton_forward import assigned_names, rename, reuse
from evolver.proposers.mutate.triton_launch import DEFAULTS
from evolver.proposers.mutate.triton_source import (
    Launch,
    NodeEdit,
    TritonSource,
    calls_in,
    find_tl_calls,
    integer,
    names_in,
    parse_triton,
)
from evolver.proposers.mutate.triton_tensors import (
    arguments_of,
    base_of,
    is_allocation,
    separate_tensors,
    traffic_of,
)

LINE_LENGTH = 70
_NO_COMMA = cst.MaybeSentinel.DEFAULT
_KNOBS = ("num_warps", "num_stages")
MAX_PARAMETERS = 40
"""Fusing stops before a kernel's interface, and with it each search step, grows without end."""


@dataclass(frozen=True)
class _Step:
    """A launch as a statement of its wrapper, with the tensors that it reads and writes."""

    position: int
    launch: Launch
    kernel: cst.FunctionDef
    arguments: Mapping[str, cst.Arg]
    reads: frozenset[str]
    writes: frozenset[str]

    def commutes_with(self, other: _Step) -> bool:
        """Whether the order of the two does not matter."""
        mine, theirs = self.writes & (other.reads | other.writes), self.reads & other.writes
        return not mine and not theirs


def fuse_options(source: str) -> list[Option]:
    """Fuse two launches of one wrapper, as a sequence or side by side."""
    parsed = parse_triton(source)
    functions = [f for f in parsed.tree.body if isinstance(f, cst.FunctionDef)]
    wrappers = [f for f in functions if f.name.value not in parsed.kernels]
    return [o for wrapper in wrappers for o in _fusions(parsed, wrapper)]


def _fusions(parsed: TritonSource, wrapper: cst.FunctionDef) -> list[Option]:
    statements = [s for s in wrapper.body.body if isinstance(s, cst.BaseStatement)]
    steps = _steps(parsed, wrapper, statements)
    options: list[Option] = []
    for first in steps:
        for second in (s for s in steps if s.position > first.position):
            between = [s for s in steps if first.position < s.position < second.position]
            plain = _only_steps(statements, between, first.position + 1, second.position)
            if not plain or not _can_meet(first, second, between):
                continue
            options += _pair(parsed, wrapper, statements, first, second, between)
    return options


def _steps(
    parsed: TritonSource, wrapper: cst.FunctionDef, statements: Sequence[cst.BaseStatement]
) -> list[_Step]:
    separate = separate_tensors(parsed, wrapper)
    found: list[_Step] = []
    for position, statement in enumerate(statements):
        if not m.matches(statement, m.SimpleStatementLine(body=[m.Expr(m.Call())])):
            continue
        launch = next((la for la in parsed.launches if la.call in calls_in(statement)), None)
        step = _step(parsed, launch, position, separate) if launch is not None else None
        found += [step] if step is not None else []
    return found


def _step(
    parsed: TritonSource, launch: Launch, position: int, separate: frozenset[str]
) -> _Step | None:
    kernel = parsed.kernels[launch.kernel]
    traffic, arguments = traffic_of(parsed, kernel), arguments_of(launch, kernel)
    if traffic is None or arguments is None or _is_intricate(kernel, launch):
        return None
    tensors = {p: arguments[p].value for p in traffic.reads | traffic.writes}
    names = {p: v.value for p, v in tensors.items() if isinstance(v, cst.Name)}
    if names.keys() != tensors.keys():
        return None
    reads = frozenset(names[p] for p in traffic.reads)
    writes = frozenset(names[p] for p in traffic.writes)
    only_literals = all(integer(a.value) is not None for k in _KNOBS if (a := launch.keyword(k)))
    apart = writes <= separate and len(set(names.values())) == len(names)
    return (
        _Step(position, launch, kernel, arguments, reads, writes)
        if apart and only_literals
        else None
    )


def _is_intricate(kernel: cst.FunctionDef, launch: Launch) -> bool:
    extra = {a.keyword.value for a in launch.call.args if a.keyword} - {
        *_KNOBS,
        "maxnreg",  # a bound for one of the two says nothing about both
        *(p.name.value for p in kernel.params.params),
    }
    return (
        bool(extra)
        or bool(m.findall(kernel, m.Return()))
        or any(p.default is not None for p in kernel.params.params)
        or not isinstance(launch.grid, cst.Tuple)
        or len(kernel.decorators) != 1
        or isinstance(kernel.decorators[0].decorator, cst.Call)
    )


def _only_steps(
    statements: Sequence[cst.BaseStatement], steps: Sequence[_Step], start: int, stop: int
) -> bool:
    known = {s.position for s in steps}
    return all(i in known or is_allocation(statements[i]) for i in range(start, stop))


def _can_meet(first: _Step, second: _Step, between: Sequence[_Step]) -> bool:
    """Whether one of the two may move over the launches between, to the other."""
    return all(first.commutes_with(s) for s in between) or all(
        second.commutes_with(s) for s in between
    )


def _pair(
    parsed: TritonSource,
    wrapper: cst.FunctionDef,
    statements: Sequence[cst.BaseStatement],
    first: _Step,
    second: _Step,
    between: Sequence[_Step],
) -> list[Option]:
    parameters = len(first.kernel.params.params) + len(second.kernel.params.params)
    if parameters > MAX_PARAMETERS:
        return []
    same_grid = parsed.text(first.launch.grid) == parsed.text(second.launch.grid)
    fused = (
        _in_sequence(parsed, wrapper, first, second)
        if same_grid
        else _side_by_side(parsed, first, second)
    )
    if fused is None:
        return []
    build = partial(_build, parsed, wrapper, statements, (first, second), between, fused)
    how = "one after the other" if same_grid else "side by side"
    what = f"{first.launch.kernel} and {second.launch.kernel} in one launch, {how}"
    return [Option(what, build)]


@dataclass(frozen=True)
class _Fused:
    kernel: cst.FunctionDef
    call: cst.SimpleStatementLine


def _in_sequence(
    parsed: TritonSource, wrapper: cst.FunctionDef, first: _Step, second: _Step
) -> _Fused | None:
    handed_over = first.writes & second.reads
    if (first.writes & second.writes) or (first.reads & second.writes):
        return None
    merged = _Merged.of(parsed, first, second, share_constants=True)
    body = [*_with_named_stores(merged.first, first.kernel), *merged.second]
    kernel = reuse(merged.kernel(body), merged.exclusive(parsed))
    left = [base_of(c.args[0].value, kernel) for c in find_tl_calls(kernel, "load")]
    shared = {p for p, a in merged.arguments.items() if parsed.text(a.value) in handed_over}
    if shared & set(left):
        return None
    dead = {p for p in shared if _serves_two_launches(wrapper, merged.arguments[p].value)}
    kernel = _without_stores(kernel, dead)
    return _Fused(kernel, merged.call(parsed.text(first.launch.grid)))


def _serves_two_launches(wrapper: cst.FunctionDef, tensor: cst.BaseExpression) -> bool:
    """Whether ``tensor`` is allocated in ``wrapper`` and passed to two launches, and no more."""
    name = cst.ensure_type(tensor, cst.Name).value
    assigned = m.findall(wrapper.body, m.AssignTarget(m.Name(name)))
    return len(assigned) == 1 and len(m.findall(wrapper, m.Name(name))) == 3


def _without_stores(kernel: cst.FunctionDef, pointers: set[str]) -> cst.FunctionDef:
    kept = [s for s in kernel.body.body if not _stores_to(s, kernel, pointers)]
    return kernel.with_changes(body=kernel.body.with_changes(body=kept))


def _stores_to(statement: cst.CSTNode, kernel: cst.FunctionDef, pointers: set[str]) -> bool:
    is_line = isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1
    calls = find_tl_calls(statement, "store")
    return is_line and len(calls) == 1 and base_of(calls[0].args[0].value, kernel) in pointers


def _side_by_side(parsed: TritonSource, first: _Step, second: _Step) -> _Fused | None:
    extents = [_extent(parsed, s.launch) for s in (first, second)]
    if not first.commutes_with(second) or None in extents:
        return None
    if any(not _uses_axis_0_alone(s.kernel) for s in (first, second)):
        return None
    merged = _Merged.of(parsed, first, second, share_constants=False)
    taken = {*merged.arguments, *assigned_names(first.kernel), *assigned_names(second.kernel)}
    border = fresh_name("first_programs", taken)
    pid = m.Call(func=m.Attribute(m.Name("tl"), m.Name("program_id")))
    shifted = cst.parse_expression(f"(tl.program_id(0) - {border})")
    rest = m.replace(cst.IndentedBlock(merged.second), pid, shifted)
    branch = cst.If(
        test=cst.parse_expression(f"tl.program_id(0) < {border}"),
        body=cst.IndentedBlock(merged.first),
        orelse=cst.Else(body=cst.ensure_type(rest, cst.IndentedBlock)),
    )
    kernel = merged.kernel([branch], extra=border)
    grid = f"({extents[0]} + {extents[1]},)"
    return _Fused(kernel, merged.call(grid, extra=f"{border}={extents[0]}"))


def _extent(parsed: TritonSource, launch: Launch) -> str | None:
    grid = cst.ensure_type(launch.grid, cst.Tuple)
    return parsed.text(grid.elements[0].value) if len(grid.elements) == 1 else None


def _uses_axis_0_alone(kernel: cst.FunctionDef) -> bool:
    pids = find_tl_calls(kernel, "program_id")
    plain = all(len(c.args) == 1 and integer(c.args[0].value) == 0 for c in pids)
    return bool(pids) and plain and not find_tl_calls(kernel, "num_programs")


@dataclass(frozen=True)
class _Merged:
    """The statements of two kernels with their names kept apart, and the arguments of both."""

    name: str
    first: Sequence[cst.BaseStatement]
    second: Sequence[cst.BaseStatement]
    parameters: Mapping[str, cst.Param]
    arguments: Mapping[str, cst.Arg]
    tensors: frozenset[str]
    knobs: Mapping[str, int]

    @classmethod
    def of(
        cls, parsed: TritonSource, first: _Step, second: _Step, *, share_constants: bool
    ) -> _Merged:
        """Rename what ``second`` has in common with ``first``; equal arguments are passed once."""
        parameters = {p.name.value: p for p in first.kernel.params.params}
        arguments = dict(first.arguments)
        taken = set(parameters) | set(assigned_names(first.kernel)) | names_in(second.kernel)
        names: dict[str, str] = {}
        for parameter in second.kernel.params.params:
            name, argument = parameter.name.value, second.arguments[parameter.name.value]
            twin = _twin(parsed, parameter, argument, parameters, arguments, share_constants)
            names[name] = twin or fresh_name(name, (taken - {name}) | set(parameters))
            if twin is None:
                parameters[names[name]] = parameter.with_changes(name=cst.Name(names[name]))
                arguments[names[name]] = _renamed_argument(argument, names[name])
            taken.add(names[name])
        for local in sorted(set(assigned_names(second.kernel))):
            if local in taken & {*assigned_names(first.kernel), *parameters}:
                names[local] = fresh_name(local, taken)
                taken.add(names[local])
        tensors = first.reads | first.writes | second.reads | second.writes
        return cls(
            name=fresh_name("fused_kernel", names_in(parsed.tree)),
            first=[s for s in first.kernel.body.body if isinstance(s, cst.BaseStatement)],
            second=[
                rename(s, names)
                for s in second.kernel.body.body
                if isinstance(s, cst.BaseStatement)
            ],
            parameters=parameters,
            arguments=arguments,
            tensors=frozenset(p for p, a in arguments.items() if parsed.text(a.value) in tensors),
            knobs={k: max(_knob(s.launch, k) for s in (first, second)) for k in _KNOBS},
        )

    def kernel(
        self, body: Sequence[cst.BaseStatement], *, extra: str | None = None
    ) -> cst.FunctionDef:
        """Return the kernel: positional parameters first, then those passed by keyword."""
        code = cst.Module([]).code_for_node
        bare = [self.parameters[n].with_changes(comma=_NO_COMMA) for n in self._in_order()]
        listed = _listed([*map(code, bare), *([extra] if extra is not None else [])])
        text = f"\n\n@triton.jit\ndef {self.name}({listed}):\n    pass\n"
        function = cst.ensure_type(cst.parse_statement(text), cst.FunctionDef)
        return function.with_changes(body=cst.IndentedBlock(body))

    def call(self, grid: str, *, extra: str | None = None) -> cst.SimpleStatementLine:
        """Return the launch on ``grid``; ``extra`` is one more argument."""
        code = cst.Module([]).code_for_node
        given = [(self.arguments[n].keyword, self.arguments[n].value) for n in self._in_order()]
        texts = [code(v) if k is None else f"{k.value}={code(v)}" for k, v in given]
        texts += [extra] if extra is not None else []
        texts += [f"{knob}={value}" for knob, value in self.knobs.items()]
        text = f"{self.name}[{grid}]({_listed(texts)})"
        return cst.ensure_type(cst.parse_statement(text), cst.SimpleStatementLine)

    def exclusive(self, parsed: TritonSource) -> frozenset[str]:
        """Return the pointer parameters whose tensor comes in by no other parameter."""
        texts = [parsed.text(self.arguments[p].value) for p in self.parameters]
        return frozenset(
            p for p in self.tensors if texts.count(parsed.text(self.arguments[p].value)) == 1
        )

    def _in_order(self) -> list[str]:
        return sorted(self.parameters, key=lambda n: self.arguments[n].keyword is not None)


def _listed(texts: Sequence[str]) -> str:
    line = ", ".join(texts)
    if len(line) <= LINE_LENGTH:
        return line
    return "".join(f"\n    {text}," for text in texts) + "\n"


def _twin(
    parsed: TritonSource,
    parameter: cst.Param,
    argument: cst.Arg,
    parameters: Mapping[str, cst.Param],
    arguments: Mapping[str, cst.Arg],
    share_constants: bool,
) -> str | None:
    """Return the parameter that already stands for the same argument in the same way."""
    is_constant = parameter.annotation is not None
    if is_constant and not share_constants:
        return None
    for name, other in parameters.items():
        alike = (other.annotation is not None) == is_constant
        if is_constant and name != parameter.name.value:
            continue
        if alike and parsed.text(arguments[name].value) == parsed.text(argument.value):
            return name
    return None


def _renamed_argument(argument: cst.Arg, name: str) -> cst.Arg:
    return argument if argument.keyword is None else argument.with_changes(keyword=cst.Name(name))


def _knob(launch: Launch, knob: str) -> int:
    argument = launch.keyword(knob)
    value = integer(argument.value) if argument is not None else None
    return DEFAULTS[knob] if value is None else value


def _with_named_stores(
    statements: Sequence[cst.BaseStatement], kernel: cst.FunctionDef
) -> list[cst.BaseStatement]:
    """Give each stored expression a name, so that what follows can use it."""
    taken = names_in(kernel)
    named: list[cst.BaseStatement] = []
    for statement in statements:
        calls = find_tl_calls(statement, "store")
        is_line = isinstance(statement, cst.SimpleStatementLine)
        value = calls[0].args[1].value if is_line and len(calls) == 1 else None
        if value is None or isinstance(value, cst.Name) or calls[0].args[1].keyword is not None:
            named.append(statement)
            continue
        name = fresh_name("stored", taken)
        taken = taken | {name}
        assign = cst.Assign([cst.AssignTarget(cst.Name(name))], value)
        named.append(cst.SimpleStatementLine([assign]))
        named.append(_replaced(statement, value, name))
    return named


def _replaced(
    statement: cst.BaseStatement, value: cst.BaseExpression, name: str
) -> cst.BaseStatement:
    return cst.ensure_type(statement.deep_replace(value, cst.Name(name)), cst.SimpleStatementLine)


def _build(
    parsed: TritonSource,
    wrapper: cst.FunctionDef,
    statements: Sequence[cst.BaseStatement],
    pair: tuple[_Step, _Step],
    between: Sequence[_Step],
    fused: _Fused,
) -> str:
    first, second = pair
    inside = statements[first.position + 1 : second.position]
    allocations = [s for s in inside if is_allocation(s)]
    others = [s for s in inside if not is_allocation(s)]
    first_moves = all(first.commutes_with(s) for s in between)
    middle = (
        [*allocations, *others, fused.call] if first_moves else [*allocations, fused.call, *others]
    )
    new = [*statements[: first.position], *middle, *statements[second.position + 1 :]]
    body = cst.ensure_type(wrapper.body, cst.IndentedBlock).with_changes(body=new)
    both = cst.FlattenSentinel[cst.CSTNode]([fused.kernel, wrapper.with_changes(body=body)])
    edits: dict[cst.CSTNode, NodeEdit] = {wrapper: lambda _: both}
    for kernel in _no_longer_launched(parsed, pair):
        edits[kernel] = lambda _: cst.RemoveFromParent()
    return parsed.replace(edits)


def _no_longer_launched(parsed: TritonSource, pair: tuple[_Step, _Step]) -> list[cst.FunctionDef]:
    fused = {id(step.launch.call) for step in pair}
    kept = {la.kernel for la in parsed.launches if id(la.call) not in fused}
    gone = {step.kernel.name.value: step.kernel for step in pair}
    return [k for name, k in gone.items() if name not in kept]
