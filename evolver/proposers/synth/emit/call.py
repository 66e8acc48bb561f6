"""Lines of calls and signatures, broken where they are long."""

from __future__ import annotations

from collections.abc import Sequence

WIDTH = 92


def head_lines(start: str, parameters: Sequence[str], end: str) -> list[str]:
    """Return ``start`` with its parameters and ``end``, aligned after the parenthesis."""
    lines, line = [], start
    for position, parameter in enumerate(parameters):
        after = end if position == len(parameters) - 1 else ","
        if line.strip() and len(line) + len(parameter) + len(after) > WIDTH + 4:
            lines.append(line.rstrip())
            line = " " * len(start)
        line += f"{parameter}{after} "
    return [*lines, line.rstrip() if parameters else f"{start}{end}"]


def call_lines(function: str, arguments: Sequence[str]) -> list[str]:
    """Return a call, its arguments further in where it does not fit in one line."""
    line = f"{function}({', '.join(arguments)})"
    if len(line) <= WIDTH:
        return [line]
    lines, line = [f"{function}("], "   "
    for argument in arguments:
        if len(line) + len(argument) + 2 > WIDTH:
            lines.append(line)
            line = "   "
        line += f" {argument},"
    return [*lines, line, ")"]


def indented(lines: Sequence[str]) -> list[str]:
    """Lines one level further in; directives of the preprocessor stay where they are."""
    return [line if line.startswith("#pragma") else f"    {line}" for line in lines]


def uses(text: str, name: str) -> bool:
    """Whether ``text`` has ``name`` as a word."""
    before, found, after = text.partition(name)
    while found:
        edge = (before[-1:] or " ") + (after[:1] or " ")
        if not any(c.isalnum() or c == "_" for c in edge):
            return True
        before, found, after = after.partition(name)
    return False
