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
_PLAN_CHARACTERS = 4_000
_PYTHON = {"", "python", "py", "python3", "triton"}
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})[ \t]*([^\s`]*)[^`]*$")
_EDIT = re.compile(
    r"^<{5,9} ?SEARCH[^\n]*\n(.*?)^={5,9}[ \t]*\n(.*?)^>{5,9} ?REPLACE", re.DOTALL | re.MULTILINE
)
_MARKER = re.compile(r"^[ \t]*#[ \t]*EVOLVE-BLOCK-(START|END).*\n?", re.MULTILINE)
_PLAN_TAG = re.compile(r"</?plan>", re.IGNORECASE)


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
    answer = _without_reasoning(text)
    if not answer.strip():
        raise ReplyFault("your reply is empty")
    edits = list(_EDIT.finditer(answer))
    if edits and parent_source is not None:
        source, began = _apply(edits, parent_source), edits[0].start()
    else:
        source, began = _last_program(answer, entry)
    source = _MARKER.sub("", source).strip("\n") + "\n"
    _require_program(source, entry)
    return Proposal(plan=_plan(answer[:began]), source=source)


def _without_reasoning(text: str) -> str:
    """Drop what stands before the last ``</think>``; some templates leave the opening out.

    Raises:
        ReplyFault: the reasoning never ended.
    """
    answer = text.rpartition("</think>")[2]
    if answer.lstrip().startswith("<think>"):
        raise ReplyFault("your reply ends within its reasoning; give the answer after it")
    return answer


def _apply(edits: list[re.Match[str]], parent: str) -> str:
    source = "\n" + parent.rstrip("\n") + "\n"  # so that whole lines are found
    for number, edit in enumerate(edits, start=1):
        search, replacement = (_MARKER.sub("", part) for part in edit.groups())
        count = source.count("\n" + search) if search.strip() else 0
        if count != 1:
            raise ReplyFault(
                f"the SEARCH part of edit {number} occurs {count} times in the program; it must "
                "be copied from it exactly, and be long enough to occur once"
            )
        source = source.replace("\n" + search, "\n" + replacement)
    return source


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
        fence = _FENCE.match(line.rstrip("\r"))
        if opening is None:
            if fence:
                opening, began, lines = fence, place, []
        elif fence and not fence[2] and _closes(fence[1], opening[1]):
            if opening[2].lower() in _PYTHON:
                found.append(("\n".join(lines), began))
            opening = None
        else:
            lines.append(line)
        place += len(line) + 1
    if opening is not None:
        raise ReplyFault("the last block of your reply is never closed: the reply was cut")
    return found


def _closes(fence: str, opening: str) -> bool:
    return fence[0] == opening[0] and len(fence) >= len(opening)


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
    words = _PLAN_TAG.sub("", text).strip()
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in words)[:_PLAN_CHARACTERS]
