"""What emitted code keeps of the reference: its names, and the lines that its comments point at."""

from __future__ import annotations

from dataclasses import dataclass

from evolver.proposers.synth import ir
from evolver.proposers.synth.emit.names import Names

MOST_CHARACTERS = 72


@dataclass(frozen=True)
class Reference:
    """The reference's source and the entry's parameters."""

    source: str
    parameters: tuple[str, ...]
    function: str

    def names(self) -> Names:
        """Names for one function's code; those of the parameters are taken."""
        return Names(frozenset((*self.parameters, self.function)))

    def comment(self, node: ir.Node) -> str:
        """Where a value comes from: the line's number and text."""
        lines = self.source.splitlines()
        if node.line is None or not 0 < node.line <= len(lines):
            return ""
        text = lines[node.line - 1].strip().rstrip("\\")
        if len(text) > MOST_CHARACTERS:
            text = text[: MOST_CHARACTERS - 3].rstrip() + "..."
        return f"Line {node.line}: {text}"
