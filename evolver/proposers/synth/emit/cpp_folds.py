"""How a row's elements become one in C++: where a fold begins, its step, what it comes to."""

from __future__ import annotations

from evolver.proposers.synth.emit import cpp_text as cpp
from evolver.proposers.synth.emit.names import Names
from evolver.proposers.synth.types import ElementType

LONG_ROW = 16384
"""From here on float32 is summed in float64."""


class Fold:
    """A reduction or a scan of elements of one type; ``length`` is the most."""

    def __init__(self, kind: str, dtype: ElementType, length: int) -> None:
        self._kind = kind
        self._dtype = dtype
        wide = kind in ("sum", "prod") and length >= LONG_ROW and cpp.c_type(dtype) == "float"
        self._type = "double" if wide else cpp.c_type(dtype)
        self._accumulator = self._best = ""
        self.is_result = False
        """Whether the accumulator is the value itself and needs no further statement."""

    def name(self, names: Names, wanted: str, *, is_result: bool) -> None:
        """Choose the accumulator's name: the value's own, where it is the value."""
        self._accumulator = wanted
        self.is_result = is_result and self.result() == wanted
        if not self.is_result:
            self._accumulator = names.fresh(f"{wanted}_so_far" if is_result else "so_far")
        if self._kind.startswith("arg"):
            self._best = names.fresh("best")

    @property
    def pragma(self) -> str:
        """What lets the loop use vectors."""
        operator = {"sum": "+", "prod": "*", "any": "|", "all": "&"}.get(self._kind)
        if self._kind in ("max", "min") and self._type != "bool":
            operator = f"{self._kind}_of_row"
        return f"#pragma omp simd reduction({operator} : {self._accumulator})" if operator else ""

    def begin(self) -> list[str]:
        """Statements before the loop."""
        name = self._accumulator
        if self._kind.startswith("arg"):
            first = self._extreme(largest=self._kind == "argmin")
            return [f"{self._type} {self._best} = {first};", f"int64_t {name} = 0;"]
        match self._kind:
            case "sum":
                start = "0"
            case "prod":
                start = "1"
            case "any":
                start = "false"
            case "all":
                start = "true"
            case kind:
                start = self._extreme(largest=kind == "min")
        return [f"{self._type} {name} = {start};"]

    def step(self, value: str, position: str) -> str:
        """The loop's statement."""
        name, best = self._accumulator, self._best
        match self._kind:
            case "sum":
                return f"{name} += {value};"
            case "prod":
                return f"{name} *= {value};"
            case "any":
                return f"{name} |= {value};"
            case "all":
                return f"{name} &= {value};"
            case "max" | "min" as kind:
                return f"{name} = {kind}imum<{self._type}>({name}, {value});"
            case "logsumexp":
                return f"{name} = log_add_exp<{self._type}>({name}, {value});"
        down = "true" if self._kind == "argmax" else "false"
        element = f"const {self._type} element = {value};"
        if self._kind == "argmax":
            better = f"ranks_before(element, {best}, {down})"
        else:
            better = f"element < {best} || (element != element && {best} == {best})"
        return f"{element} if ({better}) {{ {best} = element; {name} = {position}; }}"

    def result(self) -> str:
        """The value, rounded once."""
        if self._kind.startswith("arg"):
            return self._accumulator
        text = self._accumulator
        if self._type == "double" and cpp.c_type(self._dtype) == "float":
            text = f"float({text})"
        return cpp.rounded(text, self._dtype)

    def _extreme(self, *, largest: bool) -> str:
        return cpp.highest(self._dtype) if largest else cpp.lowest(self._dtype)
