"""Whoever is timed: a prepared target in one worker, and how many calls its block has.

A block is calibrated per contestant to one length. Where a captured graph is replayed, calls
come in whole replays, so that the number asked for is the number made.
"""

from __future__ import annotations

from dataclasses import dataclass

from evaluator.client import BlockTime, Client
from evaluator.evaluation import Clock
from evaluator.worker.protocol import calls_per_replay
from policies.model import TimingPolicy

_CALIBRATION_STEPS = 4
_MAX_CALLS = 20_000
_IN_PLACE_CALLS_PER_BUFFER = 16
"""Arguments that are overwritten drift within a block; this bounds how far."""


@dataclass
class Contestant:
    """A prepared target in one worker, calibrated to a number of calls per block."""

    client: Client
    handle: int
    clock: Clock
    seeds: int = 1
    """Buffers of different content; the audit looks at these."""
    buffers: int = 1
    """The whole rotation: these and their copies at other addresses."""
    in_place: bool = False
    calls: int = 1
    estimate_ns: float = 0.0
    """Time per call as calibration saw it."""

    @property
    def step(self) -> int:
        """Calls come in multiples of this."""
        if self.clock is not Clock.GRAPH_REPLAY:
            return 1
        return calls_per_replay(self.buffers, in_place=self.in_place)

    @property
    def most_calls(self) -> int:
        """The most calls of one block."""
        limit = self.buffers * _IN_PLACE_CALLS_PER_BUFFER if self.in_place else _MAX_CALLS
        return max(self.step, limit - limit % self.step)

    @property
    def other_calls(self) -> int:
        """The length of the second block of a slope: twice as long, or half where that is most."""
        twice = 2 * self.calls
        half = self.calls // 2
        allowed = twice <= self.most_calls or half < self.step
        return twice if allowed else half - half % self.step

    def time(self, seconds: float, *, calls: int | None = None) -> BlockTime:
        """Time one block, of the calibrated length unless another is asked for."""
        return self.client.block(self.handle, calls or self.calls, seconds=seconds)

    def calls_ending_on(self, index: int) -> int:
        """About one block's calls, of which the last uses buffer ``index``.

        A replayed graph keeps the outputs of all its calls, so there any block will do.
        Arguments that are overwritten are judged after one call.
        """
        if self.clock is Clock.GRAPH_REPLAY:
            return self.step if self.in_place else self.calls
        if self.in_place:
            return index + 1
        last = self.calls - 1 - index
        return max(0, last - last % self.buffers) + index + 1


def calibrate(contestant: Contestant, policy: TimingPolicy, *, seconds: float) -> None:
    """Set the calls per block so that a block takes ``policy.block_milliseconds``."""
    target_ns = policy.block_milliseconds * 1e6
    step, most = contestant.step, contestant.most_calls
    contestant.calls = step
    for _ in range(_CALIBRATION_STEPS):
        block = contestant.time(seconds)
        contestant.estimate_ns = block.per_call_ns
        steps = max(1, round(target_ns / block.per_call_ns / step))
        wanted = min(most, steps * step)
        settled = 0.7 <= wanted / block.calls <= 1.4
        contestant.calls = wanted
        if settled or wanted == most:
            return
