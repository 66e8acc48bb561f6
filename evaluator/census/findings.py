"""What a candidate's call runs, classified: its own kernels, the library's, the compiler's.

Pure: from a worker's raw facts and the names that the candidate's source defines to one
``WorkloadCensus`` per workload, and to flags for what a reader should know: kernels that are
decoys, kernels that never ran, library compute, a hidden compiler or graph, side streams
(evaluators.md E65 to E71). A candidate whose work is the reference's, or the library's in the
reference's place, is never called faster: the gate is ``policies.gates.census_verdict``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import Field, field_validator

from evaluator.census.kernel_names import VENDOR_KERNEL, base_name
from evaluator.evaluation import (
    CensusMethod,
    Flag,
    KernelUse,
    Owner,
    Severity,
    Speedup,
    Verdict,
    WorkloadCensus,
    WorkloadTiming,
)
from evaluator.records import Record
from policies.gates import census_verdict
from policies.model import CensusPolicy

_SHOWN_KERNELS = 32
_SHOWN_NAME = 120
_MOST_ENTRIES = 4096
_BRIEF_NS = 20_000.0
"""On the host, calls shorter than this are mostly dispatch and calling conventions."""
_SAME_TIME = 0.7
"""A library kernel that takes less than this share of its time in the reference does less."""

_FREE_WORDS = (
    "empty empty_like empty_strided empty_permuted new_empty new_empty_strided view reshape "
    "_unsafe_view _reshape_alias slice select expand permute transpose t as_strided unsqueeze "
    "squeeze detach alias split split_with_sizes chunk unbind narrow lift_fresh unfold diagonal "
    "view_as_real view_as_complex movedim _conj resize_ set_ is_same_size"
)
_FREE_OPS = frozenset(_FREE_WORDS.split())
"""ATen ops that allocate or describe memory and touch none of it."""
_MOVE_WORDS = (
    "copy_ clone _to_copy fill_ zero_ zeros zeros_like ones ones_like full full_like new_zeros "
    "new_ones new_full arange scalar_tensor lift _local_scalar_dense _pin_memory"
)
_MOVE_OPS = frozenset(_MOVE_WORDS.split())
"""ATen ops that move or fill memory and compute nothing."""
_PRODUCT = re.compile(
    r"gemm|gemv|nvjet|xmma|cutlass|splitK|^aten::(addmm|mm|bmm|baddbmm|addmv|mv|dot|convolution)$"
)
_MOVE_KERNEL = re.compile(r"^Mem(cpy|set)\b|FillFunctor|direct_copy_kernel|CatArrayBatchedCopy")


class RawEntry(Record):
    """One name as the worker counted it."""

    name: str
    count: int = Field(ge=0, le=10**9)
    ns: float = Field(ge=0.0, le=1e18, allow_inf_nan=False)
    bytes: int = Field(ge=0, le=2**60)
    flops: int = Field(default=0, ge=0, le=2**80)

    @field_validator("name")
    @classmethod
    def _plain(cls, name: str) -> str:
        return "".join(c for c in name[:400] if c.isprintable())


class RawCensus(Record):
    """A worker's reply, see ``evaluator/worker/census.py``; its word, bounded and typed."""

    ops: tuple[RawEntry, ...] = Field(default=(), max_length=_MOST_ENTRIES)
    native: tuple[RawEntry, ...] = Field(default=(), max_length=_MOST_ENTRIES)
    launches: tuple[RawEntry, ...] = Field(default=(), max_length=_MOST_ENTRIES)
    kernels: tuple[RawEntry, ...] = Field(default=(), max_length=_MOST_ENTRIES)
    hooked: bool = True
    profiled: bool = False
    profiler_error: str = ""
    streams: int = Field(default=0, ge=0)
    graph_launches: int = Field(default=0, ge=0)
    compiled_frames: int = Field(default=0, ge=0)

    @property
    def on_host(self) -> bool:
        """Whether the work is the CPU's, so that the host's clock tells its time."""
        return self.streams == 0


@dataclass(frozen=True)
class Work:
    """One kernel, op or native function of a call, with its owner."""

    name: str
    owner: Owner
    count: int
    ns: float | None
    bytes: int = 0
    computes: bool = True


def work_of(raw: RawCensus, defined: frozenset[str]) -> list[Work]:
    """Everything that the call ran, free ops left out.

    A device kernel is the candidate's own if its source defines the name and, for Triton, the
    launch hook saw as many launches of it in the same call: a name alone proves nothing.
    """
    if raw.profiled:
        return [_device_work(k, raw, defined) for k in raw.kernels]
    works = [_op_work(o, timed=raw.on_host) for o in raw.ops if _op(o.name) not in _FREE_OPS]
    works += [Work(n.name, Owner.OWN, n.count, n.ns) for n in raw.native]
    works += [Work(k.name, _launch_owner(k.name, defined), k.count, None) for k in raw.launches]
    return works


def _device_work(kernel: RawEntry, raw: RawCensus, defined: frozenset[str]) -> Work:
    name = base_name(kernel.name)
    launched = sum(entry.count for entry in raw.launches if entry.name == name)
    unwatched = bool(raw.native) or not raw.hooked
    seen = launched >= kernel.count or (unwatched and not VENDOR_KERNEL.match(kernel.name))
    owner = Owner.OWN if name in defined and seen else Owner.LIBRARY
    if owner is Owner.LIBRARY and launched and name not in defined:
        owner = Owner.COMPILER
    computes = not _MOVE_KERNEL.search(kernel.name)
    return Work(kernel.name, owner, kernel.count, kernel.ns, computes=computes)


def _launch_owner(name: str, defined: frozenset[str]) -> Owner:
    return Owner.OWN if name in defined else Owner.COMPILER


def _op_work(op: RawEntry, *, timed: bool) -> Work:
    ns = op.ns if timed else None
    computes = _op(op.name) not in _MOVE_OPS
    return Work(op.name, Owner.LIBRARY, op.count, ns, op.bytes, computes)


def _op(name: str) -> str:
    """``aten::add_`` as ``add_``."""
    return name.rpartition("::")[2]


def op_counts(raw: RawCensus) -> dict[str, int]:
    """ATen ops that touch memory, by plain name."""
    return {_op(o.name): o.count for o in raw.ops if _op(o.name) not in _FREE_OPS}


def repeats(reference: Sequence[Work], candidate: Sequence[Work], share: float) -> bool:
    """Whether the library does the reference's work in the candidate as well.

    Args:
        reference: what the reference runs.
        candidate: what the candidate runs.
        share: of the reference's time (its ops, where none was taken) that must recur.
    """
    theirs = {w.name: w for w in candidate if w.owner is Owner.LIBRARY}
    total = sum(_cost(w) for w in reference)
    again = sum(_cost(w) for w in reference if w.name in theirs and _as_much(w, theirs[w.name]))
    return total > 0 and again >= share * total


def does_the_change(
    reference: Sequence[Work], candidate: Sequence[Work], least_part: float
) -> bool:
    """Whether kernels of the candidate's own do what it does otherwise than the reference.

    Library kernels that the reference runs as well are kept work; products count as the same
    whichever kernel cuBLAS picks. Against what is new of the library's, the candidate's own
    kernels must do ``least_part`` of the time; where nothing was timed, they must have run.
    """
    own = [w for w in candidate if w.owner is Owner.OWN]
    known = {_family(w.name) for w in reference}
    new = [w for w in candidate if w.owner is not Owner.OWN and w.computes]
    new = [w for w in new if _family(w.name) not in known]
    if not own or any(w.ns is None for w in (*own, *new)):
        return bool(own)
    mine = sum(map(_cost, own))
    return mine >= least_part * (mine + sum(map(_cost, new)))


def _family(name: str) -> str:
    return "product" if _PRODUCT.search(name) else name


def _cost(work: Work) -> float:
    return work.count if work.ns is None else work.ns


def _as_much(reference: Work, candidate: Work) -> bool:
    """An op by the bytes that it returns; a device kernel, which tells none, by its time."""
    if candidate.count < reference.count:
        return False
    if reference.bytes or candidate.bytes:
        return candidate.bytes >= reference.bytes
    return (candidate.ns or 0.0) >= _SAME_TIME * (reference.ns or 0.0)


def compare(
    workload: str,
    raw: RawCensus,
    reference: RawCensus | None,
    defined: frozenset[str],
    policy: CensusPolicy,
    *,
    library_counts: bool = False,
    held_out: bool = False,
) -> WorkloadCensus:
    """Return the census of one workload.

    Args:
        workload: its name.
        raw: the candidate's facts.
        reference: the reference's, taken the same way; None where they could not be had.
        defined: from ``defined_kernels``.
        policy: what counts as the same work, and how much must be the candidate's own.
        library_counts: whether a better choice of library calls is an improvement too.
        held_out: keeps the kernels' names back.
    """
    works = work_of(raw, defined)
    theirs = work_of(reference, frozenset()) if reference is not None else []
    reference_known = reference is not None and reference.profiled == raw.profiled
    comparable = reference_known and bool(theirs)
    improves = library_counts or does_the_change(theirs, works, policy.own_part)
    same = repeats(theirs, works, policy.same_work_share)
    return WorkloadCensus(
        workload=workload,
        method=_method(raw),
        launches=_launches(works),
        reference_launches=_launches(theirs) if reference_known else None,
        own_share=_share(works, lambda w: w.owner is Owner.OWN),
        library_share=_share(works, lambda w: w.owner is Owner.LIBRARY and w.computes),
        kernels=() if held_out else _uses(works),
        reference_ops=op_counts(reference) if reference is not None else {},
        reference_flops=sum(o.flops for o in reference.ops) if reference is not None else 0,
        unimproved=comparable and (same or not improves),
        brief=raw.on_host and sum(w.ns or 0.0 for w in works) < _BRIEF_NS,
    )


def _launches(works: Sequence[Work]) -> int:
    return sum(w.count for w in works)


def _method(raw: RawCensus) -> CensusMethod:
    if raw.profiled:
        return CensusMethod.PROFILER
    return CensusMethod.HOST if raw.on_host else CensusMethod.DISPATCH


def _share(works: Sequence[Work], counts: Callable[[Work], bool]) -> float | None:
    """The share of time of the works that count; None where one was not timed."""
    total = sum(w.ns or 0.0 for w in works)
    if not total or any(w.ns is None for w in works):
        return None
    return min(1.0, sum(w.ns or 0.0 for w in works if counts(w)) / total)


def _uses(works: Sequence[Work]) -> tuple[KernelUse, ...]:
    total = sum(w.ns or 0.0 for w in works)
    ordered = sorted(works, key=lambda w: (-(w.ns or 0.0), w.owner is not Owner.OWN))
    return tuple(
        KernelUse(
            name=w.name[:_SHOWN_NAME],
            owner=w.owner,
            launches=w.count,
            share=None if w.ns is None or not total else min(1.0, w.ns / total),
        )
        for w in ordered[:_SHOWN_KERNELS]
    )


def flags_of(
    raws: Mapping[str, RawCensus],
    censuses: Sequence[WorkloadCensus],
    defined: frozenset[str],
    policy: CensusPolicy,
    weigh: Callable[[str], Severity | None],
) -> list[Flag]:
    """What a reader should know, one flag per rule with the workloads it was seen on.

    Args:
        raws: the candidate's facts by workload.
        censuses: the same, compared.
        defined: from ``defined_kernels``.
        policy: the shares.
        weigh: what a rule's breach is, None where it is allowed; the source policy has the same
            rules for what it reads, so that both are handled alike.
    """
    seen: dict[str, dict[str, list[str]]] = {}
    for census in censuses:
        for rule, evidence in _observations(raws[census.workload], census, defined, policy):
            seen.setdefault(rule, {}).setdefault(evidence, []).append(census.workload)
    return [
        Flag(rule=rule, severity=severity, evidence=_listed(found))
        for rule, found in seen.items()
        if (severity := weigh(rule)) is not None
    ]


def _listed(found: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(
        f"workload{'s' if len(names) > 1 else ''} {', '.join(names)}: {evidence}"
        for evidence, names in found.items()
    )


def _observations(
    raw: RawCensus, census: WorkloadCensus, defined: frozenset[str], policy: CensusPolicy
) -> Iterator[tuple[str, str]]:
    """Rules and evidence."""
    works = work_of(raw, defined)
    own = sorted({base_name(w.name) for w in works if w.owner is Owner.OWN})
    if own and census.unimproved:
        yield "decoy", f"{_names(own)} ran, but the library does the work"
    if defined and not own and census.reference_launches != 0:
        yield "fallback", f"none of the kernels in the source ran ({_names(sorted(defined))})"
    if compute := _library_compute(works, census, policy):
        yield "library-compute", f"{_names(compute)} computed"
    if raw.compiled_frames or any(w.owner is Owner.COMPILER for w in works):
        yield "hidden-compiler", "torch.compile translated or launched code during the call"
    if raw.graph_launches:
        yield "hidden-graph", f"{raw.graph_launches} CUDA graphs were launched within the call"
    if raw.streams > 1:
        yield "side-stream", f"it works on {raw.streams} streams"
    if raw.profiler_error:
        yield "census-incomplete", f"device kernels are unknown: {raw.profiler_error[:200]}"


def _library_compute(
    works: Sequence[Work], census: WorkloadCensus, policy: CensusPolicy
) -> list[str]:
    """The library's kernels that compute, unless their share of the time is negligible."""
    if census.library_share is not None and census.library_share <= policy.library_share:
        return []
    computing = [w for w in works if w.owner is Owner.LIBRARY and w.computes]
    ordered = sorted(computing, key=lambda w: -(w.ns or 0.0))
    return list(dict.fromkeys(w.name[:_SHOWN_NAME] for w in ordered))


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return ", ".join(names[:4]) + more


def is_unimproved(censuses: Sequence[WorkloadCensus]) -> bool:
    """Whether no workload on which the reference does anything is improved.

    Brief ones count where there are no others: of their time a call's cost is the most, so that
    a kernel that does nothing has its part in it.
    """
    working = [c for c in censuses if c.reference_launches != 0]
    telling = [c for c in working if not c.brief] or working
    return bool(telling) and all(c.unimproved for c in telling)


def withhold(
    timings: Sequence[WorkloadTiming],
    speedups: Sequence[Speedup],
    censuses: Sequence[WorkloadCensus],
) -> tuple[tuple[WorkloadTiming, ...], tuple[Speedup, ...]]:
    """Return timings and speedups with ``unimproved`` where no kernel of its own improves."""
    overall = is_unimproved(censuses)
    repeated = {c.workload: c.unimproved or (c.brief and overall) for c in censuses}
    return (
        tuple(
            t.model_copy(update={"speedups": _judged(t.speedups, repeated.get(t.workload, False))})
            for t in timings
        ),
        _judged(speedups, overall),
    )


def _judged(speedups: Sequence[Speedup], unimproved: bool) -> tuple[Speedup, ...]:
    return tuple(
        s.model_copy(
            update={"verdict": Verdict(census_verdict(s.verdict.value, unimproved=unimproved))}
        )
        for s in speedups
    )


def describe(censuses: Sequence[WorkloadCensus]) -> str | None:
    """One line: ``own kernels 97 % of device time, 1 launch; eager: 11 launches``.

    Over several workloads the smallest and the largest are told.
    """
    if not censuses:
        return None
    method = censuses[0].method
    what = ("op", "ops") if method is CensusMethod.HOST else ("launch", "launches")
    parts = []
    shares = [c.own_share for c in censuses if c.own_share is not None]
    if shares:
        where = "device time" if method is CensusMethod.PROFILER else "the work's time"
        kernels = "native code" if method is CensusMethod.HOST else "own kernels"
        parts.append(f"{kernels} {_range([round(100 * s) for s in shares])} % of {where}")
    parts.append(_counted([c.launches for c in censuses], what))
    line = ", ".join(parts)
    theirs = [c.reference_launches for c in censuses if c.reference_launches is not None]
    return f"{line}; eager: {_counted(theirs, what)}" if theirs else line


def _counted(values: Sequence[int], what: tuple[str, str]) -> str:
    return f"{_range(values)} {what[max(values) != 1]}"


def _range(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low}" if low == high else f"{low} to {high}"
