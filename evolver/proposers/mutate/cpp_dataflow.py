"""Whether the iterations of a loop may run in any order, judged from its text alone.

They may when each write goes to a variable of the iteration itself, to an array at an
index that moves with the loop (a sum or product of the loop's variable, no quotient,
remainder or look-up), or to a scalar that is a plain reduction. Anything that is not
understood counts as a dependence. That two pointers do not overlap is assumed; the
evaluator finds out where they do.
"""

from __future__ import annotations

from dataclasses import dataclass

from tree_sitter import Node

from evolver.proposers.mutate.cpp_source import Loop, identifiers, text_of, walk

_OBSTACLES = (
    "return_statement", "break_statement", "goto_statement", "continue_statement",
    "lambda_expression", "while_statement", "do_statement", "throw_statement",
)  # fmt: skip
_HARMLESS_PRAGMAS = ("#pragma GCC", "#pragma omp simd")
_FOLDING = ("/", "%", ">>", "&")
_EXTREMA = {"std::max": "max", "std::min": "min", "std::fmax": "max", "std::fmin": "min"}


@dataclass(frozen=True)
class Independence:
    """Iterations commute, given the reductions ``operator: variable`` (``("+", "acc")``)."""

    reductions: tuple[tuple[str, str], ...]


def independence(loop: Loop) -> Independence | None:
    """Return how the iterations of ``loop`` commute, or None where they may not."""
    nodes = list(walk(loop.body))
    takes_address = any(n.type == "pointer_expression" for n in nodes)
    calls_openmp = any(n.type == "identifier" and text_of(n).startswith("omp_") for n in nodes)
    if takes_address or calls_openmp or any(_is_obstacle(n) for n in nodes):
        return None
    local = declared(loop.body)
    moving = _moving(loop)
    reductions: list[tuple[str, str]] = []
    for write in (n for n in nodes if n.type in ("assignment_expression", "update_expression")):
        target = write.child_by_field_name("left") or write.child_by_field_name("argument")
        if target is None:
            return None
        if _is_private(target, loop.body, local) or _is_ordered(target, loop.body, moving):
            continue
        reduction = _reduction(write, loop.body)
        if reduction is None:
            return None
        reductions.append(reduction)
    return Independence(tuple(reductions))


def _is_obstacle(node: Node) -> bool:
    if node.type == "preproc_call":
        return not text_of(node).startswith(_HARMLESS_PRAGMAS)
    return node.type in _OBSTACLES


def declared(body: Node) -> set[str]:
    """Return the names of the variables that are declared inside ``body``."""
    names: set[str] = set()
    for node in walk(body):
        if node.type == "declaration":
            for declarator in node.children_by_field_name("declarator"):
                inner = declarator.child_by_field_name("declarator") or declarator
                names |= {text_of(n) for n in walk(inner) if n.type == "identifier"}
    return names


def _moving(loop: Loop) -> set[str]:
    """Return the loop's variable and the inner variables that grow with it."""
    moving = {loop.variable}
    for node in walk(loop.body):
        if node.type == "init_declarator":
            value = node.child_by_field_name("value")
            if value is not None and _moves(value, moving):
                moving.add(text_of(node.child_by_field_name("declarator")))
    return moving


def _moves(index: Node, moving: set[str]) -> bool:
    looked_up = any(n.type in ("subscript_expression", *_FOLDING) for n in walk(index))
    return bool(identifiers(index) & moving) and not looked_up


def _is_private(target: Node, body: Node, local: set[str]) -> bool:
    """Whether ``target`` is a variable, or an element of an array, of the iteration itself."""
    if target.type == "identifier":
        return text_of(target) in local
    base = text_of(target.child_by_field_name("argument"))
    arrays = (n for n in walk(body) if n.type == "array_declarator")
    return target.type == "subscript_expression" and any(
        text_of(a.child_by_field_name("declarator")) == base for a in arrays
    )


def _is_ordered(target: Node, body: Node, moving: set[str]) -> bool:
    """Whether an array is written at a moving index and read nowhere but at that index."""
    if target.type != "subscript_expression":
        return False
    base, index = target.child_by_field_name("argument"), target.child_by_field_name("indices")
    if base is None or base.type != "identifier" or index is None or not _moves(index, moving):
        return False
    same_array = [
        n
        for n in walk(body)
        if n.type == "subscript_expression"
        and text_of(n.child_by_field_name("argument")) == text_of(base)
    ]
    everywhere = sum(n.type == "identifier" and text_of(n) == text_of(base) for n in walk(body))
    one_place = {text_of(n.child_by_field_name("indices")) for n in same_array}
    return len(one_place) == 1 and everywhere == len(same_array)


def _reduction(write: Node, body: Node) -> tuple[str, str] | None:
    """Return ``(operator, variable)`` of ``acc += e``, ``acc = acc + e``, ``acc = max(acc, e)``."""
    target, value = write.child_by_field_name("left"), write.child_by_field_name("right")
    if target is None or value is None or target.type != "identifier":
        return None
    name = text_of(target)
    operator = text_of(write.child_by_field_name("operator"))
    uses = sum(n.type == "identifier" and text_of(n) == name for n in walk(body))
    if operator in ("+=", "*=") and uses == 1:
        return operator[0], name
    if operator != "=" or uses != 2:
        return None
    kind = _combining(value, name)
    return None if kind is None else (kind, name)


def _combining(value: Node, name: str) -> str | None:
    if value.type == "binary_expression":
        operator = text_of(value.child_by_field_name("operator"))
        sides = (value.child_by_field_name("left"), value.child_by_field_name("right"))
        return operator if operator in "+*" and name in map(text_of, sides) else None
    if value.type != "call_expression":
        return None
    arguments = value.child_by_field_name("arguments")
    names = [text_of(a) for a in arguments.named_children] if arguments is not None else []
    kind = _EXTREMA.get(text_of(value.child_by_field_name("function")))
    return kind if len(names) == 2 and name in names else None
