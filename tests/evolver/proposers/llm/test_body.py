"""What an endpoint's bytes are taken for."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolver.proposers.llm.body import Reply, ReplyCut, ReplyMalformed, read_reply
from tests.evolver.proposers.llm.server import chunk, events


def test_a_stream_is_put_together_whatever_lies_between() -> None:
    body = b": ping\r\n\r\n" + events(
        chunk("a\u2028b", reasoning="hm"),
        {"choices": [{"index": 1, "delta": {"content": "another choice"}}]},
        chunk("c", finish="stop"),
        {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": True}},
        done=False,
    )
    assert read_reply(body) == Reply("a\u2028bc", "hm", "stop", prompt_tokens=7)


def test_content_may_be_a_list_of_parts() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "image"}, "?", {"text": "b"}]
    body = {"choices": [{"message": {"content": parts}, "finish_reason": "length"}]}
    assert read_reply(json.dumps(body).encode()) == Reply("ab", finish_reason="length")


def test_a_cut_reply_keeps_what_had_come() -> None:
    with pytest.raises(ReplyCut) as caught:
        read_reply(events(chunk("half"), done=False) + b'data: {"choi')
    assert caught.value.partial.text == "half"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["choices", "delta", "message", "content", "text", "index", "usage", "error",
             "finish_reason", "prompt_tokens", "completion_tokens", "reasoning"]
        ),
        inner,
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@given(st.lists(JSON, max_size=4), st.booleans(), st.binary(max_size=20))
def test_no_bytes_break_the_reader(parts: list[object], stream: bool, rest: bytes) -> None:
    texts = [json.dumps(part) for part in parts]
    body = "".join(f"data: {t}\n\n" for t in texts) if stream else "".join(texts)
    try:
        reply = read_reply(body.encode() + rest)
    except (ReplyCut, ReplyMalformed):
        return
    assert isinstance(reply.text, str)
    assert reply.prompt_tokens is None or reply.prompt_tokens >= 0
