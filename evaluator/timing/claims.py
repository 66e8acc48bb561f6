"""A worker's claims against the supervisor's own clock, which nothing in a worker can touch.

One block bounds a claim from above, and time that passes outside the timed region shows. Two
blocks of different length give a slope, what one more call costs by our clock, free of pipes
and of all that is done once per block; a claim far below it was made up. But on a busy machine
long blocks wait for a core more often than short ones, and then an honest call costs more in
them. Waiting falls inside the claims, so what lies outside tells: it must not grow with the
calls, and where the slope is above the claim it must not exceed eager's. What runs on after the
block's own stream has ended, on another stream, is time that was hidden. How noisy the machine
is eager's blocks tell, in which a candidate has no hand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evaluator.client import BlockTime
from policies.model import TimingPolicy

_HIDDEN_SHARE = 0.2
_HIDDEN_FLOOR_NS = 5e5
_IDLE_FLOOR_NS = 2e5
"""An event is recorded and waited for within this, on a busy host as well."""
_SPREAD = 2.56
"""Standard deviations from the tenth to the ninetieth percentile."""
_DEVIATIONS = 5.0
"""So many are needed before an honest machine is called a cheat."""
_SLOPE_NOISE = 3.1
_HIDDEN_NOISE = 1.77
"""Standard deviation of a pair's slope less its claim, and of the difference of two blocks, in
that of a block, times what a median has more than a mean: 2.45 and 1.41, and 1.25."""


@dataclass(frozen=True)
class SlopePair:
    """Two blocks right after each other, of different length."""

    usual: BlockTime
    other: BlockTime

    @property
    def slope_ns(self) -> float:
        """What one more call costs by our own clock."""
        return (self.other.wall_ns - self.usual.wall_ns) / (self.other.calls - self.usual.calls)

    @property
    def hidden_ns(self) -> float:
        """What one more call adds to the time outside of what is claimed."""
        added = _hidden_ns(self.other) - _hidden_ns(self.usual)
        return added / (self.other.calls - self.usual.calls)

    @property
    def added_calls(self) -> int:
        """By how much the two differ."""
        return abs(self.other.calls - self.usual.calls)


def slope_ns(pairs: Sequence[SlopePair]) -> float:
    """What a call costs by our own clock: the median over ``pairs``."""
    return float(np.median([p.slope_ns for p in pairs]))


def made_up_claim(
    pairs: Sequence[SlopePair], baseline: Sequence[BlockTime], policy: TimingPolicy
) -> str | None:
    """Compare what a block claims per call with the slope of our own clock.

    Args:
        pairs: the candidate's.
        baseline: eager's blocks, which tell how noisy the machine is and what a block costs
            beside its calls; the candidate has no hand in them.
        policy: how far below the slope a claim may lie.
    """
    slope = slope_ns(pairs)
    excess = float(np.median([p.slope_ns - p.usual.per_call_ns for p in pairs]))
    if slope <= 0 or excess <= 0:
        return None
    added = min(p.added_calls for p in pairs)
    allowed = policy.slope_share * slope + 1e3 * policy.slope_resolution_us / added
    grows = float(np.median([p.hidden_ns for p in pairs]))
    made_up = excess > allowed + _slope_noise(pairs, baseline) * slope
    claim = float(np.median([p.usual.per_call_ns for p in pairs]))
    doubtful = uncertainty(pairs, baseline) * claim
    if grows <= allowed + doubtful and not (made_up and _hides(pairs, baseline, policy)):
        return None
    return (
        f"claimed {claim / 1e3:.2f} us a call where one more call costs {slope / 1e3:.2f} us by "
        "our own clock"
    )


def uncertainty(pairs: Sequence[SlopePair], baseline: Sequence[BlockTime]) -> float:
    """Which share of a claim the noise of the machine could hide from these pairs.

    Infinite where more calls took less time.
    """
    if slope_ns(pairs) <= 0:
        return math.inf
    added_ns = min(p.added_calls * p.usual.per_call_ns for p in pairs)
    return _hidden_noise(len(pairs), baseline) / added_ns


def _hides(pairs: Sequence[SlopePair], baseline: Sequence[BlockTime], policy: TimingPolicy) -> bool:
    """Whether more time passes outside of what usual blocks claim than it does for eager."""
    own = float(np.median([_hidden_ns(p.usual) for p in pairs]))
    usual = float(np.median([_hidden_ns(b) for b in baseline]))
    claimed = float(np.median([p.usual.claimed_ns for p in pairs]))
    allowed = policy.slope_share * claimed + 1e3 * policy.slope_resolution_us
    return own - usual > allowed + _hidden_noise(len(pairs), baseline)


def _hidden_noise(count: int, baseline: Sequence[BlockTime]) -> float:
    """How far the median of ``count`` differences of what lies outside two blocks may be off."""
    return (
        _DEVIATIONS * _HIDDEN_NOISE * _noise([_hidden_ns(b) for b in baseline]) / math.sqrt(count)
    )


def _slope_noise(pairs: Sequence[SlopePair], baseline: Sequence[BlockTime]) -> float:
    """How far the slope may be off because the machine is noisy, as a share."""
    walls = [b.wall_ns for b in baseline]
    noise = _noise(walls) / float(np.median(walls))
    return _DEVIATIONS * _SLOPE_NOISE * noise / math.sqrt(len(pairs))


def implausible_claim(own: Sequence[BlockTime], baseline: Sequence[BlockTime]) -> str | None:
    """Compare the worker's claims with the wall time of whole blocks.

    A claim above the wall time is impossible. A wall time far above the claim, where the
    baseline's is not, means that work is done outside the timed region.
    """
    impossible = [b for b in own if b.claimed_ns > b.wall_ns]
    if impossible:
        block = impossible[0]
        return (
            f"claimed {block.claimed_ns / 1e3:.1f} us in {block.wall_ns / 1e3:.1f} us of wall time"
        )
    hidden = float(np.median([_hidden_ns(b) for b in own]))
    usual = float(np.median([_hidden_ns(b) for b in baseline]))
    wall = float(np.median([b.wall_ns for b in own]))
    if hidden > usual * 2 + _HIDDEN_SHARE * wall + _HIDDEN_FLOOR_NS:
        return (
            f"{hidden / 1e6:.1f} ms of each block of {wall / 1e6:.1f} ms lie outside the timed "
            f"region, {usual / 1e6:.1f} ms for the baseline"
        )
    return None


def unjoined_work(
    own: Sequence[BlockTime], baseline: Sequence[BlockTime], policy: TimingPolicy
) -> str | None:
    """Say how long the device ran on after the candidate's stream had ended."""
    late = float(np.median([b.until_idle_ns - b.claimed_ns for b in own]))
    usual = max(0.0, float(np.median([b.until_idle_ns - b.claimed_ns for b in baseline])))
    claimed = float(np.median([b.claimed_ns for b in own]))
    if late <= policy.idle_share * claimed + 2 * usual + _IDLE_FLOOR_NS:
        return None
    return (
        f"the device was busy for {late / 1e6:.2f} ms after blocks of {claimed / 1e6:.2f} ms had "
        "ended: work on a stream that is not joined"
    )


def _hidden_ns(block: BlockTime) -> float:
    """What passed by our clock outside of what is claimed."""
    return block.wall_ns - block.claimed_ns


def _noise(values: Sequence[float]) -> float:
    """A standard deviation in which outliers count, but not by their size."""
    low, high = np.quantile(values, (0.1, 0.9))
    return float((high - low) / _SPREAD)
