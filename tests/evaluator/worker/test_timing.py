"""The rotation that a worker makes, on the CPU: content, addresses, whole blocks."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from evaluator.tensors import plain_arguments
from evaluator.worker.calls import Target
from evaluator.worker.timing import WALL_PINNED, TimedTarget, twin
from evaluator.workload import Workload
from tests.builders import make_tensor

WORKLOAD = Workload(
    name="w", arguments={"x": make_tensor(4, 8), "y": make_tensor(4, 8, alias_of="x")}
)


class Recorder:
    """A target that remembers what it was called with."""

    def __init__(self) -> None:
        self.seen: list[torch.Tensor] = []

    def __call__(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        assert x.data_ptr() == y.data_ptr()
        self.seen.append(x)
        return x + 1


def timed(
    recorder: Recorder, *, seeds: Sequence[int], copies: int, writes: Sequence[str] = ()
) -> TimedTarget:
    return TimedTarget(
        Target("f", None, ("x", "y"), ()),
        {"f": recorder},
        plain_arguments(WORKLOAD),
        seeds=seeds,
        copies=copies,
        writes=writes,
        device="cpu",
        clock=WALL_PINNED,
        compiled=False,
    )


def test_copies_have_the_content_of_their_seeds_at_addresses_of_their_own() -> None:
    recorder = Recorder()
    target = timed(recorder, seeds=[1, 2], copies=2)
    recorder.seen.clear()
    block = target.block(6)
    assert block.calls == 6
    assert block.until_idle == block.nanoseconds
    assert len({x.data_ptr() for x in recorder.seen}) == 6
    assert all(torch.equal(recorder.seen[i], recorder.seen[i % 2]) for i in range(6))
    assert not torch.equal(recorder.seen[0], recorder.seen[1])


def test_a_refilled_buffer_is_the_one_that_the_audited_call_saw() -> None:
    recorder = Recorder()
    target = timed(recorder, seeds=[1, 2], copies=1)
    before = recorder.seen[1].clone()
    target.refill(1, 99)
    target.block(2)
    output, values, index = target.outcome(1, 12345)
    assert index == 1
    assert not torch.equal(values["x"], before)
    assert torch.equal(output, values["x"] + 1)


def test_every_block_begins_with_what_was_written_undone() -> None:
    class Writer(Recorder):
        def __call__(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            self.seen.append(x.clone())
            return x.add_(1)

    writer = Writer()
    target = timed(writer, seeds=[1], copies=0, writes=["x"])
    writer.seen.clear()
    target.block(2)
    target.block(2)
    first, second, third, _ = writer.seen
    assert torch.equal(first, third)
    assert torch.equal(second, first + 1)


def test_a_twin_keeps_strides_and_aliases() -> None:
    base = torch.arange(12.0).reshape(3, 4)
    values = {"a": base, "b": base.t(), "n": 3}
    made = twin(values)
    assert made["a"].data_ptr() == made["b"].data_ptr() != base.data_ptr()
    assert made["b"].stride() == values["b"].stride()
    assert torch.equal(made["b"], base.t())
    assert made["n"] == 3
