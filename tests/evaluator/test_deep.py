"""The deep check: what a memory checker reports reaches the record, and silence is no pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from evaluator.backends import choose_backend
from evaluator.backends.cpp import CppBackend
from evaluator.candidate import BackendName
from evaluator.deep import check_deeply, with_deep_checks
from evaluator.evaluation import DeepCheck, Evaluation, MemoryFinding, Status
from evaluator.memory_checkers import (
    CheckerMissing,
    checkers,
    read_address_sanitizer,
    read_compute_sanitizer,
)
from evaluator.supervisor import CompiledBaseline, LocalEvaluator
from policies.model import EvaluatorPolicy
from tests import samples
from tests.builders import make_candidate, make_evaluation, make_problem

MEMCHECK = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at rms_norm_kernel(const float *, float *, long)+0x1d0 in source.cu:23
=========     by thread (31,0,0) in block (0,0,0)
=========     Access at 0x7f2c1e000400 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f2c1e000000 of size 1,024 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: [0x3344] in libcuda.so.1
=========
========= Invalid __global__ write of size 4 bytes
=========     at rms_norm_kernel(const float *, float *, long)+0x1d0 in source.cu:23
=========     by thread (32,0,0) in block (0,0,0)
=========
========= Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure"
=========     Saved host backtrace up to driver entry point at error
=========
========= Target application returned an error
========= ERROR SUMMARY: 2 errors
"""
RACECHECK = """\
========= COMPUTE-SANITIZER
hello from the candidate
========= Error: Race reported between Write access at sum_kernel+0xd0 in /tmp/x/candidate.py:30
=========     and Read access at sum_kernel+0x1a0 in /tmp/x/candidate.py:34 [124 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
ASAN = """\
=================================================================
==7==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x60b000000100 at pc 0x7f
WRITE of size 4 at 0x60b000000100 thread T0
    #0 0x7f20a8a3e2f5 in fused._omp_fn.0 /tmp/ksmith-native-abc/source.cpp:18
    #1 0x7f20a8a3d0d5 in GOMP_parallel (/lib/x86_64-linux-gnu/libgomp.so.1+0x130d5)
    #2 0x7f20a8a3e3e1 in fused /tmp/ksmith-native-abc/source.cpp:7
"""


def test_two_equal_reports_of_memcheck_are_one_finding_with_kernel_place_and_count() -> None:
    assert read_compute_sanitizer(MEMCHECK) == (
        MemoryFinding(
            kind="Invalid __global__ write of size 4 bytes",
            kernel="rms_norm_kernel",
            place="source.cu:23",
            count=2,
        ),
    )


def test_a_race_is_read_with_its_kernel_and_line() -> None:
    (race,) = read_compute_sanitizer(RACECHECK)
    assert (race.kind, race.kernel) == ("Race reported between Write access", "sum_kernel")
    assert race.place == "candidate.py:30"


def test_a_clean_report_and_a_candidates_own_words_are_no_findings() -> None:
    clean = "========= COMPUTE-SANITIZER\nInvalid\n========= ERROR SUMMARY: 0 errors\n"
    assert read_compute_sanitizer(clean) == ()
    assert read_address_sanitizer("error: AddressSanitizer\n") == ()


def test_the_first_line_of_the_candidate_is_named_for_an_access_out_of_bounds() -> None:
    assert read_address_sanitizer(ASAN) == (
        MemoryFinding(
            kind="heap-buffer-overflow: WRITE of size 4",
            kernel="fused._omp_fn.0",
            place="source.cpp:18",
        ),
    )


def test_undefined_behaviour_is_read_with_its_line() -> None:
    log = "source.cpp:9:21: runtime error: shift exponent 40 is too large for 32-bit type 'int'"
    (found,) = read_address_sanitizer(log)
    assert found.place == "source.cpp:9"
    assert found.kind.startswith("shift exponent 40")


def test_a_finding_takes_a_winners_times_and_makes_it_incorrect() -> None:
    found = DeepCheck(
        tool="memcheck", ran=True, message="bad", findings=(MemoryFinding(kind="Invalid read"),)
    )
    after = with_deep_checks(make_evaluation(speedup=2.0, confirmed=True), (found,))
    assert after.status is Status.INCORRECT
    assert (after.timings, after.speedups, after.confirmed) == ((), (), False)
    assert [flag.rule for flag in after.flags] == ["memory-error"]


def test_a_check_that_did_not_run_changes_no_verdict_and_is_told() -> None:
    absent = DeepCheck(tool="memcheck", ran=False, message="did not run: not installed")
    before = make_evaluation()
    after = with_deep_checks(before, (absent,))
    assert (after.status, after.speedups) == (before.status, before.speedups)
    assert [(f.rule, f.severity.value) for f in after.flags] == [("deep-check", "warning")]


def test_a_record_with_a_finding_cannot_be_ok() -> None:
    found = DeepCheck(
        tool="memcheck", ran=True, message="bad", findings=(MemoryFinding(kind="Invalid read"),)
    )
    with pytest.raises(ValueError, match="makes a candidate incorrect"):
        make_evaluation(deep=(found,))


def test_without_the_tool_the_record_says_that_nothing_was_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("evaluator.memory_checkers.find_compute_sanitizer", lambda: None)
    backend = replace(choose_backend(BackendName.TRITON), lacks="", gpu=True)  # type: ignore[type-var]
    (check,) = _check(backend)
    assert not check.ran
    assert "compute-sanitizer is not on this machine" in check.message


def test_without_a_device_the_record_says_that_nothing_was_checked() -> None:
    backend = replace(choose_backend(BackendName.TRITON), lacks="there is no GPU here")  # type: ignore[type-var]
    (check,) = _check(backend)
    assert not check.ran
    assert "there is no GPU here" in check.message


def test_a_backend_without_a_checker_says_so() -> None:
    (check,) = _check(choose_backend(BackendName("hip")))
    assert not check.ran
    assert "no memory checker for Triton on an AMD GPU" in check.message


def _check(backend: object) -> tuple[DeepCheck, ...]:
    def start(checker: object) -> object:
        raise AssertionError("nothing may be started")

    problem = make_problem().problem
    policy = EvaluatorPolicy.default()
    return check_deeply(make_candidate(), problem, backend, problem.workloads, policy, start)  # type: ignore[arg-type]


try:
    checkers(CppBackend.memory_checker, native=True)
    _missing = ""
except CheckerMissing as error:
    _missing = str(error)


@pytest.fixture(scope="module")
def evaluator() -> Iterator[LocalEvaluator]:
    with LocalEvaluator(
        make_problem(), BackendName.CPP, compiled=CompiledBaseline.NEVER
    ) as started:
        yield started


def deeply(evaluator: LocalEvaluator, source: str) -> Evaluation:
    candidate = make_candidate(source)
    return evaluator.check_deeply(
        candidate, make_evaluation(candidate, problem=evaluator.loaded.problem)
    )


@pytest.mark.real
@pytest.mark.skipif(bool(_missing), reason=_missing)
def test_an_honest_candidate_with_openmp_is_found_clean(evaluator: LocalEvaluator) -> None:
    found = deeply(evaluator, samples.RMS_NORM_CPP)
    (check,) = found.deep
    assert check.ran, (check.message, check)
    assert check.message == "nothing found on 2 workloads"
    assert found.status is Status.OK


@pytest.mark.real
@pytest.mark.skipif(bool(_missing), reason=_missing)
@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("float total = 0.0f;", "float total = 0.0f; out[rows * cols] = 0.0f;", "WRITE of size 4"),
        ("total += v * v;", "total += v * v + 0 * r[rows * cols];", "READ of size 4"),
        (
            "float total = 0.0f;",
            "volatile int top = 2147483647; top = top + 1; float total = 0.0f;",
            "overflow",
        ),
    ],
)
def test_one_element_out_of_bounds_or_an_overflow_is_found_with_its_line(
    evaluator: LocalEvaluator, old: str, new: str, kind: str
) -> None:
    assert old in samples.RMS_NORM_CPP
    found = deeply(evaluator, samples.RMS_NORM_CPP.replace(old, new))
    (check,) = found.deep
    assert found.status is Status.INCORRECT, check
    assert kind in check.findings[0].kind
    assert (check.findings[0].place or "").startswith("source.cpp:")
    assert "source.cpp:" in found.message
    assert all(flag.rule == "memory-error" for flag in found.flags)


@pytest.mark.real
@pytest.mark.skipif(bool(_missing), reason=_missing)
def test_a_candidate_that_leaves_before_the_end_has_not_passed(evaluator: LocalEvaluator) -> None:
    leaves = samples.RMS_NORM_CPP.replace(
        "#include <cmath>", "#include <cmath>\n#include <cstdlib>"
    )
    leaves = leaves.replace("float total = 0.0f;", "float total = 0.0f; std::_Exit(0);", 1)
    (check,) = deeply(evaluator, leaves).deep
    assert not check.ran
    assert "did not run" in check.message
