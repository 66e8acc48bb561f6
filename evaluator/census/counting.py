"""Taking the census: the candidate's worker and, once per workload, the reference's.

A census comes after correctness. Screens count ops and launches on the host before anything
is timed; a confirmation on a GPU asks the profiler, and only after its timing, for CUPTI
slows whatever its process does later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evaluator.census.findings import RawCensus, compare, flags_of
from evaluator.census.kernel_names import defined_kernels
from evaluator.client import Client
from evaluator.correctness.reference import Reference
from evaluator.evaluation import CensusMethod, Flag, KernelUse, Owner, Severity, WorkloadCensus
from evaluator.session import RequestFailed
from evaluator.source_policy.rules import Findings
from evaluator.workload import Workload
from policies.model import EvaluatorPolicy, Handling

_SEVERITIES = {
    Handling.FORBIDDEN: Severity.VIOLATION,
    Handling.WARNING: Severity.WARNING,
    Handling.ALLOWED: None,
}


@dataclass(frozen=True)
class Census:
    """What ran on every workload, and what a reader should know of it."""

    workloads: tuple[WorkloadCensus, ...]
    flags: tuple[Flag, ...]

    @property
    def violation(self) -> Flag | None:
        """The flag for which the policy refuses the candidate."""
        return next((f for f in self.flags if f.severity is Severity.VIOLATION), None)


class CensusTaker:
    """Asks workers what runs; remembers what the reference said."""

    def __init__(self, policy: EvaluatorPolicy) -> None:
        """Keep what the policy says of censuses, rules and the longest that a call may take."""
        self._policy = policy.census
        self._rules = Findings(policy.source)
        self._seconds = policy.limits.call_seconds
        self._references: dict[tuple[str, bool], RawCensus | None] = {}

    def take(
        self,
        client: Client,
        source: str,
        reference: Reference,
        workloads: Sequence[Workload],
        seed: int,
        *,
        profile: bool,
    ) -> Census:
        """Ask on every workload.

        Args:
            client: the loaded candidate's.
            source: the candidate's.
            reference: asked once per workload.
            workloads: to ask on.
            seed: of the inputs.
            profile: whether CUPTI is asked as well.

        Raises:
            RequestFailed, WorkerLost: with the role of whoever failed. The candidate ran before,
                so one that fails while it is watched is not trusted.
        """
        writes = reference.problem.contract.writes
        defined = defined_kernels(source)
        raws: dict[str, RawCensus] = {}
        found = []
        for workload in workloads:
            raw = client.census(
                workload, seed, writes=writes, seconds=self._seconds, profile=profile
            )
            raws[workload.name] = raw
            theirs = self._of_reference(reference, workload, seed, profile=raw.profiled)
            census = compare(
                workload.name,
                raw,
                theirs,
                defined,
                self._policy,
                library_counts=self._weight("library-compute") is None,
                held_out=workload.held_out,
            )
            found.append(census)
        flags = flags_of(raws, found, defined, self._policy, self._weight)
        return Census(tuple(found), tuple(flags))

    def _weight(self, rule: str) -> Severity | None:
        handling = self._policy.handling.get(rule) or self._rules.handling(rule)
        return _SEVERITIES[handling]

    def _of_reference(
        self, reference: Reference, workload: Workload, seed: int, *, profile: bool
    ) -> RawCensus | None:
        """The reference's facts; None where it cannot be watched, then nothing is compared."""
        key = (workload.model_dump_json(), profile)
        if key not in self._references:
            writes = reference.problem.contract.writes
            try:
                self._references[key] = reference.client.census(
                    workload, seed, writes=writes, seconds=self._seconds, profile=profile
                )
            except RequestFailed:
                self._references[key] = None
        return self._references[key]


def interpreted_census(
    workloads: Sequence[Workload], launches: Sequence[str], source: str
) -> tuple[WorkloadCensus, ...]:
    """What Triton's interpreter tells: the kernels that some workload launched, no more.

    Args:
        workloads: that were checked.
        launches: the names of the distinct launches, over all workloads.
        source: the candidate's.
    """
    if not workloads:
        return ()
    defined = defined_kernels(source)
    kernels = tuple(
        KernelUse(
            name=name,
            owner=Owner.OWN if name in defined else Owner.COMPILER,
            launches=launches.count(name),
        )
        for name in dict.fromkeys(launches)
    )
    return (
        WorkloadCensus(
            workload=", ".join(w.name for w in workloads),
            method=CensusMethod.INTERPRETER,
            launches=len(launches),
            kernels=kernels,
        ),
    )
