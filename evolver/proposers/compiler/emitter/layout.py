"""Line breaks for generated source: ``ast.unparse`` writes every statement on one line."""

from __future__ import annotations

WIDTH = 100


def formatted(source: str) -> str:
    """``source`` with long calls and signatures broken at their arguments."""
    lines: list[str] = []
    for line in source.splitlines():
        lines.extend([line] if len(line) <= WIDTH else _broken(line))
    return "\n".join(lines) + "\n"


def _broken(line: str) -> list[str]:
    """``line`` with the arguments of its outermost bracket one level deeper, if it has one."""
    indent = line[: len(line) - len(line.lstrip())]
    opening = _outermost_call(line)
    if opening is None:
        return [line]
    start, end = opening
    pieces = _split(line[start + 1 : end])
    inner = indent + "    "
    joined = inner + ", ".join(pieces)
    trailing = line[end:]
    if len(joined) + 1 <= WIDTH:
        return [line[: start + 1], joined, indent + trailing]
    return [line[: start + 1], *(f"{inner}{p}," for p in pieces), indent + trailing]


def _outermost_call(line: str) -> tuple[int, int] | None:
    """Positions of the last top-level bracket that closes on ``line``, if it holds a list."""
    depth, start, found = 0, -1, None
    quote = ""
    for i, char in enumerate(line):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in "([{":
            if depth == 0:
                start = i
            depth += 1
        elif char in ")]}":
            depth -= 1
            if depth == 0 and char == ")" and "," in line[start:i]:
                found = (start, i)
    return found if depth == 0 else None


def _split(text: str) -> list[str]:
    """``text`` at its top-level commas."""
    pieces, depth, start = [], 0, 0
    for i, char in enumerate(text):
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "," and depth == 0:
            pieces.append(text[start:i].strip())
            start = i + 1
    pieces.append(text[start:].strip())
    return [p for p in pieces if p]
