"""What only values, shapes or memory that nobody was shown bring to light."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from evaluator.backends import choose_backend
from evaluator.candidate import BackendName
from evaluator.correctness.derived import check_derived
from evaluator.correctness.judging import Ended, Findings, check_candidate, load_candidate
from evaluator.correctness.reference import Reference
from evaluator.problem import Contract, Entry, LoadedProblem, Output
from evaluator.sandbox.select import select_sandbox
from evaluator.workers import Workers
from evaluator.workload import DerivedWorkload, Workload
from policies.model import EvaluatorPolicy, LayoutPolicy
from tests.builders import make_candidate, make_problem, make_tensor

pytestmark = pytest.mark.sandbox

REFERENCE = """\
import torch


def attend(scores, mask):
    return torch.softmax(scores + mask, dim=-1)
"""

CANDIDATE = """\
import torch

SOURCE = ""
SIGNATURES = {{}}
HELD = {{}}


def attend(scores, mask):
    wide = scores + mask
    top = wide.max(dim=-1, keepdim=True).values if wide.numel() else 0
    powers = torch.exp(wide - top)
    out = powers / powers.sum(dim=-1, keepdim=True)
    {body}
"""


def attention() -> LoadedProblem:
    def workload(name: str, rows: int, cols: int) -> Workload:
        arguments = {"scores": make_tensor(rows, cols), "mask": make_tensor(cols)}
        return Workload(name=name, arguments=arguments)

    return make_problem(
        source=REFERENCE,
        workloads=(workload("small", 8, 64), workload("large", 64, 256)),
        entry=Entry(function="attend", candidate_function="attend"),
        arguments=("scores", "mask"),
        contract=Contract(outputs=(Output(),), returns_tuple=False),
    )


@dataclass
class Bench:
    """Reference and workers of one problem; nothing is timed."""

    problem: LoadedProblem
    workers: Workers
    reference: Reference
    derived: tuple[DerivedWorkload, ...]
    policy: EvaluatorPolicy

    def check(self, body: str, layouts: LayoutPolicy = LayoutPolicy.NOTE) -> tuple[str, Findings]:
        """How a candidate ends, ``ok`` if it passes, and what was found."""
        candidate = make_candidate(CANDIDATE.format(body=body))
        backend = choose_backend(BackendName.CPP)
        findings = Findings()
        client = self.workers.candidate()
        deadline = time.monotonic() + 60
        with client.session:
            try:
                load_candidate(client, candidate, self.problem.problem, backend, self.policy)
                check_candidate(
                    client,
                    self.reference,
                    self.problem.problem.workloads,
                    [1, 2],
                    call_seconds=10,
                    deadline=deadline,
                    findings=findings,
                )
                check_derived(
                    client,
                    self.reference,
                    self.derived,
                    1,
                    layouts=layouts,
                    call_seconds=10,
                    deadline=deadline,
                    findings=findings,
                )
            except Ended as ended:
                return ended.message, findings
        return "ok", findings


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    policy = EvaluatorPolicy.default()
    problem = attention()
    workers = Workers(select_sandbox(), choose_backend(BackendName.CPP), policy)
    client = workers.reference()
    with client.session:
        reference = Reference(problem, client, policy)
        derived = reference.derived(problem.problem.workloads, 1)
        yield Bench(problem, workers, reference, derived, policy)
    workers.close()


def test_an_honest_candidate_passes_them_all_without_a_flag(bench: Bench) -> None:
    ending, findings = bench.check("return out")
    assert ending == "ok"
    assert findings.derived == len(bench.derived)
    assert not findings.flags
    assert {scale for scale, _ in findings.precision} >= {"declared", "tiny"}
    assert all(p.looks_like is None for p in findings.precision.values())


def test_only_what_the_reference_answers_is_asked(bench: Bench) -> None:
    names = {w.name for w in bench.derived}
    assert "minus_infinity-scores" in names
    assert not any(n.startswith("plus_infinity") for n in names)  # softmax of +inf is NaN
    assert all(w.tensors["scores"].shape[1] > 0 for w in bench.derived)  # no maximum of nothing


def test_intake_tells_what_would_pass_and_what_is_not_read(bench: Bench) -> None:
    problem = bench.problem.problem
    told = bench.reference.intake(problem.workloads, [1, 2])
    assert (told.flags, told.trivial, told.unused) == ((), {}, ())
    source = REFERENCE.replace("torch.softmax(scores + mask, dim=-1)", "scores * 1.0")
    dull = make_problem(**{**dict(problem), "source": source, "reference_sha256": "0"})
    client = bench.workers.reference()
    with client.session:
        told = Reference(dull, client, bench.policy).intake(problem.workloads, [1, 2])
    assert told.trivial == {"output 0": ("a copy of scores",)}
    assert told.unused == ("mask",)
    assert {f.rule for f in told.flags} == {"degenerate", "unused-input"}


@pytest.mark.parametrize(
    ("body", "ending"),
    [
        (
            "powers = torch.exp(wide); return powers / powers.sum(dim=-1, keepdim=True)",
            "wrong values on a workload with extreme values",
        ),
        (
            "return torch.nan_to_num(out, 0.0) * (wide > -1e30).any(-1, keepdim=True) "
            "* (1 + 0.5 * torch.isinf(wide).any())",
            "wrong values on a workload with extreme values",
        ),
        (
            "return out if out.shape[0] in (8, 64) else torch.zeros_like(out)",
            "wrong values on a workload with other shapes",
        ),
        (
            "assert out.shape[0] in (8, 64); return out",
            "AssertionError on a workload with other shapes",
        ),
        (
            "HELD.setdefault(out.shape, torch.empty_like(out)).copy_(out); return HELD[out.shape]",
            "workload small: a later call changed what an earlier one returned",
        ),
        (
            "scores.as_strided((1,), (1,), 0).data; "
            "import ctypes; ctypes.memset(scores.data_ptr() + scores.numel() * 4, 0, 4); "
            "return out",
            "workload small: memory beside argument scores was written to",
        ),
        ("return torch.empty_like(out)", "workload small: output 0 is off"),
    ],
)
def test_what_declared_values_and_shapes_would_hide_is_found(
    bench: Bench, body: str, ending: str
) -> None:
    assert bench.check(body)[0].startswith(ending)


def test_sizes_beyond_the_declared_ones_may_be_refused(bench: Bench) -> None:
    assert bench.check("assert 8 <= out.shape[0] <= 64; return out")[0] == "ok"


LAYOUT = (
    "flat = lambda t: t.as_strided(t.shape, torch.empty(t.shape).stride()); "
    "return torch.softmax(flat(scores) + flat(mask), dim=-1)"
)


def test_a_layout_that_is_taken_for_another_is_noted_or_refused(bench: Bench) -> None:
    ending, findings = bench.check(LAYOUT)
    assert ending == "ok"
    assert [f.rule for f in findings.flags] == ["assumes-layout"]
    assert bench.check(LAYOUT, LayoutPolicy.REFUSE_OR_RIGHT)[0] == (
        "wrong values on a workload with other strides"
    )
    guarded = f"assert scores.is_contiguous() and mask.is_contiguous(); {LAYOUT}"
    assert bench.check(guarded, LayoutPolicy.REFUSE_OR_RIGHT)[0] == "ok"


def test_threads_that_outlive_a_call_are_flagged(bench: Bench) -> None:
    body = (
        "import threading, time; threading.Thread(target=time.sleep, args=(9,)).start(); return out"
    )
    _, findings = bench.check(body)
    assert "threads" in {f.rule for f in findings.flags}
