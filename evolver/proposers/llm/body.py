"""From the bytes that an endpoint sent to a reply: server-sent events or one JSON object. Pure.

What came is judged by its content, since servers ignore ``stream`` and mislabel types. Nothing
in it is trusted: whatever has another form than expected is left out or is an error of ours.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_DONE = "[DONE]"
_SHOWN_CHARACTERS = 200


@dataclass(frozen=True)
class Reply:
    """What the model said; ``None`` where the server does not tell."""

    text: str
    reasoning: str = ""
    """What came in a field of its own, as reasoning models' servers do; it is no answer."""
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    reply_tokens: int | None = None


class ReplyMalformed(Exception):
    """The endpoint sent something that is no completion."""


class ReplyCut(Exception):
    """The reply ended before its end; ``partial`` is what had come."""

    def __init__(self, message: str, partial: Reply) -> None:
        super().__init__(message)
        self.partial = partial


def read_reply(body: bytes) -> Reply:
    """Return the first choice that ``body`` holds.

    Raises:
        ReplyMalformed: it is HTML, an error object or anything else.
        ReplyCut: it breaks off, or the server reports an error on the way.
    """
    text = body.decode("utf-8", errors="replace").lstrip("\ufeff \r\n\t")
    if text.startswith("{"):
        return _read_object(text)
    if text.startswith(("data:", "event:", "id:", ":")):
        return _read_events(text)
    raise ReplyMalformed(f"the endpoint sent no completion but {shown(text) or 'nothing at all'}")


def partial_reply(body: bytes) -> Reply:
    """Return what of a reply ``body`` holds, however it ends."""
    try:
        return read_reply(body)
    except ReplyCut as error:
        return error.partial
    except ReplyMalformed:
        return Reply("")


def shown(text: str) -> str:
    """Return the beginning of foreign text on one line, fit for a message."""
    line = " ".join(text[: 4 * _SHOWN_CHARACTERS].split())
    printable = "".join(c if c.isprintable() else "?" for c in line)
    return printable[:_SHOWN_CHARACTERS] + ("…" if len(line) > _SHOWN_CHARACTERS else "")


class _Gathering:
    """The first choice, put together from one or many objects."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._finish_reason: str | None = None
        self._usage: dict[str, Any] = {}
        self.complete = False

    def add(self, part: dict[str, Any]) -> None:
        """Take in an object.

        Raises:
            ReplyCut: it is the server's report of an error.
        """
        if part.get("error"):
            raise ReplyCut(f"the endpoint broke off with {shown(str(part['error']))}", self.reply())
        if isinstance(part.get("usage"), dict):
            self._usage = part["usage"]
        choices = part.get("choices")
        for choice in choices if isinstance(choices, list) else []:
            if isinstance(choice, dict) and choice.get("index", 0) == 0:
                self._add_choice(choice)
                break

    def _add_choice(self, choice: dict[str, Any]) -> None:
        message = choice.get("delta") or choice.get("message")
        if isinstance(message, dict):
            self._text.append(_text(message.get("content")))
            thought = message.get("reasoning_content") or message.get("reasoning")
            self._reasoning.append(_text(thought))
        if isinstance(choice.get("finish_reason"), str):
            self._finish_reason = choice["finish_reason"]
            self.complete = True

    def reply(self) -> Reply:
        return Reply(
            text="".join(self._text),
            reasoning="".join(self._reasoning),
            finish_reason=self._finish_reason,
            prompt_tokens=_count(self._usage.get("prompt_tokens")),
            reply_tokens=_count(self._usage.get("completion_tokens")),
        )


def _read_object(text: str) -> Reply:
    gathering = _Gathering()
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ReplyCut(f"the endpoint's JSON breaks off: {error}", Reply("")) from error
    if not isinstance(found.get("choices"), list) and not found.get("error"):
        raise ReplyMalformed(f"the endpoint sent no completion but {shown(text)}")
    gathering.add(found)
    if not gathering.complete:
        raise ReplyCut("the reply has no finish_reason", gathering.reply())
    return gathering.reply()


def _read_events(text: str) -> Reply:
    gathering = _Gathering()
    for data in _events(text):
        if data == _DONE:
            gathering.complete = True
            break
        try:
            part = json.loads(data)
        except (ValueError, RecursionError):
            raise ReplyCut("an event of the reply breaks off", gathering.reply()) from None
        if isinstance(part, dict):
            gathering.add(part)
    if not gathering.complete:
        raise ReplyCut("the stream ended before the reply did", gathering.reply())
    return gathering.reply()


def _events(text: str) -> Iterator[str]:
    # Not splitlines: it splits at characters that JSON strings may hold.
    for line in text.split("\n"):
        if line.startswith("data:"):
            yield line.removeprefix("data:").strip()


def _text(content: object) -> str:
    """Return a message's content: text, or a list of parts."""
    if isinstance(content, list):
        return "".join(_text(part.get("text")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _count(value: object) -> int | None:
    sound = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40
    return value if isinstance(value, int) and sound else None
