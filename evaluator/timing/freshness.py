"""Whether a candidate remembers inputs by their content: new content must cost what known does.

The rotation's inputs come again and again while a block is timed, so a candidate that keeps
outputs under a hash of a few elements seems fast, and answers the audit's fresh content rightly.
So one buffer gets content that nobody has seen, and the calls up to it are timed; later, after a
usual block, the same content is written there again and timed again. All else is alike: refill,
pause, caches. Only memory tells the two apart, or a branch predictor, for which
``TimingPolicy.fresh_share`` leaves room. What is remembered for less than that goes unseen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evaluator.client import BlockTime
from policies.model import TimingPolicy


@dataclass(frozen=True)
class ContentPair:
    """The same calls, once on new content, once on the same content known."""

    new: BlockTime
    known: BlockTime


def remembered(
    pairs: Sequence[ContentPair], policy: TimingPolicy, *, quartiles: bool = True
) -> str | None:
    """Say by how much new content costs more than known, or None.

    Args:
        pairs: what was timed.
        policy: how much more is no wonder.
        quartiles: the quicker quarter with new content must be slower than the slower quarter
            with known, which noise alone hardly brings about; else the quickest are compared.
    """
    low, high = (0.25, 0.75) if quartiles else (0.0, 0.0)
    new_ns = float(np.quantile([p.new.claimed_ns for p in pairs], low))
    known_ns = float(np.quantile([p.known.claimed_ns for p in pairs], high))
    call_ns = float(np.median([p.known.per_call_ns for p in pairs]))
    excess_ns = new_ns - known_ns
    if excess_ns <= policy.fresh_share * call_ns + 1e3 * policy.fresh_resolution_us:
        return None
    return (
        f"a call on content that was never seen takes {excess_ns / 1e3:.1f} us longer than one on "
        f"the same content later, which takes {call_ns / 1e3:.1f} us: outputs are remembered"
    )
