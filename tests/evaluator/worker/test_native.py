"""How a candidate's functions are bound, shown by g++ in place of a GPU's compiler."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from evaluator.worker import native
from evaluator.worker.kernels import read_ptxas
from evaluator.worker.native import CompileFailed, compile_and_bind

pytestmark = pytest.mark.real

SOURCE = r"""
#include <cstdint>
static const char* failure = nullptr;
extern "C" void note(int64_t a, int64_t* out, void* stream, int64_t b) {
  out[0] = a; out[1] = (int64_t)stream; out[2] = b;
  failure = a < 0 ? "invalid configuration argument" : nullptr;
}
"""
EPILOGUE = 'extern "C" const char* ksmith_launch_error() { return failure; }'
SIGNATURES = {"note": ("int64_t", "int64_t*", "void*", "int64_t")}
STREAM = 0x5EED


def bound(
    monkeypatch: pytest.MonkeyPatch, signatures: dict[str, tuple[str, ...]] = SIGNATURES
) -> Any:
    monkeypatch.setattr(native, "_current_stream", lambda: STREAM)
    build = {
        "command": ("g++", "-shared", "-fPIC", "-o", "native.so", "source.cu.cpp"),
        "source_name": "source.cu.cpp",
        "device": "cpu",
        "epilogue": EPILOGUE,
        "takes_stream": True,
    }
    library, _ = compile_and_bind(SOURCE, signatures, build, timeout_seconds=60)
    return library


def test_the_current_stream_is_passed_where_the_signature_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = torch.zeros(3, dtype=torch.int64)
    bound(monkeypatch).note(7, out, 9)
    assert out.tolist() == [7, STREAM, 9]


def test_a_launch_that_is_refused_is_raised_with_the_devices_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library = bound(monkeypatch)
    out = torch.zeros(3, dtype=torch.int64)
    with pytest.raises(RuntimeError, match="note was not launched: invalid configuration"):
        library.note(-1, out, 0)
    library.note(1, out, 0)


def test_the_caller_cannot_pass_a_stream_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    out = torch.zeros(3, dtype=torch.int64)
    with pytest.raises(TypeError, match="takes 3 arguments, got 4"):
        bound(monkeypatch).note(7, out, 123, 9)


@pytest.mark.parametrize("types", [("int64_t",), ("void*", "void*")])
def test_a_function_takes_one_stream(
    monkeypatch: pytest.MonkeyPatch, types: tuple[str, ...]
) -> None:
    with pytest.raises(CompileFailed, match="must have one, the stream"):
        bound(monkeypatch, {"note": types})


def test_what_ptxas_says_of_two_kernels_is_told_apart() -> None:
    said = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z5firstPf' for 'sm_90a'
ptxas info    : Function properties for _Z5firstPf
    8 bytes stack frame, 12 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 1024 bytes smem
ptxas info    : Compiling entry function 'second' for 'sm_90a'
ptxas info    : Function properties for second
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers
"""
    first, second = read_ptxas(said)
    assert (first.kernel, first.registers) == ("first", 255)
    assert (first.spill_bytes, first.shared_bytes) == (16, 1024)
    assert (second.kernel, second.registers, second.spill_bytes) == ("second", 10, 0)
    assert read_ptxas("warning: nothing of the kind") == []
