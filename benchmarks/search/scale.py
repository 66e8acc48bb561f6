"""How the store and the search's state bear a very long run.

Each insert is what one candidate costs the search itself: its proposal and its evaluation
are committed to a real store, and both are taken into the state. The sources that are timed
are Triton kernels of sixty lines in a few strategies, the evaluations of four workloads;
between the two ends the kernels are short, so that the measurement itself takes minutes. What
proposing costs (making the source, and its hash) is left out. It runs in a process of its
own, whose peak memory is the figure:

    python -m benchmarks.search.scale [CANDIDATES]
"""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.search.made_up import made_up_evaluation
from evaluator.candidate import BackendName, Candidate
from evaluator.evaluation import Evaluation
from evolver.costs import Cost
from evolver.state import SearchState
from evolver.store import EntryKind, LogEntry, Store

PROBE = 1000
"""Inserts that are timed at each end."""
WORKLOADS = ("decode", "prefill", "long", "ragged")
FAILING = 0.3


@dataclass(frozen=True)
class Scale:
    """What inserts cost in a run of ``candidates``."""

    candidates: int
    first_ms: float
    """Per insert, mean over the first thousand."""
    last_ms: float
    """Per insert, mean over the last thousand."""
    last_cpu_ms: float
    """The processor's time in that, which a busy machine does not lengthen as much."""
    replay_ms: float
    """Per candidate, when the state is rebuilt from the log: over the last thousand."""
    peak_rss_bytes: int
    database_bytes: int


def measure_scale(candidates: int = 100_000) -> Scale:
    """Measure in a process of its own.

    Raises:
        subprocess.CalledProcessError: the process failed.
    """
    command = [sys.executable, "-m", "benchmarks.search.scale", str(candidates)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return Scale(**json.loads(done.stdout))


def fill(folder: Path, candidates: int) -> Scale:
    """Fill a store in ``folder`` and a state with candidates, and time it."""
    path = folder / "run.db"
    store, state = Store.create(path), SearchState()
    probe = min(PROBE, candidates // 2)
    first, _ = _insert(store, state, attempts(range(probe)))
    _insert(store, state, attempts(range(probe, candidates - probe), longest=2))
    last, last_cpu = _insert(store, state, attempts(range(candidates - probe, candidates)))
    replay = _replay(store, state.sequence - 2 * probe) / probe
    store.close()
    return Scale(
        candidates=candidates,
        first_ms=1e3 * first / probe,
        last_ms=1e3 * last / probe,
        last_cpu_ms=1e3 * last_cpu / probe,
        replay_ms=1e3 * replay,
        peak_rss_bytes=1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        database_bytes=path.stat().st_size,
    )


def _insert(
    store: Store, state: SearchState, made: Iterator[tuple[Candidate, Evaluation]]
) -> tuple[float, float]:
    """Return the seconds that the inserts took, and the processor's; making candidates left out."""
    seconds = cpu_seconds = 0.0
    for candidate, evaluation in made:
        began, cpu_began = time.perf_counter(), time.process_time()
        for kind, found in ((EntryKind.PROPOSED, None), (EntryKind.EVALUATED, evaluation)):
            entry = _entry(state, kind, candidate, found)
            store.append(entry, candidate)
            state.apply(entry, candidate)
        seconds += time.perf_counter() - began
        cpu_seconds += time.process_time() - cpu_began
    return seconds, cpu_seconds


def _replay(store: Store, after: int) -> float:
    """Return the seconds that taking in the entries after ``after`` once more takes."""
    state, began = SearchState(), time.perf_counter()
    for entry in store.entries():
        if entry.sequence == after + 1:
            began = time.perf_counter()
        if entry.sequence > after:
            candidate = store.candidate(str(entry.candidate_id))
            state.apply(entry, candidate if entry.kind is EntryKind.EVALUATED else None)
    return time.perf_counter() - began


def _entry(
    state: SearchState, kind: EntryKind, candidate: Candidate, evaluation: Evaluation | None
) -> LogEntry:
    return LogEntry(
        sequence=state.sequence + 1,
        kind=kind,
        ticket=state.sequence // 2 + 1,
        proposer="mutate",
        candidate_id=candidate.id,
        parent_id=None,
        evaluation=evaluation,
        cost=Cost(seconds=1.0, device_seconds=0.5),
        elapsed_seconds=float(state.sequence),
        island=0,
        detail="",
        at=datetime.now(UTC),
    )


def attempts(
    numbers: Iterable[int], *, longest: int = 80
) -> Iterator[tuple[Candidate, Evaluation]]:
    """Yield candidates that differ, of up to so many steps, with what was found about each."""
    for number in numbers:
        rng = random.Random(number)  # noqa: S311 - not for secrets
        source = _source(number, rng, longest)
        candidate = Candidate.create(source, backend=BackendName.TRITON, proposer="mutate")
        yield candidate, _evaluation(candidate.id, rng)


_HEAD = """\
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    base = tl.arange(0, BLOCK)
"""
_LOOPED = """\
    acc = tl.zeros([BLOCK], tl.float32)
    for start in tl.range(0, columns, BLOCK):
        x = tl.load(x_ptr + row * columns + start + base, start + base < columns, other=0.0)
        acc += x * x
    total = tl.sum(acc, 0)
    column = base
    value = tl.load(x_ptr + row * columns + column, column < columns, other=0.0) / total
"""
_AT_ONCE = """\
    column = base
    value = tl.load(x_ptr + row * columns + column, column < columns, other=0.0)
    value = value / tl.sum(value * value, 0)
"""
_PLAIN = """\
    column = base
    value = tl.load(x_ptr + row * columns + column, column < columns, other=0.0)
"""
_TAIL = """\
    tl.store(out_ptr + row * columns + column, value, column < columns)


def entry(x):
    out = torch.empty_like(x)
    kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK={block}, num_warps=4)
    return out
"""


def _source(number: int, rng: random.Random, longest: int) -> str:
    step = f"    value = value * {rng.random():.3f} + {number}.0\n"
    steps = [step] * rng.randrange(1, longest)
    form = rng.choice((_LOOPED, _AT_ONCE, _PLAIN))
    return _HEAD + form + "".join(steps) + _TAIL.format(block=rng.choice((256, 512, 1024)))


def _evaluation(candidate_id: str, rng: random.Random) -> Evaluation:
    fails, value = rng.random() < FAILING, rng.lognormvariate(0.0, 0.5)
    return made_up_evaluation(
        candidate_id,
        None if fails else value,
        problem_id="scale",
        backend=BackendName.TRITON,
        workloads=WORKLOADS,
        message=f"output 0 differs at {rng.random()}" if fails else "ok",
    )


def main() -> None:
    """Measure here and print the figures as JSON."""
    candidates = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(asdict(fill(Path(folder), candidates))))


if __name__ == "__main__":
    main()
