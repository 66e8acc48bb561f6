"""Values that a kernel already holds are used again instead of being loaded or computed anew.

Within one block of statements, a load from the same place under the same mask as an earlier
load or store takes that value, and an expression that was computed before is not repeated.
A store ends what is known of its tensor, and of every tensor that it might overlap.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import cast

import libcst as cst
import libcst.matchers as m

from evolver.proposers.mutate.operators import Option
from evolver.proposers.mutate.triton_source import (
    TritonSource,
    find_tl_calls,
    is_tl_call,
    names_in,
    parse_triton,
)
from evolver.proposers.mutate.triton_tensors import base_of, exclusive_parameters, traffic_of

_RESHAPING = (
    "sum", "max", "min", "reduce", "argmax", "argmin", "xor_sum", "dot", "trans", "permute",
    "reshape", "view", "ravel", "join", "split", "gather", "expand_dims", "broadcast_to",
)  # fmt: skip
_MODULE = cst.Module([])


def reuse_options(source: str) -> list[Option]:
    """Take values that one kernel already holds instead of loading them again."""
    parsed = parse_triton(source)
    options: list[Option] = []
    for name, kernel in parsed.kernels.items():
        if traffic_of(parsed, kernel) is None or len(find_tl_calls(kernel, "load", "store")) < 2:
            continue
        reused = reuse(kernel, exclusive_parameters(parsed, kernel))
        fewer = len(find_tl_calls(reused, "load")) < len(find_tl_calls(kernel, "load"))
        if fewer:
            options.append(_option(parsed, f"values loaded once in {name}", kernel, reused))
    return options


def _option(
    parsed: TritonSource, description: str, old: cst.FunctionDef, new: cst.FunctionDef
) -> Option:
    return Option(description, lambda: parsed.replace({old: lambda _: new}))


def reuse(kernel: cst.FunctionDef, exclusive: Set[str]) -> cst.FunctionDef:
    """Return ``kernel`` with loads and expressions replaced by values that it already holds.

    ``exclusive`` are the pointer parameters whose memory overlaps no other parameter's.
    """
    return cst.ensure_type(_Reuse(kernel, exclusive).block(kernel), cst.FunctionDef)


def key_of(node: cst.BaseExpression) -> str:
    """Return ``node`` as text that does not depend on its layout."""
    return ast.unparse(ast.parse(f"({_MODULE.code_for_node(node)})", mode="eval"))


def assigned_names(node: cst.CSTNode) -> list[str]:
    """Return the names that are bound anywhere in ``node``, once for each place."""
    found: list[str] = []
    targets = m.AssignTarget() | m.AnnAssign() | m.AugAssign() | m.For()
    for place in m.findall(node, targets):
        if isinstance(place, cst.AssignTarget | cst.AnnAssign | cst.AugAssign | cst.For):
            found += sorted(names_in(place.target))
    return found


@dataclass(frozen=True)
class _Cell:
    """What a place in memory is known to hold: ``other`` where the mask is false."""

    base: str
    value: str
    other: str | None
    """None where a store put it there, and the lanes outside the mask hold something else."""
    mentioned: frozenset[str]


@dataclass
class _Known:
    """What holds at one point of a block."""

    may_rename: bool
    """A name bound in a loop or branch could be read behind it, where it is not renamed."""
    computed: dict[str, tuple[str, frozenset[str]]] = field(default_factory=dict)
    memory: dict[tuple[str, str], _Cell] = field(default_factory=dict)

    def forget_name(self, name: str) -> None:
        """``name`` is bound anew."""
        self.computed = {
            k: v for k, v in self.computed.items() if name != v[0] and name not in v[1]
        }
        self.memory = {
            k: c for k, c in self.memory.items() if name != c.value and name not in c.mentioned
        }

    def forget_memory(self, base: str | None, exclusive: Set[str]) -> None:
        """Something is stored through ``base``."""
        keeps = base is not None and base in exclusive
        self.memory = {k: c for k, c in self.memory.items() if keeps and c.base != base}


@dataclass(frozen=True)
class _Access:
    pointer: str
    mask: str
    other: str
    base: str
    mentioned: frozenset[str]


class _Reuse:
    def __init__(self, kernel: cst.FunctionDef, exclusive: Set[str]) -> None:
        self._kernel = kernel
        self._exclusive = exclusive
        names = assigned_names(kernel.body)
        self._once = {n for n in names if names.count(n) == 1}
        self._lanes = _Lanes(kernel)

    def block(self, owner: cst.CSTNode) -> cst.CSTNode:
        """Return ``owner`` (a function, loop or branch) with its block rewritten."""
        body = getattr(owner, "body", None)
        if not isinstance(body, cst.IndentedBlock):
            return owner
        statements = [s for s in body.body if isinstance(s, cst.BaseStatement)]
        new = self._statements(statements, top=owner is self._kernel)
        return owner.with_changes(body=body.with_changes(body=new))

    def _statements(
        self, statements: Sequence[cst.BaseStatement], *, top: bool
    ) -> list[cst.BaseStatement]:
        known, kept, same = _Known(may_rename=top), [], dict[str, str]()
        for original in statements:
            statement = _renamed(original, same)
            assign = single_assignment(statement)
            if assign is not None:
                new = self._assignment(statement, *assign, known, same)
            else:
                new = self._other(statement, known)
            kept += [new] if new is not None else []
        return kept

    def _assignment(
        self,
        statement: cst.BaseStatement,
        name: str,
        value: cst.BaseExpression,
        known: _Known,
        same: dict[str, str],
    ) -> cst.BaseStatement | None:
        access = self._access(value) if is_tl_call(value, "load") else None
        if access is not None:
            held = known.memory.get((access.pointer, access.mask))
            if held is not None and held.other == access.other:
                return self._copy(statement, name, held.value, known, same)
            if held is not None and held.other is None and self._fits(held.value, value):
                statement = _set_value(statement, _stored(held, access))
            known.forget_name(name)
            if name not in access.mentioned:
                self._remember(known, access, name, access.other)
            return statement
        if not _is_pure(value):
            return self._other(statement, known)
        key = key_of(value)
        holder = known.computed.get(key)
        is_constant = not names_in(value)
        if holder is not None and (holder[0] == name or (known.may_rename and not is_constant)):
            return self._copy(statement, name, holder[0], known, same)
        known.forget_name(name)
        if name not in names_in(value):
            known.computed[key] = (name, names_in(value))
        return statement

    def _copy(
        self,
        statement: cst.BaseStatement,
        name: str,
        holder: str,
        known: _Known,
        same: dict[str, str],
    ) -> cst.BaseStatement | None:
        """Make ``name`` another name for ``holder``: by renaming where both are bound once."""
        if name == holder:
            return None
        if known.may_rename and {name, holder} <= self._once:
            same[name] = holder
            return None
        known.forget_name(name)
        return _set_value(statement, cst.Name(holder))

    def _other(self, statement: cst.BaseStatement, known: _Known) -> cst.BaseStatement:
        new = self._nested(statement)
        for name in assigned_names(statement):
            known.forget_name(name)
        for call in find_tl_calls(statement, "store"):
            known.forget_memory(base_of(call.args[0].value, self._kernel), self._exclusive)
        stored = _plain_store(statement)
        access = self._access(stored) if stored is not None else None
        if access is not None and stored is not None and isinstance(stored.args[1].value, cst.Name):
            self._remember(known, access, stored.args[1].value.value, None)
        return new

    def _nested(self, statement: cst.BaseStatement) -> cst.BaseStatement:
        if isinstance(statement, cst.For | cst.If | cst.Else):
            new = self.block(statement)
            if isinstance(new, cst.If) and new.orelse is not None:
                new = new.with_changes(orelse=self._nested(new.orelse))  # type: ignore[arg-type]
            return new  # type: ignore[return-value]
        return statement

    def _remember(self, known: _Known, access: _Access, value: str, other: str | None) -> None:
        cell = _Cell(access.base, value, other, access.mentioned)
        known.memory[(access.pointer, access.mask)] = cell

    def _access(self, call: cst.CSTNode) -> _Access | None:
        """Return where a load or store goes; None where its mask is not plainly written."""
        node = cst.ensure_type(call, cst.Call)
        base = base_of(node.args[0].value, self._kernel)
        mask_at = 2 if is_tl_call(node, "store") else 1
        positional = [a for a in node.args if a.keyword is None]
        named = {a.keyword.value: a.value for a in node.args if a.keyword is not None}
        if (
            base is None
            or len(positional) > mask_at + 1
            or {"boundary_check", "volatile"} & {*named}
        ):
            return None
        mask = positional[mask_at].value if len(positional) > mask_at else named.get("mask")
        other = named.get("other")
        mask_key = "None" if mask is None else key_of(mask)
        mentioned = names_in(node.args[0].value) | (names_in(mask) if mask is not None else set())
        pointer = key_of(node.args[0].value)
        # What an unmasked load would hold elsewhere is never seen.
        other_key = "None" if other is None or mask_key == "None" else key_of(other)
        return _Access(pointer, mask_key, other_key, base, frozenset(mentioned))

    def _fits(self, value: str, load: cst.BaseExpression) -> bool:
        """Whether the stored ``value`` has the shape of what the load would give."""
        wanted = self._lanes.of(cst.ensure_type(load, cst.Call).args[0].value)
        return bool(wanted) and self._lanes.of_name(value) == wanted


class _Lanes:
    """The ``tl.arange`` calls that span a value: what tells a column of values from a block."""

    def __init__(self, kernel: cst.FunctionDef) -> None:
        self._values: dict[str, list[cst.BaseExpression]] = {}
        for node in m.findall(kernel.body, m.Assign(targets=[m.AssignTarget(m.Name())])):
            assign = cst.ensure_type(node, cst.Assign)
            name = cst.ensure_type(assign.targets[0].target, cst.Name).value
            self._values.setdefault(name, []).append(assign.value)

    def of(self, value: cst.BaseExpression, seen: frozenset[str] = frozenset()) -> frozenset[str]:
        """Return the ranges that span ``value``, empty where its shape cannot be told."""
        ranges = find_tl_calls(value, "arange")
        laid = [
            s
            for s in m.findall(value, m.Subscript())
            if isinstance(s, cst.Subscript) and s.value in ranges
        ]
        reshaped = len(laid) < len(m.findall(value, m.Subscript()))
        if reshaped or find_tl_calls(value, *_RESHAPING):
            return frozenset()
        bare = [r for r in ranges if not any(s.value is r for s in laid)]
        own = {_MODULE.code_for_node(node) for node in (*laid, *bare)}
        inner = [self.of_name(n, seen) for n in names_in(value) if n not in seen]
        return frozenset(own).union(*inner)

    def of_name(self, name: str, seen: frozenset[str] = frozenset()) -> frozenset[str]:
        """Return the ranges that span the variable ``name``, if all its values agree."""
        spans = {self.of(v, seen | {name}) for v in self._values.get(name, [])}
        return spans.pop() if len(spans) == 1 else frozenset()


def single_assignment(
    statement: cst.BaseStatement,
) -> tuple[str, cst.BaseExpression] | None:
    """Return ``(n, E)`` of the statement ``n = E``."""
    pattern = m.SimpleStatementLine(body=[m.Assign(targets=[m.AssignTarget(m.Name())])])
    if not m.matches(statement, pattern):
        return None
    assign = cst.ensure_type(
        cst.ensure_type(statement, cst.SimpleStatementLine).body[0], cst.Assign
    )
    return cst.ensure_type(assign.targets[0].target, cst.Name).value, assign.value


def _plain_store(statement: cst.BaseStatement) -> cst.Call | None:
    if not m.matches(statement, m.SimpleStatementLine(body=[m.Expr(m.Call())])):
        return None
    line = cst.ensure_type(statement, cst.SimpleStatementLine)
    call = cst.ensure_type(cst.ensure_type(line.body[0], cst.Expr).value, cst.Call)
    return call if is_tl_call(call, "store") and len(call.args) >= 2 else None


def _is_pure(value: cst.BaseExpression) -> bool:
    return not find_tl_calls(value, "load", "store", "rand", "randn", "randint", "debug_barrier")


def _stored(held: _Cell, access: _Access) -> cst.BaseExpression:
    kept = f"{held.value}.to({held.base}.dtype.element_ty)"
    if access.mask == "None" or access.other == "None":
        return cst.parse_expression(kept)
    return cst.parse_expression(f"tl.where({access.mask}, {kept}, {access.other})")


def _set_value(statement: cst.BaseStatement, value: cst.BaseExpression) -> cst.BaseStatement:
    line = cst.ensure_type(statement, cst.SimpleStatementLine)
    assign = cst.ensure_type(line.body[0], cst.Assign).with_changes(value=value)
    return line.with_changes(body=[assign])


def _renamed(statement: cst.BaseStatement, same: dict[str, str]) -> cst.BaseStatement:
    if not names_in(statement) & same.keys():
        return statement
    return rename(statement, same)


def rename(node: cst.BaseStatement, names: dict[str, str]) -> cst.BaseStatement:
    """Return ``node`` with its variables renamed; attributes and keywords stay."""
    renamed = node.visit(_Renamer(names))
    assert isinstance(renamed, cst.BaseStatement)  # a renamed statement is a statement
    return renamed


class _Renamer(cst.CSTTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        super().__init__()
        self._names = names

    def on_leave(
        self, original_node: cst.CSTNodeT, updated_node: cst.CSTNodeT
    ) -> cst.CSTNodeT | cst.RemovalSentinel | cst.FlattenSentinel[cst.CSTNodeT]:
        new: cst.CSTNode = updated_node
        if isinstance(updated_node, cst.Name):
            name = self._names.get(updated_node.value, updated_node.value)
            new = updated_node.with_changes(value=name)
        elif isinstance(updated_node, cst.Attribute) and isinstance(original_node, cst.Attribute):
            new = updated_node.with_changes(attr=original_node.attr)
        elif isinstance(updated_node, cst.Arg) and isinstance(original_node, cst.Arg):
            new = updated_node.with_changes(keyword=original_node.keyword)
        return cast(cst.CSTNodeT, new)
