"""From traces to a ranking: who is charged for a kernel, and what is said of the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from integrations.traces.attribution import Reason
from integrations.traces.compare import compare
from integrations.traces.errors import TraceError
from integrations.traces.frames import Found
from integrations.traces.kernels import Origin, origin_of
from integrations.traces.ranking import rank_traces
from integrations.traces.report import HotReport, HotTarget
from tests.integrations.traces.makers import (
    Event,
    frame,
    kernel,
    launch,
    one_call,
    op,
    shaped,
    write,
    x,
)

EAGER = "void at::native::add_kernel()"
SOURCE = """import torch


@torch.no_grad()
def work(x):
    return helper(x)


def helper(x):
    return [y for y in x]


class Norm(torch.nn.Module):
    def forward(self, x):
        return x


class Other(torch.nn.Module):
    def forward(self, x):
        return x
"""


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    (root / "pkg").mkdir(parents=True)
    (root / "pkg/__init__.py").touch()
    (root / "pkg/mod.py").write_text(SOURCE)
    return root


def ranked(tmp_path: Path, events: list[Event], **options: object) -> HotReport:
    path = write(tmp_path / "trace.json", events)
    return rank_traces([path], **options)  # type: ignore[arg-type]


def only(report: HotReport) -> HotTarget:
    (target,) = report.targets
    return target


def reasons(report: HotReport) -> dict[str, int]:
    return {part.name: part.count for part in report.unattributed}


def test_a_kernel_is_charged_to_the_innermost_frame_and_to_those_around(
    tmp_path: Path, repo: Path
) -> None:
    outer = frame("/elsewhere/repo/pkg/mod.py(4): work", 0, 100)
    inner = frame("/elsewhere/repo/pkg/mod.py(9): helper", 5, 80)
    torch = frame("torch/nn/functional.py(7): relu", 6, 70)
    launched = [launch(20, 1), kernel(EAGER, 200, 30, 1)]
    directly = [launch(90, 2), kernel(EAGER, 240, 10, 2)]
    report = ranked(tmp_path, [outer, inner, torch, *launched, *directly], repository=repo)
    found = {t.target: t for t in report.targets}
    work, helper = found["pkg/mod.py::work"], found["pkg/mod.py::helper"]
    assert (work.device_us, work.inclusive_us, work.launches, work.calls) == (10, 40, 1, 1)
    assert (helper.device_us, helper.inclusive_us) == (30, 30)
    assert (work.found, helper.found) == (Found.EXACT, Found.EXACT)
    assert (work.host_us, work.host_self_us) == (100, 20)
    assert [c.name for c in helper.callers] == ["pkg/mod.py::work"]
    assert (report.unattributed_share, report.resolved_us) == (0, 40)


@pytest.mark.parametrize("name", ["cuLaunchKernel", "cuLaunchKernelEx", "hipExtModuleLaunchKernel"])
def test_launches_of_triton_and_of_hip_count_as_launches(tmp_path: Path, name: str) -> None:
    events = [frame("pkg/mod.py(1): f", 0, 9), launch(1, 5, name), kernel("k", 20, 2, 5)]
    assert only(ranked(tmp_path, events)).target == "pkg/mod.py::f"


def test_a_recursive_call_counts_its_device_and_host_time_once(tmp_path: Path) -> None:
    events = [
        frame("pkg/mod.py(1): f", 0, 100),
        frame("pkg/mod.py(1): f", 10, 50),
        launch(20, 1),
        kernel(EAGER, 200, 30, 1),
    ]
    target = only(ranked(tmp_path, events))
    assert (target.inclusive_us, target.host_us) == (30, 100)


def test_modules_are_merged_by_class_and_name_their_forward(tmp_path: Path) -> None:
    events: list[Event] = []
    for n in range(3):
        start = 1000.0 * n
        events += [
            frame(f"nn.Module: Norm_{n}", start, 60),
            frame("torch/nn/modules/module.py(9): _call_impl", start + 1, 55),
            *one_call(start + 2, n + 1, "forward"),
        ]
    report = ranked(tmp_path, events)
    assert only(report).target == "pkg/mod.py::Norm.forward"
    assert [(p.name, p.count) for p in report.modules] == [("Norm", 3)]


def test_the_reason_is_kept_where_a_kernel_has_no_function(tmp_path: Path, repo: Path) -> None:
    nested = [frame("torch/x.py(1): f", 0, 50), launch(10, 1), kernel(EAGER, 100, 10, 1)]
    lost = [kernel(EAGER, 200, 10, 99)]
    replay = [launch(60, 2, "cudaGraphLaunch"), kernel("g", 300, 5, 2), kernel("h", 310, 5, 2)]
    report = ranked(tmp_path, [*nested, *lost, *replay], repository=repo)
    assert reasons(report) == {Reason.OUTSIDE: 1, Reason.NO_LAUNCH: 1, Reason.REPLAY: 2}
    assert report.unattributed_share == 1
    assert any("another repository" in note for note in report.notes)


def test_without_stacks_operators_and_kernels_are_still_told(tmp_path: Path) -> None:
    report = ranked(tmp_path, [op("aten::mm", 0, 9), launch(1, 1), kernel("gemm", 20, 2, 1)])
    assert reasons(report) == {Reason.NO_STACK: 1}
    assert [p.name for p in (*report.operators, *report.kernels)] == ["aten::mm", "gemm"]


def capture_trace(tmp_path: Path, *, named: bool = True) -> Path:
    """A capture of two functions: ``a`` launches k and l, ``b`` launches k."""

    def captured(ts: float, correlation: int, name: str) -> Event:
        return launch(ts, correlation, **({"kernel": name} if named else {}))

    events = [
        launch(0, 1, "cudaStreamBeginCapture"),
        frame("pkg/mod.py(1): a", 10, 20),
        captured(11, 2, "k"),
        captured(13, 3, "l"),
        frame("pkg/mod.py(9): b", 40, 20),
        captured(41, 4, "k"),
        launch(70, 5, "cudaStreamEndCapture"),
    ]
    return write(tmp_path / "capture.json", events)


def replay_events(*kernels: tuple[str, float, int]) -> list[Event]:
    """A replay inside ``run``: (name, start, graph node id) of its kernels."""
    return [
        frame("pkg/mod.py(20): run", 0, 50),
        launch(10, 7, "cudaGraphLaunch"),
        *(kernel(n, ts, 4, 7, **{"graph node id": node}) for n, ts, node in kernels),
    ]


def test_replayed_kernels_get_their_functions_from_the_capture(tmp_path: Path) -> None:
    events = replay_events(("k", 100, 1), ("l", 110, 2), ("k", 120, 3))
    report = ranked(tmp_path, events, captures=[capture_trace(tmp_path)])
    found = {t.target: (t.launches, t.replayed_launches) for t in report.targets}
    assert found == {"pkg/mod.py::a": (2, 2), "pkg/mod.py::b": (1, 1)}
    assert report.targets[0].callers[0].name == "pkg/mod.py::run"
    (trace,) = report.traces
    assert (trace.replays_joined, trace.replay_agreement) == (1, 1.0)


def test_streams_that_overtake_each_other_do_not_mix_up_functions(tmp_path: Path) -> None:
    events = replay_events(("l", 90, -1), ("k", 100, -1), ("k", 120, -1))
    report = ranked(tmp_path, events, captures=[capture_trace(tmp_path)])
    assert {t.target: t.launches for t in report.targets} == {
        "pkg/mod.py::a": 2,
        "pkg/mod.py::b": 1,
    }


def test_by_order_alone_graph_nodes_decide_and_the_report_says_so(tmp_path: Path) -> None:
    capture = capture_trace(tmp_path, named=False)
    events = replay_events(("z", 100, 3), ("y", 110, 2), ("x", 120, 1))
    report = ranked(tmp_path, events, captures=[capture])
    kernels = {t.target: {k.name for k in t.kernels} for t in report.targets}
    assert kernels == {"pkg/mod.py::a": {"x", "y"}, "pkg/mod.py::b": {"z"}}
    assert report.traces[0].replay_agreement is None


def test_a_capture_of_something_else_is_not_joined(tmp_path: Path) -> None:
    events = replay_events(("q", 100, 1), ("r", 110, 2))
    report = ranked(tmp_path, events, captures=[capture_trace(tmp_path)])
    assert reasons(report) == {Reason.REPLAY: 2}


def backward_events(**args: object) -> list[Event]:
    forward = {"Sequence number": 5, "Fwd thread id": 0} if args else {}
    backward = {"Sequence number": 5, "Fwd thread id": 1} if args else {}
    events = [
        frame("pkg/mod.py(1): f", 0, 50),
        op("aten::mul", 10, 20, **forward),
        op("autograd::engine::evaluate_function: MulBackward0", 100, 30, **backward),
        op("aten::mul", 105, 10),
        launch(106, 1),
        kernel(EAGER, 200, 7, 1),
    ]
    return [*events[:2], *(e | {"tid": 200} for e in events[2:5]), events[5]]


def test_a_backward_kernel_goes_to_the_function_of_its_forward_operator(tmp_path: Path) -> None:
    target = only(ranked(tmp_path, backward_events(sequence=True)))
    assert (target.target, target.backward_us) == ("pkg/mod.py::f", 7)


def test_flows_join_backward_to_forward_where_there_are_no_numbers(tmp_path: Path) -> None:
    flow = {"cat": "fwdbwd", "name": "fwdbwd", "id": 1, "pid": 100}
    flows = [{"ph": "f", "tid": 200, "ts": 100, **flow}, {"ph": "s", "tid": 100, "ts": 10, **flow}]
    assert only(ranked(tmp_path, [*backward_events(), *flows])).backward_us == 7


def test_moved_source_is_found_by_name_and_class_and_the_distance_is_told(
    tmp_path: Path, repo: Path
) -> None:
    events = [
        frame("nn.Module: Other_0", 0, 60),
        frame("pkg/mod.py(40): forward", 1, 50),
        launch(5, 1),
        kernel(EAGER, 100, 5, 1),
        frame("pkg/mod.py(50): vanished", 200, 20),
        launch(205, 2),
        kernel(EAGER, 300, 5, 2),
    ]
    report = ranked(tmp_path, events, repository=repo)
    found = {t.target: (t.found, t.moved_lines) for t in report.targets}
    assert found == {
        "pkg/mod.py::Other.forward": (Found.MOVED, -21),
        "pkg/mod.py::vanished": (Found.GONE, 0),
    }
    assert report.disagreement is not None
    assert (report.disagreement.moved, report.disagreement.gone) == (1, 1)
    assert report.targets[-1].score.value == 0


def test_a_method_that_several_classes_have_is_a_guess_where_nothing_tells(
    tmp_path: Path, repo: Path
) -> None:
    events = [frame("pkg/mod.py(40): forward", 0, 50), launch(5, 1), kernel(EAGER, 100, 5, 1)]
    target = only(ranked(tmp_path, events, repository=repo))
    assert (target.found, target.score.located) == (Found.GUESSED, 0.5)


def test_a_comprehension_belongs_to_the_function_around_it(tmp_path: Path, repo: Path) -> None:
    events = [frame("pkg/mod.py(10): <listcomp>", 0, 50), launch(5, 1), kernel(EAGER, 100, 5, 1)]
    assert only(ranked(tmp_path, events, repository=repo)).target == "pkg/mod.py::helper"


@pytest.mark.parametrize("path", ["other/mod.py", "mod.py", "json/mod.py", "a/pkg/sub/mod.py"])
def test_a_file_of_the_same_name_elsewhere_is_not_the_repositorys(
    tmp_path: Path, repo: Path, path: str
) -> None:
    events = [frame(f"{path}(4): work", 0, 50), launch(5, 1), kernel(EAGER, 100, 5, 1)]
    assert ranked(tmp_path, events, repository=repo).targets == ()


@pytest.mark.parametrize(
    ("path", "ours"),
    [
        ("engine/ops/triton/norm.py", True),
        ("torch/nn/functional.py", False),
        ("contextlib.py", False),
        ("/usr/lib/python3.12/site-packages/engine/norm.py", False),
        ("/tmp/torchinductor_root/ys/cys3.py", False),
    ],
)
def test_without_a_checkout_what_is_torchs_or_pythons_is_passed_over(
    tmp_path: Path, path: str, ours: bool
) -> None:
    events = [frame(f"{path}(4): work", 0, 50), launch(5, 1), kernel(EAGER, 100, 5, 1)]
    assert bool(ranked(tmp_path, events).targets) is ours


def test_a_file_that_is_not_python_keeps_the_traces_name(tmp_path: Path, repo: Path) -> None:
    (repo / "pkg/mod.py").write_text("def work(:\n")
    target = only(ranked(tmp_path, one_call(), repository=repo))
    assert (target.target, target.found) == ("pkg/mod.py::work", Found.UNREADABLE)


def test_many_small_kernels_in_one_call_outrank_one_that_is_at_its_roofline(
    tmp_path: Path,
) -> None:
    devices = [{"id": 0, "name": "NVIDIA H200"}]
    small: list[Event] = [frame("pkg/a.py(1): many", 0, 100)]
    small.append(shaped("aten::add", 1, 90, [[64, 64]], ["float"]))
    for n in range(20):
        small += [launch(2 + n, n + 1), kernel(EAGER, 200 + 4 * n, 2, n + 1)]
    rows = 1 << 15
    large = [
        frame("pkg/a.py(9): one", 300, 50),
        shaped("aten::add", 305, 30, [[rows, rows]], ["c10::BFloat16"]),
        launch(310, 50),
        kernel(EAGER, 500, rows * rows * 2 / 4.9e6, 50),
    ]
    path = write(tmp_path / "t.json", [*small, *large], deviceProperties=devices)
    first, second = rank_traces([path]).targets
    assert (first.target, first.gaps_us, first.perfect_us) == ("pkg/a.py::many", 38, 1.5)
    assert second.perfect_us == pytest.approx(second.device_us, rel=0.02)
    parts = first.score
    product = parts.saving_share * parts.openness * parts.grounded * parts.located
    assert parts.value == pytest.approx(100 * product)


def test_overlapping_streams_share_the_time_line(tmp_path: Path) -> None:
    events: list[Event] = []
    for n, function in enumerate(("f", "g")):
        events += [frame(f"pkg/a.py({n}): {function}", 100 * n, 50), launch(100 * n + 5, n + 1)]
        events.append(kernel(EAGER, 300, 10, n + 1) | {"tid": n})
    report = ranked(tmp_path, events)
    assert (report.device_us, report.busy_us, report.span_us) == (20, 10, 10)
    assert [t.share for t in report.targets] == [0.5, 0.5]


def test_ranks_add_up(tmp_path: Path) -> None:
    paths = [
        write(tmp_path / f"rank{n}.json.gz", one_call(), distributedInfo={"rank": n})
        for n in range(2)
    ]
    report = rank_traces(paths)
    assert (only(report).launches, report.span_us) == (2, 20)
    assert [t.rank for t in report.traces] == ["0", "1"]


def test_equal_correlations_of_merged_ranks_stay_apart(tmp_path: Path) -> None:
    merged: list[Event] = []
    for n, function in enumerate(("f", "g")):
        merged += [e | {"pid": f"[TP{n}] {e['pid']}"} for e in one_call(0, 1, function)]
    report = ranked(tmp_path, merged)
    assert sorted(t.target for t in report.targets) == ["pkg/mod.py::f", "pkg/mod.py::g"]


def test_a_duplicated_correlation_takes_the_last_launch_before_the_kernel(tmp_path: Path) -> None:
    events = [
        *one_call(0, 1, "f")[:3],
        *one_call(60, 1, "g")[:3],
        *one_call(500, 1, "h")[:3],
        kernel(EAGER, 200, 10, 1),
    ]
    report = ranked(tmp_path, events)
    assert only(report).target == "pkg/mod.py::g"
    assert any("share their correlation" in note for note in report.notes)


def test_a_trace_without_kernels_ranks_operators_of_the_cpu_and_says_so(tmp_path: Path) -> None:
    events = [frame("pkg/a.py(1): f", 0, 50), op("aten::add", 5, 20), op("aten::empty", 6, 5)]
    report = ranked(tmp_path, events)
    assert (only(report).device_us, only(report).state) == (20, Origin.OPERATOR)
    assert any("no kernels" in note for note in report.notes)


def test_an_empty_trace_ranks_nothing_and_says_so(tmp_path: Path) -> None:
    report = ranked(tmp_path, [])
    assert (report.targets, report.unattributed_share) == ((), 0)
    assert any("neither kernels nor operators" in note for note in report.notes)


def test_a_comparison_says_what_a_call_gained(tmp_path: Path) -> None:
    slow = [e for n in range(2) for e in one_call(1000.0 * n, n + 1)]
    fast = [e | {"dur": e["dur"] / 2} if e["cat"] == "kernel" else e for e in one_call()]
    extra = [frame("pkg/new.py(1): new", 300, 50), launch(310, 9), kernel(EAGER, 400, 1, 9)]
    before = rank_traces([write(tmp_path / "a.json", slow)])
    after = rank_traces([write(tmp_path / "b.json", [*fast, *extra])])
    first, second = compare(before, after).changes
    assert (first.kind, first.per_call_ratio, first.moved_us) == ("both", 2.0, 10)
    assert (second.kind, second.per_call_ratio) == ("new", None)


def test_a_folder_without_python_is_no_checkout(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no Python file"):
        ranked(tmp_path, one_call(), repository=tmp_path)


@pytest.mark.parametrize(
    ("name", "origin"),
    [
        ("triton_poi_fused_add_0", Origin.COMPILED),
        ("_fused_metadata_kernel", Origin.HAND_WRITTEN),
        ("void at::native::vectorized_elementwise_kernel<4>", Origin.EAGER),
        ("sm90_xmma_gemm_bf16bf16_bf16f32", Origin.LIBRARY),
        ("Cijk_Alik_Bljk_BBS_BH", Origin.LIBRARY),
        ("ncclDevKernel_AllReduce_Sum", Origin.COMMUNICATION),
        ("Memcpy DtoH (Device -> Host)", Origin.COPY),
    ],
)
def test_a_kernels_name_tells_who_wrote_it(name: str, origin: Origin) -> None:
    assert origin_of(name) is origin


def test_annotations_count_the_steps(tmp_path: Path) -> None:
    steps = [x("user_annotation", f"ProfilerStep#{n}", n * 100, 90) for n in range(3)]
    assert ranked(tmp_path, [*steps, *one_call()]).traces[0].steps == 3
