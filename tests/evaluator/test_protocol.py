from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.worker.protocol import CallFacts, Frame, ProtocolError, decode, encode

texts = st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=9) | st.none())


def read(data: bytes, limit: int = 1 << 20) -> Frame:
    stream = io.BytesIO(data)

    def exactly(size: int) -> bytes:
        piece = stream.read(size)
        if len(piece) != size:
            raise EOFError
        return piece

    return decode(exactly, max_blob_bytes=limit)


@given(message=texts, blobs=st.lists(st.binary(max_size=50), max_size=5))
def test_a_frame_survives_the_way(message: dict[str, object], blobs: list[bytes]) -> None:
    frame = read(b"".join(encode(Frame(message, blobs))))
    assert frame.message == message
    assert list(frame.blobs) == blobs


@given(data=st.binary(max_size=200))
def test_garbage_is_an_error_and_never_a_frame_too_large(data: bytes) -> None:
    try:
        frame = read(data, limit=100)
    except (ProtocolError, EOFError):
        return
    assert sum(len(b) for b in frame.blobs) <= 100


def test_a_frame_beyond_the_limit_is_refused_before_it_is_read() -> None:
    data = b"".join(encode(Frame({}, [b"x" * 1000])))
    with pytest.raises(ProtocolError, match="1000 bytes"):
        read(data, limit=999)


@given(text=st.text(st.characters(min_codepoint=0xD7F0, max_codepoint=0xE010), max_size=6))
def test_whatever_arrives_can_be_written_down(text: str) -> None:
    message = read(b"".join(encode(Frame({"failure": {"message": [text]}})))).message
    assert str(message).encode("utf-8")


def test_a_frame_nested_without_end_is_an_error() -> None:
    text = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    with pytest.raises(ProtocolError):
        read(len(text).to_bytes(4, "little") + bytes(4) + text, limit=1 << 20)


anything = st.none() | st.integers() | st.floats() | st.text(max_size=3) | st.lists(st.integers())
facts = st.fixed_dictionaries(
    {k: st.text(max_size=2) | anything for k in ("name", "type_name", "dtype", "device")}
    | dict.fromkeys(("shape", "strides", "offset", "blob"), anything),
    optional={"shares": anything, "surplus": anything},
)


@given(
    call=anything
    | st.fixed_dictionaries(
        {
            "container": anything,
            "outputs": st.lists(facts | anything),
            "arguments": st.lists(facts),
        },
        optional={"lifted": anything},
    )
)
def test_a_forged_report_is_read_or_refused(call: object) -> None:
    try:
        read_facts = CallFacts.read(call)  # type: ignore[arg-type]
    except ProtocolError:
        return
    for tensor in (*read_facts.outputs, *read_facts.arguments):
        assert all(isinstance(n, int) for n in (*tensor.shape, *tensor.strides, tensor.offset))
        assert isinstance(hash(tensor), int)
