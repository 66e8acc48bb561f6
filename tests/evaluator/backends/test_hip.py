"""Triton for AMD: right in the interpreter, compiled for gfx942, and said to be unmeasured."""

from __future__ import annotations

import pytest

from evaluator.candidate import BackendName
from evaluator.evaluation import Status
from evaluator.supervisor import LocalEvaluator
from tests import samples
from tests.builders import make_candidate, make_problem

HIP = BackendName("hip")


@pytest.mark.real
def test_a_kernel_is_checked_and_compiled_for_gfx942_without_any_gpu() -> None:
    with LocalEvaluator(make_problem(), HIP) as evaluator:
        found = evaluator.screen(make_candidate(samples.RMS_NORM_TRITON, backend=HIP))
    assert found.status is Status.NOT_MEASURED, (found.message, found.log_tail)
    assert "ksmith times no AMD GPU" in found.message
    assert not found.speedups
    assert {(k.kernel, k.target) for k in found.resources} == {("rms_norm_kernel", "gfx942")}
    assert all(k.registers > 0 for k in found.resources)
