from __future__ import annotations

import ctypes

import pytest

torch = pytest.importorskip("torch")

from evaluator.worker.arena import PATTERN, Arena, poison_freed_memory  # noqa: E402 (needs torch)
from evaluator.worker.calls import Target  # noqa: E402
from evaluator.worker.checked import CheckedCalls  # noqa: E402

REQUEST = {
    "arguments": {
        "x": {
            "shape": [64],
            "dtype": "float32",
            "values": {"kind": "normal", "mean": 0, "std": 1, "low": 0, "high": 1},
        }
    },
    "seed": 1,
    "device": "cpu",
    "lifted": False,
    "jitter": 0.0,
    "jitter_number": 0,
    "poison": [],
    "recall": False,
    "declared": True,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_a_placed_tensor_is_equal_and_the_whole_of_its_storage(dtype: torch.dtype) -> None:
    original = torch.randint(0, 2, (5, 7)).to(dtype)
    placed = Arena().place("x", original)
    assert torch.equal(placed, original)
    assert placed.storage_offset() == 0
    assert placed.untyped_storage().nbytes() == original.untyped_storage().nbytes()
    assert type(placed) is torch.Tensor


@pytest.mark.parametrize(
    "view",
    [
        torch.zeros(8, 6).t(),
        torch.zeros(6).expand(4, 6),
        torch.zeros(4, 16)[:, :6].contiguous().t(),
        torch.zeros(0, 3),
        torch.tensor(1.0),
    ],
)
def test_strides_are_kept(view: torch.Tensor) -> None:
    placed = Arena().place("x", view)
    assert placed.shape == view.shape
    assert placed.stride() == view.stride()


def test_a_write_beside_an_argument_shows_in_its_zone() -> None:
    arena = Arena()
    placed = arena.place("x", torch.zeros(16))
    assert set(arena.zones()["x"]) == {PATTERN}
    ctypes.memset(placed.data_ptr() + placed.numel() * 4, 0, 1)
    assert set(arena.zones()["x"]) == {PATTERN, 0}


def test_two_calls_in_a_row_have_no_address_in_common() -> None:
    seen: list[int] = []

    def remember(x: torch.Tensor) -> torch.Tensor:
        out = x * 2
        seen.extend((x.data_ptr(), out.data_ptr()))
        return out

    calls, target = CheckedCalls(), Target("f", None, ("x",), ())
    for _ in range(2):
        calls.run(target, {"f": remember}, REQUEST)
    assert len(set(seen)) == 4


def test_an_output_that_a_later_call_overwrites_is_reported_as_it_is_then() -> None:
    held = torch.zeros(64)
    calls, target = CheckedCalls(), Target("f", None, ("x",), ())
    module = {"f": lambda x: held.copy_(x)}
    first = calls.run(target, module, REQUEST)
    second = calls.run(target, module, {**REQUEST, "seed": 2, "recall": True})
    was = first.blobs[first.message["call"]["outputs"][0]["blob"]]
    now = second.blobs[second.message["earlier"][0]["blob"]]
    assert was != now


def test_freed_memory_holds_the_pattern() -> None:
    size, held = 1 << 16, []
    for _ in range(5):  # what lies at the heap's end goes back to the system, and comes as zeros
        poison_freed_memory([size], "cpu")
        held += [torch.empty(size, dtype=torch.uint8) for _ in range(16)]
    assert any(int((block == PATTERN).sum()) > size // 2 for block in held)
