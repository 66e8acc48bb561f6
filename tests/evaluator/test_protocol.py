from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.worker.protocol import Frame, ProtocolError, decode, encode

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
