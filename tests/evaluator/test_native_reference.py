"""A reference that is native code itself, as in Kernel-Smith's translation from CUDA to MACA."""

from __future__ import annotations

import pytest

from evaluator.candidate import BackendName, native_source
from evaluator.errors import ReferenceFailed
from evaluator.evaluation import Status
from evaluator.supervisor import CompiledBaseline, LocalEvaluator
from tests import samples
from tests.builders import make_candidate, make_problem
from tests.evaluator.test_supervisor import quick_policy


def test_native_code_is_found_in_a_module() -> None:
    assert "extern" in (native_source(samples.RMS_NORM_CPP) or "")
    assert native_source(samples.RMS_NORM_TRITON) is None


@pytest.mark.sandbox
def test_a_candidate_is_judged_by_a_reference_in_cpp() -> None:
    loaded = make_problem(source=samples.RMS_NORM_CPP)
    with LocalEvaluator(
        loaded, BackendName.CPP, policy=quick_policy(), compiled=CompiledBaseline.NEVER
    ) as evaluator:
        right = evaluator.screen(make_candidate())
        wrong = samples.RMS_NORM_CPP.replace("total / cols", "total / (cols + 1)")
        found = evaluator.screen(make_candidate(wrong))
    assert right.correctness, (right.message, right.log_tail)
    assert all(c.passed for c in right.correctness)
    assert "expected-not-float64" in {flag.rule for flag in right.flags}
    assert found.status is Status.INCORRECT, found.message


@pytest.mark.sandbox
def test_a_reference_that_does_not_compile_is_the_references_fault() -> None:
    loaded = make_problem(source=samples.RMS_NORM_CPP.replace("std::sqrt", "std::sqroot"))
    evaluator = LocalEvaluator(loaded, BackendName.CPP, policy=quick_policy())
    with pytest.raises(ReferenceFailed, match=r"source\.cpp:.*sqroot"):
        evaluator.__enter__()
