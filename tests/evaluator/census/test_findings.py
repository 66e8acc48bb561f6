"""What a census makes of raw facts, of source, and of whole candidates on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from evaluator.backends import choose_backend
from evaluator.candidate import BackendName, Candidate
from evaluator.census.counting import Census, CensusTaker
from evaluator.census.findings import (
    RawCensus,
    RawEntry,
    compare,
    describe,
    flags_of,
    is_unimproved,
    withhold,
)
from evaluator.census.kernel_names import base_name, defined_kernels
from evaluator.correctness.judging import load_candidate
from evaluator.correctness.reference import Reference
from evaluator.evaluation import (
    CensusMethod,
    Owner,
    Severity,
    Verdict,
    WorkloadCensus,
)
from evaluator.sandbox.select import select_sandbox
from evaluator.session import RequestFailed
from evaluator.workers import Workers
from evaluator.workload import Workload
from policies.model import EvaluatorPolicy
from tests import samples
from tests.builders import (
    make_candidate,
    make_evaluation,
    make_problem,
    make_speedup,
    make_tensor,
)

POLICY = EvaluatorPolicy.default().census
WORKLOAD = Workload(
    name="large",
    arguments={
        "x": make_tensor(512, 1024),
        "residual": make_tensor(512, 1024),
        "weight": make_tensor(1024),
        "eps": 1e-6,
    },
)
GEMM = "nvjet_tst_128x64_64x10_1x2_h_bz_TNT"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"


def entries(*named: tuple[str, int, float]) -> tuple[RawEntry, ...]:
    return tuple(RawEntry(name=n, count=c, ns=ns, bytes=0) for n, c, ns in named)


def profiled(
    kernels: tuple[RawEntry, ...], launches: tuple[RawEntry, ...] = (), **changes: object
) -> RawCensus:
    fields: dict[str, object] = {"kernels": kernels, "launches": launches, "streams": 1}
    return RawCensus.model_validate({**fields, "profiled": True, **changes})


def judged(
    raw: RawCensus,
    reference: RawCensus,
    *defined: str,
    weigh: Callable[[str], Severity | None] = lambda _: Severity.WARNING,
) -> tuple[WorkloadCensus, dict[str, Severity]]:
    names = frozenset(defined)
    census = compare("w", raw, reference, names, POLICY)
    flags = flags_of({"w": raw}, [census], names, POLICY, weigh)
    return census, {f.rule: f.severity for f in flags}


REFERENCE = profiled(entries((GEMM, 1, 9000.0), (ADD, 2, 1000.0)))


def test_a_kernel_of_the_candidates_own_has_its_share_of_device_time() -> None:
    raw = profiled(
        entries(("fused", 1, 9700.0), ("Memset (Device)", 1, 300.0)), entries(("fused", 1, 0))
    )
    census, rules = judged(raw, REFERENCE, "fused")
    assert census.own_share == pytest.approx(0.97)
    assert (census.launches, census.reference_launches) == (2, 3)
    assert not census.unimproved
    assert not rules
    assert describe([census]) == "own kernels 97 % of device time, 2 launches; eager: 3 launches"


def test_the_same_library_kernels_are_no_improvement() -> None:
    census, rules = judged(REFERENCE, REFERENCE)
    assert census.unimproved
    assert is_unimproved([census])
    assert rules == {"library-compute": Severity.WARNING}


def test_a_decoy_beside_the_library_is_named_and_improves_nothing() -> None:
    raw = profiled(
        entries(("noop", 1, 50.0), (GEMM, 1, 9000.0), (ADD, 2, 1000.0)), entries(("noop", 1, 0))
    )
    census, rules = judged(raw, REFERENCE, "noop")
    assert is_unimproved([census])
    assert "decoy" in rules


def test_a_fallback_to_the_library_is_named() -> None:
    census, rules = judged(REFERENCE, REFERENCE, "never_launched")
    assert "fallback" in rules
    assert census.own_share == 0.0


def test_a_library_kernel_does_not_become_ones_own_by_its_name() -> None:
    """E16: the candidate launches a kernel that is named like cuBLAS's, once, on nothing."""
    triton = profiled(entries((GEMM, 2, 9000.0)), entries((GEMM, 1, 0)))
    cuda = profiled(entries((GEMM, 2, 9000.0)), native=entries(("go", 1, 0)))
    for raw in (triton, cuda):
        census, _ = judged(raw, REFERENCE, GEMM)
        assert census.own_share == 0.0


def test_a_cuda_kernel_is_known_by_its_definition() -> None:
    kernels = entries(("void fused<float>(float*)", 1, 9000.0), (ADD, 1, 1000.0))
    raw = profiled(kernels, native=entries(("go", 1, 0)))
    names = ("fused", "vectorized_elementwise_kernel")
    assert judged(raw, REFERENCE, *names)[0].own_share == pytest.approx(0.9)


@pytest.mark.parametrize(
    "kernels", [[(GEMM, 1, 9000.0)], [("cunn_SoftMaxForward", 1, 5000.0), ("noop", 1, 20.0)]]
)
def test_a_better_choice_of_library_calls_is_no_kernel(
    kernels: list[tuple[str, int, float]],
) -> None:
    """E65, E67: unless the policy allows library compute."""
    raw = profiled(entries(*kernels), entries(("noop", 1, 0)))
    assert judged(raw, REFERENCE, "noop")[0].unimproved
    names = frozenset({"noop"})
    assert not compare("w", raw, REFERENCE, names, POLICY, library_counts=True).unimproved


def test_another_product_kernel_beside_ones_own_tail_is_kept_work() -> None:
    other = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64"
    raw = profiled(entries((other, 1, 9000.0), ("tail", 1, 400.0)), entries(("tail", 1, 0)))
    assert not judged(raw, REFERENCE, "tail")[0].unimproved


def test_a_fused_tail_after_a_library_product_is_an_improvement() -> None:
    raw = profiled(entries((GEMM, 1, 9000.0), ("tail", 1, 400.0)), entries(("tail", 1, 0)))
    census, rules = judged(raw, REFERENCE, "tail")
    assert not census.unimproved
    assert set(rules) == {"library-compute"}


@pytest.mark.parametrize("severity", [Severity.VIOLATION, None])
def test_the_policy_says_what_library_compute_is(severity: Severity | None) -> None:
    rules = judged(REFERENCE, REFERENCE, weigh=lambda _: severity)[1]
    assert rules.get("library-compute") is severity


def test_a_hidden_compiler_and_a_hidden_graph_are_named() -> None:
    inductor = "triton_poi_fused_add_0"
    raw = profiled(
        entries((inductor, 1, 10.0)), entries((inductor, 1, 0)), graph_launches=1, compiled_frames=1
    )
    census, rules = judged(raw, REFERENCE, "decoy")
    assert census.kernels[0].owner is Owner.COMPILER
    assert {"hidden-compiler", "hidden-graph"} <= set(rules)


def test_a_side_stream_is_named() -> None:
    raw = profiled(entries(("fused", 1, 9.0)), entries(("fused", 1, 0)), streams=2)
    assert "side-stream" in judged(raw, REFERENCE, "fused")[1]


def test_on_the_host_alone_shares_are_unknown_and_work_is_compared_by_op() -> None:
    op = {"name": "aten::mm", "count": 1, "ns": 5.0, "bytes": 4096}
    small = {**op, "bytes": 64}
    reference = RawCensus.model_validate({"ops": [op], "streams": 1})
    same, _ = judged(reference, reference)
    assert (same.method, same.own_share) == (CensusMethod.DISPATCH, None)
    assert same.unimproved
    launch = {"name": "fused", "count": 1, "ns": 0, "bytes": 0}
    less = RawCensus.model_validate({"ops": [small], "launches": [launch], "streams": 1})
    assert not judged(less, reference, "fused")[0].unimproved


def on_host(*ops: tuple[str, int, float], own_ns: float | None = None) -> RawCensus:
    native = () if own_ns is None else entries(("mine", 1, own_ns))
    return RawCensus(ops=entries(*ops), native=native)


HOST_REFERENCE = on_host(("aten::max", 1, 4e4), ("aten::exp", 1, 9e4), ("aten::div", 1, 3e4))


def test_on_the_host_a_kernel_beside_another_operator_of_the_library_improves_nothing() -> None:
    """E66: it runs, on one element; time inside native calls tells."""
    census, rules = judged(on_host(("aten::_softmax", 1, 8e4), own_ns=2e3), HOST_REFERENCE, "mine")
    assert is_unimproved([census])
    assert "decoy" in rules


@pytest.mark.parametrize(
    "beside",
    [
        ("aten::empty", 1, 9e4),
        ("aten::view", 4, 9e4),
        ("aten::copy_", 1, 9e4),
        ("aten::neg", 1, 5e4),
    ],
)
def test_on_the_host_a_kernel_may_allocate_and_leave_a_little_to_the_library(
    beside: tuple[str, int, float],
) -> None:
    census, _ = judged(on_host(beside, own_ns=5e4), HOST_REFERENCE, "mine")
    assert not census.unimproved


def test_where_calling_takes_the_time_longer_workloads_say_what_improves() -> None:
    """A call of a kernel that does nothing costs a third of the library's smallest operator."""
    long = compare(
        "long", on_host(("aten::_softmax", 1, 8e4), own_ns=2e3), HOST_REFERENCE, frozenset(), POLICY
    )
    tiny = compare(
        "tiny", on_host(("aten::_softmax", 1, 3e3), own_ns=2e3), HOST_REFERENCE, frozenset(), POLICY
    )
    assert (tiny.brief, tiny.unimproved) == (True, False)
    assert is_unimproved([long, tiny])
    assert not is_unimproved([tiny])
    timing = make_evaluation().timings[0].model_copy(update={"workload": "tiny"})
    timings, _ = withhold((timing,), (), [long, tiny])
    assert {s.verdict for s in timings[0].speedups} == {Verdict.UNIMPROVED}


def test_views_and_allocations_are_no_work() -> None:
    ops = [
        {"name": f"aten::{n}", "count": 1, "ns": 5.0, "bytes": 64} for n in ("empty", "view", "mm")
    ]
    raw = RawCensus.model_validate({"ops": ops})
    assert judged(raw, raw)[0].launches == 1


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        ("fused", "fused"),
        ("void fused<float, 4>(float const*, int)", "fused"),
        ("(anonymous namespace)::fused(float*)", "fused"),
        (ADD, "vectorized_elementwise_kernel"),
    ],
)
def test_kernels_are_known_by_their_plain_name(kernel: str, name: str) -> None:
    assert base_name(kernel) == name


def test_the_source_tells_which_kernels_are_its_own() -> None:
    cuda = (
        'SOURCE = r"""\n__global__ void __launch_bounds__(256) fused(float* x) {}\n'
        'template <int N> __global__ void tail(float* x) {}\n"""\nSIGNATURES = {"go": ("float*",)}'
    )
    assert defined_kernels(samples.RMS_NORM_TRITON) == {"rms_norm_kernel"}
    assert defined_kernels(samples.RMS_NORM_CPP) == {"fused"}
    assert defined_kernels(cuda) == {"fused", "tail", "go"}


def test_no_verdict_but_slower_survives_the_reference_s_own_work() -> None:
    census, _ = judged(REFERENCE, REFERENCE)
    for value, verdict in ((2.0, Verdict.UNIMPROVED), (0.5, Verdict.SLOWER)):
        timings, speedups = withhold(make_evaluation().timings, (make_speedup(value),), [census])
        assert speedups[0].verdict is verdict
        assert timings == make_evaluation().timings  # other workloads, of which nothing is known


def copying(body: str) -> str:
    """A C++ candidate whose entry is the reference's code after ``body``."""
    return samples.RMS_NORM_CPP.replace(
        samples.RMS_NORM_CPP[samples.RMS_NORM_CPP.index("    out = torch") :],
        f"    {body}\n" + samples.RMS_NORM_REFERENCE[samples.RMS_NORM_REFERENCE.index("    x =") :],
    )


DECOY = "native.fused(x, residual, weight, x, x, 0, x.shape[1], eps)"


class Bench:
    """A problem's reference in a worker, and censuses of candidates beside it."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._policy = EvaluatorPolicy.default()
        self._loaded = make_problem(workloads=(WORKLOAD,))
        self._client = workers.reference()
        self._reference = Reference(self._loaded, self._client, self._policy)
        self._taker = CensusTaker(self._policy)

    def census(self, candidate: Candidate, policy: EvaluatorPolicy | None = None) -> Census:
        backend = choose_backend(BackendName.CPP)
        client = self._workers.candidate()
        with client.session:
            load_candidate(client, candidate, self._loaded.problem, backend, self._policy)
            workloads = self._loaded.problem.workloads
            taker = CensusTaker(policy) if policy is not None else self._taker
            return taker.take(
                client, candidate.source, self._reference, workloads, 7, profile=False
            )

    def close(self) -> None:
        self._client.session.close()
        self._workers.close()


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    backend = choose_backend(BackendName.CPP)
    started = Bench(Workers(select_sandbox(), backend, EvaluatorPolicy.default()))
    yield started
    started.close()


@pytest.mark.sandbox
def test_an_honest_native_candidate_does_its_work_itself(bench: Bench) -> None:
    found = bench.census(make_candidate())
    (census,) = found.workloads
    assert census.own_share == 1.0
    assert [k.name for k in census.kernels] == ["fused"]
    assert census.reference_ops["mean"] == 1
    assert census.reference_launches == 7
    assert not found.flags


@pytest.mark.sandbox
@pytest.mark.parametrize(("body", "rule"), [("pass", "fallback"), (DECOY, "decoy")])
def test_the_reference_behind_a_native_facade_is_unimproved(
    bench: Bench, body: str, rule: str
) -> None:
    found = bench.census(make_candidate(copying(body)))
    assert is_unimproved(found.workloads)
    assert rule in {f.rule for f in found.flags}
    assert found.violation is None
    keck = EvaluatorPolicy.default().with_source_preset("keck-cuda")
    assert bench.census(make_candidate(copying(body)), keck).violation is not None


@pytest.mark.sandbox
def test_a_candidate_that_fails_while_it_is_watched_is_not_believed(bench: Bench) -> None:
    """The dispatch mode makes itself felt: a candidate could refuse to be looked at."""
    body = "assert torch._C._len_torch_dispatch_stack() == 0"
    with pytest.raises(RequestFailed):
        bench.census(make_candidate(copying(body)))
