"""Whether a candidate remembers inputs by their content: new content must cost what known does.

The rotation's inputs come again and again while a block is timed, so a candidate that keeps
outputs under a hash of a few elements seems fast, and answers the audit's fresh content rightly.
So one buffer gets content that nobody has seen, and the calls up to it are timed; later, after a
usual block, the same content is written there again and timed again. All else is alike: refill,
pause, caches. Only memory tells the two apart, or a branch predictor, for which
``TimingPolicy.fresh_share`` leaves room. What is remembered for less than that goes unseen.

Arguments that are written remember by themselves: within a block a buffer comes again and holds
the result of the call before, so that a candidate may find its work done and leave. So a pass
over buffers that were just restored is compared with the calls of a usual block.
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
    excess_ns, call_ns = _excess_ns(pairs, low, high)
    if excess_ns <= _no_wonder_ns(call_ns, policy):
        return None
    return (
        f"a call on content that was never seen takes {excess_ns / 1e3:.1f} us longer than one on "
        f"the same content later, which takes {call_ns / 1e3:.1f} us: outputs are remembered"
    )


def found_done(
    own: Sequence[ContentPair], eager: Sequence[ContentPair], policy: TimingPolicy
) -> str | None:
    """Say by how much calls cost more where no earlier result stands in what they write, or None.

    Args:
        own: of the candidate: a pass over restored buffers, and so many calls of a usual block.
            Its quickest first pass must be the slower, since noise only ever adds.
        eager: of the reference. To it a first pass may cost more as well, for caches that the
            restoring swept; it is given the benefit of its noise.
        policy: how much more is no wonder.
    """
    excess_ns, call_ns = _excess_ns(own, 0.0, 0.75)
    excess_ns -= max(0.0, _excess_ns(eager, 0.75, 0.0)[0])
    if excess_ns <= _no_wonder_ns(call_ns, policy):
        return None
    return (
        f"{own[0].new.calls} calls on arguments that hold no result yet take "
        f"{excess_ns / 1e3:.1f} us longer than as many later calls, of {call_ns / 1e3:.1f} us "
        "each: work is skipped whose result stands in a written argument"
    )


def _excess_ns(pairs: Sequence[ContentPair], new: float, known: float) -> tuple[float, float]:
    """How much longer new content took, at these quantiles, and a call on known content."""
    new_ns = float(np.quantile([p.new.claimed_ns for p in pairs], new))
    known_ns = float(np.quantile([p.known.claimed_ns for p in pairs], known))
    return new_ns - known_ns, float(np.median([p.known.per_call_ns for p in pairs]))


def _no_wonder_ns(call_ns: float, policy: TimingPolicy) -> float:
    return policy.fresh_share * call_ns + 1e3 * policy.fresh_resolution_us
