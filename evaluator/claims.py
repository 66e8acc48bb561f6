"""A worker's claims against the supervisor's own clock, which nothing in a worker can touch.

One block bounds a claim from above, and time that passes outside the timed region shows. Two
blocks of different length give a slope, what one more call costs by our clock, free of pipes
and of all that is done once per block; a claim far below it was made up. What runs on after
the block's own stream has ended, on another stream, is time that was hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evaluator.client import BlockTime
from policies.model import TimingPolicy

_HIDDEN_SHARE = 0.5
_HIDDEN_FLOOR_NS = 3e6
_IDLE_FLOOR_NS = 2e5
"""An event is recorded and waited for within this, on a busy host as well."""
_SPREAD = 2.56
"""Standard deviations from the tenth to the ninetieth percentile."""
_DEVIATIONS = 3.0
_SLOPE_NOISE = 3.1
"""Standard deviation of a pair's slope less its claim, in that of a block, times what the
median of n pairs has more than their mean: 2.45 and 1.25."""


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
        baseline: eager's blocks, whose wall times tell how noisy the machine is; the candidate
            has no hand in them.
        policy: how far below the slope a claim may lie.
    """
    slope = slope_ns(pairs)
    claim = float(np.median([p.usual.per_call_ns for p in pairs]))
    excess = float(np.median([p.slope_ns - p.usual.per_call_ns for p in pairs]))
    resolution = 1e3 * policy.slope_resolution_us / min(p.added_calls for p in pairs)
    noise = _DEVIATIONS * _SLOPE_NOISE * _relative_noise(baseline) / len(pairs) ** 0.5
    if excess <= (policy.slope_share + noise) * slope + resolution:
        return None
    return (
        f"claimed {claim / 1e3:.2f} us a call where one more call costs {slope / 1e3:.2f} us by "
        "our own clock"
    )


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
    hidden = float(np.median([b.wall_ns - b.claimed_ns for b in own]))
    usual = float(np.median([b.wall_ns - b.claimed_ns for b in baseline]))
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


def _relative_noise(blocks: Sequence[BlockTime]) -> float:
    """The standard deviation of a block's wall time as a share, outliers counting."""
    walls = np.array([b.wall_ns for b in blocks], dtype=np.float64)
    low, middle, high = np.quantile(walls, (0.1, 0.5, 0.9))
    return float((high - low) / _SPREAD / middle)
