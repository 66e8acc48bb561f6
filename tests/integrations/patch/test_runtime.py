"""What is shipped in a patch must be what was measured."""

from __future__ import annotations

from evaluator.backends import cpp
from evaluator.worker import native as measured
from integrations.patch.runtime import native as shipped


def test_a_patch_compiles_with_the_flags_that_the_kernel_was_measured_with() -> None:
    assert (shipped._COMPILER, shipped._FLAGS) == (cpp.COMPILER, cpp.FLAGS)


def test_a_patch_gives_c_types_the_meaning_that_they_were_measured_with() -> None:
    assert dict(measured._POINTERS) == shipped._POINTERS
    assert dict(measured._NUMBERS) == shipped._NUMBERS
