"""From a model's reply to a program: the last complete block, or edits of the parent. Pure.

A reply is a plan followed by either one fenced block with the whole program or
search-and-replace edits. Reasoning before the answer is dropped, sketches before the last
block are passed over, and a reply that was cut is a failure even where a block is complete:
the model had not finished. The program is data here; whether it is any good, and whether it
is honest, is the evaluator's to say.
"""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass

BLOCK_START = "# EVOLVE-BLOCK-START"
BLOCK_END = "# EVOLVE-BLOCK-END"
LONGEST_REPLY_CHARACTERS = 400_000
LONGEST_PROGRAM_CHARACTERS = 200_000
MOST_EDITS = 50
LONGEST_SEARCH_LINES = 300
_PLAN_CHARACTERS = 4_000
_PYTHON = {"", "python", "py", "python3", "triton"}
_FENCE = re.compile(r"^( *)(`{3,}|~{3,})[ \t]*([^\s`]*)[^`]*$")
_EDIT_BEGINS = re.compile(r"^<{5,9} ?SEARCH")
_EDIT_DIVIDES = re.compile(r"^={5,9}\s*$")
_EDIT_ENDS = re.compile(r"^>{5,9} ?REPLACE")
_MARKER = re.compile(r"^[ \t]*#[ \t]*EVOLVE-BLOCK-(START|END).*\n?", re.MULTILINE)
_PLAN_TAG = re.compile(r"</?plan>", re.IGNORECASE)
_LAST_FENCE = re.compile(r"\n *[`~]{3,}[^\n]*\s*\Z")
_REASONING = re.compile(r"\s*(<think(ing)?>|<reasoning>|\[THINK\])")
_REASONED = re.compile(r"</think(ing)?>|</reasoning>|\[/THINK\]")
_SPECIAL_TOKEN = re.compile(r"<\|[a-z_]+\|>")
"""Of chat formats, where a server leaves them in the text."""


class ReplyFault(Exception):
    """The reply holds no usable program; the message says why, to people and to the model."""


@dataclass(frozen=True)
class Proposal:
    """A plan and its program, kept apart: a good plan survives a broken program."""

    plan: str
    source: str


def parse_reply(
    text: str, finish_reason: str | None, *, entry: str, parent_source: str | None
) -> Proposal:
    """Return what the reply proposes.

    Args:
        text: the model's answer.
        finish_reason: as the endpoint tells it; ``length`` is a cut reply.
        entry: the function or class that the program must define.
        parent_source: what edits apply to; None where there is nothing to edit.

    Raises:
        ReplyFault: it is empty, cut, too long, or without a program that defines ``entry``.
    """
    if finish_reason == "length":
        raise ReplyFault("your reply reached the limit of tokens and was cut; be briefer")
    if len(text) > LONGEST_REPLY_CHARACTERS:
        raise ReplyFault(f"your reply has {len(text)} characters; be briefer")
    answer = _without_reasoning(text.replace("\r\n", "\n"))
    if not answer.strip():
        raise ReplyFault("your reply is empty")
    edits = _edits(answer) if parent_source is not None else []
    if edits and parent_source is not None:
        source, began = _apply(edits, parent_source), edits[0].began
    else:
        source, began = _last_program(answer, entry)
    source = _MARKER.sub("", source).strip("\n") + "\n"
    _require_program(source, entry)
    return Proposal(plan=_plan(answer[:began]), source=source)


def _without_reasoning(text: str) -> str:
    """Drop what stands before the end of reasoning; some templates leave the opening out.

    Raises:
        ReplyFault: the reasoning never ended.
    """
    final = text.rpartition("<|message|>")[2]  # of gpt-oss: the last channel is the answer
    ends = list(_REASONED.finditer(final))
    answer = final[ends[-1].end() :] if ends else final
    if _REASONING.match(answer):
        raise ReplyFault("your reply ends within its reasoning; give the answer after it")
    return _SPECIAL_TOKEN.sub("\n", answer)


@dataclass
class _Edit:
    """Lines to look for and lines to put there; ``began`` is its place in the answer."""

    began: int
    search: list[str]
    replacement: list[str] | None = None
    """None before the dividing line."""


def _edits(answer: str) -> list[_Edit]:
    """Return the edits of an answer in their order.

    Raises:
        ReplyFault: one is never closed, or there are more than anybody needs.
    """
    found: list[_Edit] = []
    current: _Edit | None = None
    place = 0
    for line in answer.split("\n"):
        if current is None:
            current = _Edit(place, []) if _EDIT_BEGINS.match(line) else None
        elif current.replacement is None and _EDIT_DIVIDES.match(line):
            current.replacement = []
        elif current.replacement is not None and _EDIT_ENDS.match(line):
            found.append(current)
            current = None
        elif not _MARKER.match(line):
            target = current.search if current.replacement is None else current.replacement
            target.append(line)
        place += len(line) + 1
    if current is not None:
        raise ReplyFault("an edit of your reply is never closed by a REPLACE line")
    if len(found) > MOST_EDITS:
        raise ReplyFault(f"your reply has {len(found)} edits; make fewer, or write it whole")
    return found


def _apply(edits: list[_Edit], parent: str) -> str:
    lines = parent.split("\n")
    for number, edit in enumerate(edits, start=1):
        search, replacement = edit.search, edit.replacement or []
        if len(search) > LONGEST_SEARCH_LINES:
            raise ReplyFault(f"the SEARCH part of edit {number} is too long; take less")
        places = _places(lines, search)
        if len(places) != 1:
            count = "not once" if not places else "more than once"
            raise ReplyFault(
                f"the SEARCH part of edit {number} occurs {count} in the program; it must be "
                "copied from it exactly, and be long enough to occur once"
            )
        start, shift = places[0]
        shifted = [" " * shift + line if line.strip() else line for line in replacement]
        lines[start : start + len(search)] = shifted
    return "\n".join(lines)


def _places(lines: list[str], search: list[str]) -> list[tuple[int, int]]:
    """Where ``search`` stands in ``lines``, and how many blanks of indentation it lacks.

    Blanks at the ends of lines do not count; where nothing else fits, indentation that was left
    out throughout does not either.
    """
    if not any(line.strip() for line in search):
        return []
    wanted = [line.rstrip() for line in search]
    first = next(n for n, line in enumerate(wanted) if line)
    exact: list[tuple[int, int]] = []
    shifted: list[tuple[int, int]] = []
    for start in range(len(lines) - len(search) + 1):
        shift = _shift(lines[start + first].rstrip(), wanted[first])
        if shift is not None and all(
            lines[start + n].rstrip() == (" " * shift + line if line else "")
            for n, line in enumerate(wanted)
        ):
            (shifted if shift else exact).append((start, shift))
        if len(exact) > 1:
            break
    return exact or shifted


def _shift(line: str, wanted: str) -> int | None:
    """How far ``wanted`` has to be indented to be ``line``; None where that does not do."""
    missing = len(line) - len(wanted)
    return missing if missing >= 0 and line == " " * missing + wanted else None


def _last_program(answer: str, entry: str) -> tuple[str, int]:
    """Return the last complete block that defines ``entry``, else the last; and where it began."""
    blocks = _blocks(answer)
    if not blocks:
        # Some models forget the fence; a reply that is a program is taken as one.
        if entry in _bound_names(answer):
            return answer, 0
        raise ReplyFault("your reply holds no complete block of Python between ``` fences")
    defining = [block for block in blocks if entry in _bound_names(block[0])]
    return (defining or blocks)[-1]


def _blocks(answer: str) -> list[tuple[str, int]]:
    """Return each Python block's text and where its fence stands.

    Raises:
        ReplyFault: the last fence is never closed.
    """
    found: list[tuple[str, int]] = []
    opening: re.Match[str] | None = None
    began = place = 0
    lines: list[str] = []
    for line in answer.split("\n"):
        fence = _FENCE.match(line.rstrip())
        if opening is None:
            if fence:
                opening, began, lines = fence, place, []
        elif fence and _closes(fence, opening):
            if opening[3].lower() in _PYTHON:
                found.append(("\n".join(lines), began))
            opening = None
        else:
            lines.append(_outdented(line, len(opening[1])))
        place += len(line) + 1
    if opening is not None:
        raise ReplyFault("the last block of your reply is never closed: the reply was cut")
    return found


def _closes(fence: re.Match[str], opening: re.Match[str]) -> bool:
    """As in Markdown: the same sign, as many, no word after it, indented no further than 3."""
    alike = fence[2][0] == opening[2][0] and len(fence[2]) >= len(opening[2])
    return alike and not fence[3] and len(fence[1]) <= len(opening[1]) + 3


def _outdented(line: str, most: int) -> str:
    """Take off the indentation of the fence, for a block in a list."""
    return line[min(most, len(line) - len(line.lstrip(" "))) :]


def _require_program(source: str, entry: str) -> None:
    if len(source) > LONGEST_PROGRAM_CHARACTERS:
        raise ReplyFault(f"the program has {len(source)} characters; write less")
    try:
        tree = _tree(source)
    except SyntaxError as error:
        place = f" (line {error.lineno})" if error.lineno else ""
        raise ReplyFault(f"the program is not Python: {error.msg}{place}") from error
    if entry not in _names(tree):
        raise ReplyFault(f"the program does not define {entry} at its top level")


def _bound_names(source: str) -> set[str]:
    try:
        return _names(_tree(source))
    except SyntaxError:
        return set()


def _tree(source: str) -> ast.Module:
    """Parse.

    Raises:
        SyntaxError: it is not Python, holds a NUL or is nested too deeply.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (ValueError, RecursionError, MemoryError) as error:
        raise SyntaxError(str(error) or "nested too deeply") from error


def _names(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def _plan(text: str) -> str:
    """Return the words before the program."""
    words = _PLAN_TAG.sub("", _LAST_FENCE.sub("", "\n" + text)).strip()
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in words)[:_PLAN_CHARACTERS]
