"""When to stop a search, and when to send it elsewhere; pure, and asked between evaluations.

What counts is whether more evaluations are likely to bring anything. The best so far is a
running maximum: it moves in rare jumps, and a straight line through it says nothing of the next
one. So its increments are modelled as they arise, as those who count customers' orders do
(Batislam et al. 2007, MBG/NBD): while a search is alive, jumps come at some rate, and after each
it may dry up for good. How long nothing came, against how often something did, says how likely
it is still alive; the rate is Gamma distributed, the sizes (in log units of the speedup's lower
bound) are exponential with an inverse Gamma mean in which older jumps fade, since what is left
to gain shrinks. That gives the slope with its interval, and the chance that the next
evaluations bring more than a given gain. Where it is small the search has come to a plateau: it
is redirected once if there is room by the roofline or by the predicted headroom, and else ends.

A plateau is no proof: what a search with other proposers would find is not in its history.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from evaluator.evaluation import Baseline, Evaluation
from evolver.costs import Cost
from evolver.headroom import Headroom
from policies.model import AdaptiveRule

_DRAWS = 4000
_INTERVAL = (0.05, 0.95)


class Advice(StrEnum):
    """What to do next."""

    CONTINUE = "continue"
    STOP = "stop"
    REDIRECT = "redirect"
    """Rest the proposers that bring nothing, and draw parents from other strategies."""


@dataclass(frozen=True)
class Point:
    """The search after one evaluation of a new candidate."""

    cost: Cost
    """Of everything so far."""
    evaluated: int
    best_lower: float | None
    """Lower 99 % bound of the leader's speedup; None while nothing was measured."""
    best: float | None
    low: float | None
    high: float | None
    roofline_fraction: float | None
    """The share of what memory allows that the leader reaches; None where nobody knows."""
    proposer: str
    correct: bool = True
    """Whether anything correct was found, timed or not."""


@dataclass(frozen=True)
class Outlook:
    """What more evaluations are likely to bring."""

    chance: float
    """That the policy's horizon brings more than the policy's gain."""
    slope: float
    """Expected gain of one evaluation, in log units."""
    low: float
    high: float
    """A 90 % credible interval of the slope."""


@dataclass(frozen=True)
class Decision:
    """What to do next, why, and whom to rest where the search is redirected."""

    advice: Advice
    reason: str
    rest: tuple[str, ...] = ()


def point_after(leader: Evaluation | None, *, cost: Cost, evaluated: int, proposer: str) -> Point:
    """Return the point that an evaluation leads to; ``leader`` is what was last found of it."""
    speedup = leader.speedup(Baseline.EAGER) if leader is not None else None
    fractions = [t.roofline_fraction for t in leader.timings] if leader is not None else []
    return Point(
        cost=cost,
        evaluated=evaluated,
        best_lower=speedup.lower_99 if speedup else None,
        best=speedup.value if speedup else None,
        low=speedup.low if speedup else None,
        high=speedup.high if speedup else None,
        roofline_fraction=_mean_fraction(fractions),
        proposer=proposer,
        correct=leader is not None,
    )


def advise(
    history: Sequence[Point],
    headroom: Headroom | None,
    rule: AdaptiveRule,
    *,
    redirected: Sequence[int] = (),
) -> Decision:
    """Say whether the search should go on.

    Args:
        history: a point for each evaluation, in order. Seeds come in one point, the first: what
            they gain at once says nothing of what improving on them will bring.
        headroom: what was predicted of the problem, where it was.
        rule: the policy's.
        redirected: how many candidates were evaluated when the search was redirected, each time.

    Returns:
        ``CONTINUE`` before ``rule.minimum`` evaluations, whatever they brought.
    """
    if len(history) < rule.minimum:
        return Decision(Advice.CONTINUE, f"{len(history)} evaluations tell too little")
    if history[-1].correct and history[-1].best_lower is None:
        return Decision(Advice.CONTINUE, "nothing was timed, so nothing can be concluded")
    ended = _at_the_limit(history[-1], headroom, rule)
    if ended is not None:
        return Decision(Advice.STOP, ended)
    may_redirect = len(redirected) < rule.redirections
    first = _first_evidence(history, max(redirected, default=0))
    recent, gains = history[first:], gains_of(history, resolution=rule.resolution)[first:]
    if may_redirect and _is_hard(history[-1], headroom, rule) and not any(gains):
        found = "correct" if history[-1].best_lower is None else "faster than the reference"
        reason = f"nothing {found} in {len(history)} evaluations{_room_words(headroom)}"
        return Decision(Advice.REDIRECT, reason, _fruitless(recent, gains))
    if history[-1].best_lower is None:
        reason = f"nothing correct in {len(history)} evaluations"
        hopeless = len(history) >= rule.hopeless
        return Decision(Advice.STOP if hopeless else Advice.CONTINUE, reason)
    if len(recent) < rule.minimum:
        return Decision(Advice.CONTINUE, f"{len(recent)} evaluations since it began to climb")
    plateau, reason = _plateau(gains, rule)
    if not plateau:
        return Decision(Advice.CONTINUE, reason)
    if may_redirect and _has_room(history[-1], headroom, rule):
        rest = _fruitless(recent, gains)
        return Decision(Advice.REDIRECT, f"{reason}{_room_words(headroom)}", rest)
    return Decision(Advice.STOP, reason)


def _plateau(gains: Sequence[float], rule: AdaptiveRule) -> tuple[bool, str]:
    """Whether more evaluations are unlikely to bring anything, and by which numbers."""
    outlook = outlook_of(gains, rule)
    reason = (
        f"the next {rule.horizon} evaluations bring more than {rule.gain:.0%} with a chance of "
        f"{outlook.chance:.0%} (slope {outlook.slope:.2%} an evaluation, "
        f"90 % in [{outlook.low:.2%}, {outlook.high:.2%}])"
    )
    if outlook.chance >= rule.chance:
        return False, reason
    silent = next((n for n, gain in enumerate(reversed(gains)) if gain), len(gains))
    return True, f"plateau: the last {silent} evaluations brought nothing; {reason}"


def gains_of(history: Sequence[Point], *, resolution: float = 0.0) -> list[float]:
    """How far each evaluation raised the best lower bound, in log units.

    The first that is measured raises nothing: it is where the climb begins. Steps below
    ``resolution`` wait until they add up to it, since the best of many equal measurements
    creeps upwards by luck alone. A leader that a second measurement takes back does not lower
    what was reached.
    """
    gains: list[float] = []
    reached: float | None = None
    for point in history:
        level = math.log(point.best_lower) if point.best_lower else None
        gain = 0.0 if level is None or reached is None else level - reached
        counts = gain > resolution
        gains.append(gain if counts else 0.0)
        if counts or reached is None:
            reached = level
    return gains


def outlook_of(gains: Sequence[float], rule: AdaptiveRule) -> Outlook:
    """Return the posterior of the slope and of the next evaluations' gain.

    ``gains`` are those of every evaluation since the search began to climb or was redirected.
    The same gains give the same outlook: the draws have a seed of their own.
    """
    sizes = np.asarray(gains, dtype=float)
    fading = 0.5 ** (np.arange(len(sizes))[::-1] / rule.half_life)
    random = np.random.default_rng(0)
    alive = random.random(_DRAWS) < _alive(sizes, rule)
    rates = random.gamma(rule.prior_jumps + np.count_nonzero(sizes), 1.0, _DRAWS)
    rates *= alive / (rule.prior_evaluations + len(sizes))
    # A shape of 2 is the least that has a mean; so little is the prior worth.
    shapes = random.gamma(2.0 + (fading * (sizes > 0)).sum(), 1.0, _DRAWS)
    means = (rule.prior_gain + (fading * sizes).sum()) / shapes
    jumps = random.poisson(rates * rule.horizon)
    total = random.standard_gamma(np.maximum(jumps, 1)) * means * (jumps > 0)
    low, high = np.quantile(rates * means, _INTERVAL)
    return Outlook(
        chance=float((total > math.log1p(rule.gain)).mean()),
        slope=float((rates * means).mean()),
        low=float(low),
        high=float(high),
    )


def _alive(sizes: NDArray[np.float64], rule: AdaptiveRule) -> float:
    """Return the probability that the search has not dried up."""
    jumps = np.flatnonzero(sizes)
    last = int(jumps[-1]) + 1 if len(jumps) else 0
    silence = (rule.prior_evaluations + len(sizes)) / (rule.prior_evaluations + last)
    odds = silence ** (rule.prior_jumps + len(jumps)) / (rule.prior_lives + len(jumps))
    return float(1 / (1 + odds))


def _first_evidence(history: Sequence[Point], redirected: int) -> int:
    """Where history begins to speak of what is to come.

    That is after the first measured, where the climb begins, and after the redirection.
    """
    measured = next((n for n, p in enumerate(history, 1) if p.best_lower is not None), 0)
    turned = sum(point.evaluated <= redirected for point in history)
    return max(measured, turned)


def _at_the_limit(last: Point, headroom: Headroom | None, rule: AdaptiveRule) -> str | None:
    fraction = last.roofline_fraction
    if fraction is not None and fraction * (1 + rule.roofline_margin) >= 1:
        return f"the best reaches {fraction:.0%} of what memory allows"
    if headroom is not None and headroom.high <= 1 + rule.gain:
        return f"there is nothing to gain: {headroom.evidence}"
    return None


def _is_hard(last: Point, headroom: Headroom | None, rule: AdaptiveRule) -> bool:
    """Whether nothing is faster yet though something should be."""
    if last.best_lower is None:
        return True
    return last.best_lower <= 1 and headroom is not None and _has_room(last, headroom, rule)


def _has_room(last: Point, headroom: Headroom | None, rule: AdaptiveRule) -> bool:
    """Whether so much is left that another direction is worth its price; unknown is no."""
    if last.best_lower is None:
        return True
    if last.roofline_fraction is not None and last.roofline_fraction * rule.room < 1:
        return headroom is None or headroom.speedup_possible > last.best_lower
    return headroom is not None and headroom.speedup_possible > rule.room * last.best_lower


def _fruitless(recent: Sequence[Point], gains: Sequence[float]) -> tuple[str, ...]:
    """Proposers that raised nothing lately; never all of them, since someone has to propose."""
    earned: dict[str, float] = {}
    for point, gain in zip(recent, gains, strict=True):
        earned[point.proposer] = earned.get(point.proposer, 0.0) + gain
    idle = tuple(sorted(name for name, gain in earned.items() if not gain))
    return idle if len(idle) < len(earned) else _all_but_the_rarest(recent, idle)


def _all_but_the_rarest(recent: Sequence[Point], names: Sequence[str]) -> tuple[str, ...]:
    turns: Mapping[str, int] = {n: sum(p.proposer == n for p in recent) for n in names}
    rarest = min(names, key=lambda n: turns[n], default="")
    return tuple(name for name in names if name != rarest)


def _room_words(headroom: Headroom | None) -> str:
    if headroom is None:
        return ""
    return f"; {headroom.speedup_possible:.2f}x was thought possible ({headroom.evidence})"


def _mean_fraction(fractions: Sequence[float | None]) -> float | None:
    known = [f for f in fractions if f]
    if not known or len(known) < len(fractions):
        return None
    return math.exp(sum(map(math.log, known)) / len(known))
