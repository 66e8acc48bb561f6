"""Interleaved timing of a candidate and its baselines, and the bounds on what is claimed.

A round times one block of each contestant in random order, so that drift falls on all
alike. Blocks are calibrated per contestant to one length. A round in which other work
took the cores is dropped whole. Sampling stops when the interval is narrow enough or a cap
is hit. The supervisor's own clock bounds every claim,
and at a random round the buffers get fresh content and the outputs of the block that
follows come back to be compared: work that was skipped or remembered shows there.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

import numpy as np

from evaluator.client import BlockTime, Client
from evaluator.evaluation import Baseline, Clock
from evaluator.statistics import Floats, half_width
from evaluator.tensors import CallResult
from evaluator.workload import Workload
from policies.model import TimingBudget, TimingPolicy

_OWN = "candidate"
_CALIBRATION_STEPS = 4
_MAX_CALLS = 20_000
_IN_PLACE_CALLS_PER_BUFFER = 16
"""Arguments that are overwritten drift within a block; this bounds how far."""
_CHECK_EVERY = 5
_PATIENCE = 3
"""A busy machine gets this many times the seconds to come by undisturbed rounds."""
_HIDDEN_SHARE = 0.5
_HIDDEN_FLOOR_NS = 3e6


class MachineBusy(Exception):
    """Other work disturbed so many rounds that no number can be given."""


@dataclass
class Contestant:
    """A prepared target in one worker, calibrated to a number of calls per block."""

    client: Client
    handle: int
    clock: Clock
    calls: int = 1
    estimate_ns: float = 0.0
    """Time per call as calibration saw it."""

    def time(self, seconds: float) -> BlockTime:
        """Time one block."""
        return self.client.block(self.handle, self.calls, seconds=seconds)


@dataclass(frozen=True)
class Audit:
    """How to look into a timed block: fresh seeds, and who judges what comes back."""

    seeds: tuple[int, ...]
    judge: Callable[[CallResult, int], str | None]
    """Takes the call and its seed; returns what is wrong with it, or None."""
    in_place: bool


@dataclass(frozen=True)
class Measurement:
    """One workload in one process pair."""

    candidate_us: float
    baselines_us: Mapping[Baseline, float]
    log_ratios: Mapping[Baseline, Floats]
    clock: Clock
    calls_per_block: int
    suspicion: str | None
    """Why the candidate's claims cannot be believed, or None."""
    dropped_share: float
    """Of the rounds, those that were disturbed and do not count."""


def calibrate(
    contestant: Contestant, policy: TimingPolicy, *, seconds: float, max_calls: int = _MAX_CALLS
) -> None:
    """Set the calls per block so that a block takes ``policy.block_milliseconds``."""
    target_ns = policy.block_milliseconds * 1e6
    for _ in range(_CALIBRATION_STEPS):
        block = contestant.client.block(contestant.handle, contestant.calls, seconds=seconds)
        contestant.estimate_ns = block.per_call_ns
        wanted = max(1, min(max_calls, round(target_ns / block.per_call_ns)))
        settled = 0.7 <= wanted / block.calls <= 1.4
        contestant.calls = wanted
        if settled or wanted == max_calls:
            return


def in_place_limit(buffers: int) -> int:
    """The most calls per block where arguments are overwritten."""
    return buffers * _IN_PLACE_CALLS_PER_BUFFER


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
) -> Measurement:
    """Time rounds until the interval is narrow or the budget is spent.

    Args:
        candidate: prepared and calibrated, like the baselines.
        baselines: at least the eager one.
        workload: what they are prepared for.
        budget: rounds, seconds and precision.
        policy: for the pause between blocks.
        confidence: of the interval whose width is watched.
        audit: the look into a block, made once at a random round.
        seconds: deadline of a single request.
        rng: order of blocks and the audited round.
        coarse: stop at the least number of rounds that the statistics accept.

    Raises:
        MachineBusy: most rounds were disturbed by other work.
    """
    everyone = {_OWN: candidate, **{b.value: c for b, c in baselines.items()}}
    rounds = _Rounds(list(everyone))
    wanted = _CHECK_EVERY if coarse else budget.max_rounds
    audited_round = rng.randrange(min(wanted, budget.min_rounds))
    suspicion: str | None = None
    started = time.monotonic()
    on_the_cores = candidate.clock is Clock.WALL_PINNED
    with _Stage([c.client for c in everyone.values()] if on_the_cores else []) as stage:
        while not _enough(rounds, wanted, budget, confidence, time.monotonic() - started):
            if rounds.kept + rounds.dropped == audited_round:
                with stage.everyone():
                    suspicion = _audit(candidate, workload, audit, seconds)
            order = list(everyone)
            rng.shuffle(order)
            blocks = {}
            for who in order:
                time.sleep(policy.settle_milliseconds / 1000)
                with stage.only(everyone[who].client):
                    blocks[who] = everyone[who].time(seconds)
            disturbed = on_the_cores and _disturbed(blocks, policy.waiting_share)
            rounds.add(blocks, keep=not disturbed)
        if rounds.kept + rounds.dropped <= audited_round:  # sampling ended before its turn
            with stage.everyone():
                suspicion = _audit(candidate, workload, audit, seconds)
    if rounds.kept < _CHECK_EVERY or rounds.dropped_share > policy.max_dropped_share:
        raise MachineBusy(
            f"{rounds.dropped} of {rounds.kept + rounds.dropped} rounds of workload "
            f"{workload.name} had to wait for a core; measure again when nothing else runs here"
        )
    return _measurement(rounds, candidate, suspicion)


class _Stage:
    """Lets one worker run at a time.

    After a block, threads of OpenMP's pool spin for up to tens of milliseconds before they
    sleep, and a process that a candidate left behind may never sleep; both would slow the
    next worker's block.
    """

    def __init__(self, clients: Sequence[Client]) -> None:
        self._clients = clients

    def __enter__(self) -> Self:
        for client in self._clients:
            client.session.pause()
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients:
            client.session.resume()

    @contextmanager
    def everyone(self) -> Iterator[None]:
        """Let all run meanwhile."""
        self.__exit__()
        try:
            yield
        finally:
            self.__enter__()

    @contextmanager
    def only(self, client: Client) -> Iterator[None]:
        """Let ``client`` run meanwhile, and nobody else."""
        if client not in self._clients:
            yield
            return
        client.session.resume()
        try:
            yield
        finally:
            client.session.pause()


class _Rounds:
    """The blocks of the rounds that nothing disturbed, and the candidate's of all."""

    def __init__(self, contestants: Sequence[str]) -> None:
        self.blocks: dict[str, list[BlockTime]] = {who: [] for who in contestants}
        self.claims: list[BlockTime] = []
        self.kept = 0
        self.dropped = 0

    def add(self, blocks: Mapping[str, BlockTime], *, keep: bool) -> None:
        """Take one round, whole or not at all: the blocks of a round are a pair."""
        self.claims.append(blocks[_OWN])
        if not keep:
            self.dropped += 1
            return
        self.kept += 1
        for who, block in blocks.items():
            self.blocks[who].append(block)

    @property
    def dropped_share(self) -> float:
        """Of the rounds so far, those that were disturbed."""
        return self.dropped / max(1, self.kept + self.dropped)

    def per_call(self) -> tuple[Floats, dict[str, Floats]]:
        """Nanoseconds per call and round: the candidate's, and each baseline's."""
        times = {who: _per_call(blocks) for who, blocks in self.blocks.items()}
        own = times.pop(_OWN)
        return own, times


def _disturbed(blocks: Mapping[str, BlockTime], share: float) -> bool:
    """Whether other work took the cores, as the eager baseline's threads felt it.

    Only they tell: a candidate whose own threads stand in each other's way (its OpenMP's and
    torch's, say) is slow by its own doing, and must not choose which of its blocks count.
    """
    eager = blocks[Baseline.EAGER]
    return eager.waited_ns > share * eager.claimed_ns


def _enough(
    rounds: _Rounds, wanted: int, budget: TimingBudget, confidence: float, elapsed: float
) -> bool:
    if rounds.dropped and elapsed > _PATIENCE * budget.workload_seconds:
        return True
    if rounds.kept < min(budget.min_rounds, _CHECK_EVERY):
        return False
    if rounds.kept >= wanted or elapsed > budget.workload_seconds:
        return True
    if rounds.kept < budget.min_rounds or rounds.kept % _CHECK_EVERY:
        return False
    own, theirs = rounds.per_call()
    ratios = [np.log(baseline) - np.log(own) for baseline in theirs.values()]
    return all(half_width(r, confidence) <= budget.half_width for r in ratios)


def _measurement(rounds: _Rounds, candidate: Contestant, suspicion: str | None) -> Measurement:
    own, theirs = rounds.per_call()
    doubt = implausible_claim(rounds.claims, rounds.blocks[Baseline.EAGER])
    return Measurement(
        candidate_us=float(np.median(own)) / 1e3,
        baselines_us={Baseline(b): float(np.median(v)) / 1e3 for b, v in theirs.items()},
        log_ratios={Baseline(b): np.log(v) - np.log(own) for b, v in theirs.items()},
        clock=candidate.clock,
        calls_per_block=candidate.calls,
        suspicion=suspicion or doubt,
        dropped_share=rounds.dropped_share,
    )


def implausible_claim(own: Sequence[BlockTime], baseline: Sequence[BlockTime]) -> str | None:
    """Compare the worker's claims with the supervisor's clock.

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


def _audit(candidate: Contestant, workload: Workload, audit: Audit, seconds: float) -> str | None:
    """Refill the buffers, time a block as always, and judge its last call."""
    client = candidate.client
    client.refill(candidate.handle, audit.seeds, seconds=seconds)
    calls = len(audit.seeds) if audit.in_place else candidate.calls
    client.block(candidate.handle, calls, seconds=seconds)
    result, index = client.last(candidate.handle, workload, seconds=seconds)
    if not 0 <= index < len(audit.seeds):
        return f"the last call used buffer {index}, which does not exist"
    return audit.judge(result, audit.seeds[index])


def _per_call(blocks: Sequence[BlockTime]) -> Floats:
    return np.array([b.per_call_ns for b in blocks], dtype=np.float64)
