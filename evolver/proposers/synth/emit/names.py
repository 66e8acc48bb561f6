"""Names in emitted code: what the reference calls a value, else what it is; none twice."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable

from evolver.proposers.synth import ir

_RESERVED = frozenset(
    (
        *(
            "exp_of",
            "ranked",
            "position_of",
            "sortable",
            "larger",
            "smaller",
            "multiplied",
            "program",
        ),
        *("floor_remainder", "float_remainder", "libdevice", "tl"),
        *("torch", "native", "triton", "tl", "self", "auto", "bool", "break", "case"),
        *("catch", "char", "class", "const", "continue", "default", "delete", "do"),
        *("double", "else", "enum", "explicit", "export", "extern", "false", "float"),
        *("for", "friend", "goto", "if", "inline", "int", "long", "mutable", "namespace"),
        *("new", "operator", "private", "protected", "public", "register", "return"),
        *("short", "signed", "sizeof", "static", "struct", "switch", "template", "this"),
        *("throw", "true", "try", "typedef", "typename", "union", "unsigned", "using"),
        *("virtual", "void", "volatile", "while", "int8_t", "int16_t", "int32_t"),
        *("int64_t", "uint8_t", "uint16_t", "uint32_t", "uint64_t", "std", "main", "i"),
        *("j", "k", "l", "exp", "log", "sqrt", "sin", "cos", "tanh", "min", "max", "sum"),
        *("abs", "range", "len", "math", "y0", "y1", "maximum", "minimum", "power"),
        *("modulo", "floor_divide", "shift_left", "shift_right", "top_k"),
        *("sort_positions", "ranks_before", "log_add_exp", "jn", "yn", "j0", "j1"),
        *("gamma", "signgam", "omp", "index", "remainder", "floor", "ceil", "round"),
        *("trunc", "fmod", "pow", "div"),
    )
)


class Names:
    """Hands out identifiers that are valid in Python and in C++, each once."""

    def __init__(self, taken: frozenset[str] = frozenset()) -> None:
        self._given = taken
        self._taken = set(_RESERVED | taken)
        self._lanes = set(taken)

    def fresh(self, wanted: str) -> str:
        """Return ``wanted``, made an identifier, with a number where it is taken."""
        base = re.sub(r"\W+", "_", wanted).strip("_") or "value"
        if base[0].isdigit() or keyword.iskeyword(base):
            base = f"v_{base}"
        name, count = base, 2
        while name in self._taken:
            name, count = f"{base}_{count}", count + 1
        self._taken.add(name)
        return name

    def release(self, names: Iterable[str]) -> None:
        """Let names be handed out again: what they stood for is out of sight."""
        self._taken -= set(names)

    def row(self, position: int, count: int) -> str:
        """A name for a loop over rows."""
        return self.fresh("row" if count == 1 else f"row_{position}")

    def lane(self) -> str:
        """A name for a loop: i, j, k, m, then with numbers."""
        for count in range(1, 100):
            for letter in "ijkm":
                name = letter if count == 1 else f"{letter}{count}"
                if name not in self._lanes:
                    self._lanes.add(name)
                    return name
        raise AssertionError("400 loops in one kernel")

    def joined(self, other: Names) -> Names:
        """Take over what ``other`` has handed out, and return these names."""
        self._taken |= other._taken
        return self

    def copy(self) -> Names:
        """Return names that go their own way from here."""
        copied = Names(self._given)
        copied._taken |= self._taken
        return copied


def wanted_name(node: ir.Node) -> str:
    """What the reference calls a node's value; else a noun for what it is."""
    if node.label:
        return node.label
    match node.op:
        case ir.Input(parameter=parameter):
            return parameter
        case ir.Reduce(kind=kind):
            return {"max": "largest", "min": "smallest", "sum": "total"}.get(kind, kind)
        case ir.Scan(kind=kind):
            return f"running_{kind}"
        case ir.TopK() | ir.ArgSort():
            return "order"
        case ir.Pointwise(function=function):
            return function if len(function) > 3 else "value"
    return node.op.name
