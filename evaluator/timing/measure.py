"""Interleaved timing of a candidate and its baselines.

A round times one block of each contestant in random order, so that drift falls on all alike;
a round that something disturbed is dropped whole (``rounds.py``). Sampling stops when the
interval is narrow enough or a cap is hit. At random rounds a second block of another length
follows the candidate's, for the slope of the supervisor's own clock (``claims.py``), and at one
a buffer gets fresh content and the outputs of a call on it come back to be compared: work that
was skipped or remembered shows there; that outputs were kept by content, in the time of what is
new (``freshness.py``).
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from evaluator.attention import attention
from evaluator.client import BlockTime
from evaluator.evaluation import Baseline, Clock
from evaluator.tensors import CallResult
from evaluator.timing.claims import (
    SlopePair,
    implausible_claim,
    made_up_claim,
    slope_ns,
    uncertainty,
    unjoined_work,
)
from evaluator.timing.clocks import Monitor, strangers
from evaluator.timing.contestant import Contestant
from evaluator.timing.freshness import ContentPair, found_done, remembered
from evaluator.timing.rounds import OWN, Cause, Rounds, disturbance
from evaluator.timing.stage import Stage
from evaluator.timing.statistics import Floats, half_width
from evaluator.workload import Workload
from policies.model import TimingBudget, TimingPolicy

_CHECK_EVERY = 5
_PATIENCE = 3
"""A busy machine gets this many times the seconds to come by undisturbed rounds."""
_SECOND_LOOK = 3
"""Before a claim is doubted by its slope, so many times more pairs are measured."""
_CONTENT_PAIRS = 2
_MORE_CONTENT_PAIRS = 8
"""Where the first are in doubt."""
_CONTENT_BUFFERS = 3
_PASSES = 8
_SEED_BITS = 62
_COOL_DOWN_GROWTH = 1.5
_LONGEST_COOL_DOWN_SECONDS = 0.5
_PICK_BITS = 30


class MachineBusy(Exception):
    """The machine is not fit to measure on now: others use it, or its clock does not hold."""


@dataclass(frozen=True)
class Audit:
    """How to look into a timed block: a fresh seed, and who judges what comes back."""

    seed: int
    judge: Callable[[CallResult, int], str | None]
    """Takes the call and its seed; returns what is wrong with it, or None."""


@dataclass(frozen=True)
class Measurement:
    """One workload in one process pair."""

    candidate_us: float
    baselines_us: Mapping[Baseline, float]
    log_ratios: Mapping[Baseline, Floats]
    per_call_ns: Mapping[str, Floats]
    """Of the rounds that count, in order: the candidate's and each baseline's."""
    clock: Clock
    calls_per_block: int
    buffers: int
    slope_us: float
    """What one more call of the candidate costs by the supervisor's own clock."""
    suspicion: str | None
    """Why the candidate's claims cannot be believed, or None."""
    dropped: Mapping[str, float]
    """Per cause, the share of the rounds that do not count."""
    held_back: frozenset[str]
    """Why the device's clock was lower than it could be, at some time."""

    @property
    def dropped_share(self) -> float:
        """Of the rounds, those that do not count."""
        return sum(self.dropped.values())


def measure(
    candidate: Contestant,
    baselines: Mapping[Baseline, Contestant],
    workload: Workload,
    *,
    budget: TimingBudget,
    policy: TimingPolicy,
    confidence: float,
    audit: Audit,
    seconds: float,
    rng: random.Random,
    coarse: bool = False,
    monitor: Monitor | None = None,
) -> Measurement:
    """Time rounds until the interval is narrow or the budget is spent.

    Args:
        candidate: prepared and calibrated, like the baselines.
        baselines: at least the eager one.
        workload: what they are prepared for.
        budget: rounds, seconds and precision.
        policy: what disturbs a round, and how far clocks may disagree.
        confidence: of the interval whose width is watched.
        audit: the look into a block, made once at a random round.
        seconds: deadline of a single request.
        rng: order of blocks, and the rounds that are looked into.
        coarse: stop at the least number of rounds that the statistics accept.
        monitor: of the device, where there is one.

    Raises:
        MachineBusy: most rounds were disturbed, or others use the device.
    """
    series = _Series(candidate, baselines, policy=policy, seconds=seconds, rng=rng, monitor=monitor)
    wanted = _CHECK_EVERY if coarse else budget.max_rounds
    first = min(wanted, budget.min_rounds)
    audited_round = rng.randrange(first)
    slope_rounds = set(rng.sample(range(first), min(first, budget.slope_pairs)))
    suspicion: str | None = None
    started = time.monotonic()
    with series.stage:
        series.expect_nobody_else()
        while not _enough(series.rounds, wanted, budget, confidence, time.monotonic() - started):
            if series.rounds.made == audited_round:
                suspicion = series.audit(workload, audit)
            series.round(slope=series.rounds.made in slope_rounds)
        if series.rounds.made <= audited_round:  # sampling ended before its turn
            suspicion = series.audit(workload, audit)
        series.expect_nobody_else()
        _expect_quiet(series.rounds, workload, policy)
        # Calls that leave at once have no slope to be judged by, so this comes first.
        doubt = None if coarse else series.standing()
        doubt = doubt or series.doubt(budget.slope_pairs)
        if doubt is None and not coarse:
            doubt = series.memory()
    return series.measurement(suspicion or doubt)


class _Series:
    """The contestants, the rounds that they have made, and what was seen meanwhile."""

    def __init__(
        self,
        candidate: Contestant,
        baselines: Mapping[Baseline, Contestant],
        *,
        policy: TimingPolicy,
        seconds: float,
        rng: random.Random,
        monitor: Monitor | None,
    ) -> None:
        self._own = candidate
        self._everyone = {OWN: candidate, **{b.value: c for b, c in baselines.items()}}
        self._policy = policy
        self._seconds = seconds
        self._rng = rng
        self._monitor = monitor
        self._on_the_cores = candidate.clock is Clock.WALL_PINNED
        self._cool_down = 0.0
        self._held_back: frozenset[str] = frozenset()
        self._slopes: list[SlopePair] = []
        self.rounds = Rounds(list(self._everyone))
        clients = [c.client for c in self._everyone.values()] if self._on_the_cores else []
        self.stage = Stage(clients)

    def round(self, *, slope: bool) -> None:
        """Time a block of everyone, and with ``slope`` another one of the candidate."""
        order = list(self._everyone)
        self._rng.shuffle(order)
        blocks: dict[str, BlockTime] = {}
        other: BlockTime | None = None
        for who in order:
            if slope and who == OWN:
                blocks[who], other = self._slope_pair()
            else:
                blocks[who] = self._block(self._everyone[who])
        cause = disturbance(blocks, self._policy, on_the_cores=self._on_the_cores)
        self.rounds.add(blocks, cause)
        if other is not None and cause is None:
            self._slopes.append(SlopePair(blocks[OWN], other))
        self._watch(cause)

    def audit(self, workload: Workload, audit: Audit) -> str | None:
        """Refill a buffer, time a block as always, and judge a call on that buffer."""
        own, seconds = self._own, self._seconds
        index, pick = self._rng.randrange(own.seeds), self._rng.getrandbits(_PICK_BITS)
        with self.stage.everyone():
            own.client.refill(own.handle, index, audit.seed, seconds=seconds)
            own.time(seconds, calls=own.calls_ending_on(index))
            result, used = own.client.last(own.handle, workload, index, pick, seconds=seconds)
            if used != index:
                return f"the audited call used buffer {used} and not {index}"
            return audit.judge(result, audit.seed)

    def doubt(self, slope_pairs: int) -> str | None:
        """Why the claims do not fit the supervisor's own clock, or None if they do.

        Raises:
            MachineBusy: the machine is too noisy to tell.
        """
        eager = self.rounds.blocks[Baseline.EAGER]
        limit = self._policy.slope_noise_limit
        self._more_slopes(slope_pairs)
        doubt = made_up_claim(self._slopes, eager, self._policy)
        if doubt is not None or uncertainty(self._slopes, eager) > limit:
            self._more_slopes(slope_pairs * (1 + _SECOND_LOOK))
            doubt = made_up_claim(self._slopes, eager, self._policy)
        if (share := uncertainty(self._slopes, eager)) > limit:
            how = f"by {share:.0%}" if share < math.inf else "so that more calls took less time"
            raise MachineBusy(
                f"our own clock is uncertain {how}, too much to check what is claimed; "
                "measure again when nothing else runs here"
            )
        return (
            doubt
            or implausible_claim(self.rounds.claims, eager)
            or unjoined_work(self.rounds.claims, eager, self._policy)
        )

    def memory(self) -> str | None:
        """Why outputs seem to be kept by their inputs' content, or None if they do not."""
        pairs = [self._content_pair() for _ in range(_CONTENT_PAIRS)]
        if remembered(pairs, self._policy, quartiles=False) is None:
            return None
        pairs += [self._content_pair() for _ in range(_MORE_CONTENT_PAIRS)]
        return remembered(pairs, self._policy)

    def standing(self) -> str | None:
        """Why work seems to be skipped whose result stands in a written argument, or None."""
        own = self._own
        if not own.in_place or own.calls < 2 * own.buffers:
            return None  # in a usual block most calls are the first on their buffer
        contestants = (own, self._everyone[Baseline.EAGER.value])
        pairs = [[self._pass_pair(c) for _ in range(_PASSES)] for c in contestants]
        return found_done(pairs[0], pairs[1], self._policy)

    def expect_nobody_else(self) -> None:
        """Raise MachineBusy where a process that is not ours computes on the device."""
        if self._monitor is None or not self._policy.exclusive_gpu:
            return
        others = strangers(self._monitor)
        if others:
            raise MachineBusy(
                f"someone else uses the GPU (process {', '.join(map(str, others))}); measure again "
                "when it is free, or set exclusive_gpu to false in the policy"
            )

    def measurement(self, suspicion: str | None) -> Measurement:
        """What the rounds that count say."""
        times = self.rounds.per_call()
        own = times[OWN]
        theirs = {Baseline(who): ns for who, ns in times.items() if who != OWN}
        return Measurement(
            candidate_us=float(np.median(own)) / 1e3,
            baselines_us={b: float(np.median(ns)) / 1e3 for b, ns in theirs.items()},
            log_ratios={b: np.log(ns) - np.log(own) for b, ns in theirs.items()},
            per_call_ns=times,
            clock=self._own.clock,
            calls_per_block=self._own.calls,
            buffers=self._own.buffers,
            slope_us=slope_ns(self._slopes) / 1e3,
            suspicion=suspicion,
            dropped=self.rounds.dropped_shares,
            held_back=self._held_back,
        )

    def _block(self, contestant: Contestant, *, calls: int | None = None) -> BlockTime:
        """One block after a pause, alone on the cores, with the device's clock around it."""
        policy, monitor = self._policy, self._monitor
        on_the_cores = self._on_the_cores
        pause = policy.settle_milliseconds if on_the_cores else policy.device_settle_milliseconds
        time.sleep(pause / 1e3)
        with self.stage.only(contestant.client):
            before = monitor.clock_mhz() if monitor is not None else None
            block = contestant.time(self._seconds, calls=calls)
            after = monitor.clock_mhz() if monitor is not None else None
        if before is None or after is None:
            return block
        return replace(block, clocks_mhz=(before, after))

    def _content_pair(self) -> ContentPair:
        """Time new content in one of the first buffers, and later the same content again.

        Between the two, a usual block has caches and branch predictors forget it.
        """
        index = self._rng.randrange(min(self._own.seeds, _CONTENT_BUFFERS))
        seed = self._rng.getrandbits(_SEED_BITS)
        new = self._refilled(index, seed)
        self._block(self._own)
        return ContentPair(new, self._refilled(index, seed))

    def _pass_pair(self, contestant: Contestant) -> ContentPair:
        """A pass over restored buffers, and as many calls of a usual block."""
        usual = self._block(contestant)
        calls = contestant.buffers
        share = replace(usual, claimed_ns=usual.per_call_ns * calls, calls=calls)
        return ContentPair(self._block(contestant, calls=calls), share)

    def _refilled(self, index: int, seed: int) -> BlockTime:
        """Few calls, the last of them on content that was just written."""
        own = self._own
        calls = own.step if own.clock is Clock.GRAPH_REPLAY else index + 1
        with self.stage.only(own.client):
            own.client.refill(own.handle, index, seed, seconds=self._seconds)
        return self._block(own, calls=calls)

    def _more_slopes(self, wanted: int) -> None:
        while len(self._slopes) < wanted:
            self._slopes.append(SlopePair(*self._slope_pair()))

    def _slope_pair(self) -> tuple[BlockTime, BlockTime]:
        """A block of the candidate as always, and one of another length."""
        with attention():
            return self._block(self._own), self._block(self._own, calls=self._own.other_calls)

    def _watch(self, cause: Cause | None) -> None:
        """Note why the clock is low, and let a device whose clock moved rest a little."""
        if self._monitor is None:
            return
        self._held_back |= self._monitor.held_back()
        if cause is not Cause.CLOCK:
            self._cool_down = 0.0
            return
        least = self._policy.cool_down_milliseconds / 1e3
        self._cool_down = max(least, self._cool_down * _COOL_DOWN_GROWTH)
        time.sleep(min(self._cool_down, _LONGEST_COOL_DOWN_SECONDS))


def _enough(
    rounds: Rounds, wanted: int, budget: TimingBudget, confidence: float, elapsed: float
) -> bool:
    if rounds.dropped and elapsed > _PATIENCE * budget.workload_seconds:
        return True
    if rounds.kept < min(budget.min_rounds, _CHECK_EVERY):
        return False
    if rounds.kept >= wanted or elapsed > budget.workload_seconds:
        return True
    if rounds.kept < budget.min_rounds or rounds.kept % _CHECK_EVERY:
        return False
    times = rounds.per_call()
    own = np.log(times.pop(OWN))
    ratios = [np.log(baseline) - own for baseline in times.values()]
    return all(half_width(r, confidence) <= budget.half_width for r in ratios)


def _expect_quiet(rounds: Rounds, workload: Workload, policy: TimingPolicy) -> None:
    if rounds.kept >= _CHECK_EVERY and rounds.dropped_share <= policy.max_dropped_share:
        return
    causes = ", ".join(f"{cause.value} in {n}" for cause, n in rounds.dropped.most_common())
    raise MachineBusy(
        f"of {rounds.made} rounds of workload {workload.name}, {causes}; measure again when "
        "nothing else runs here"
    )
