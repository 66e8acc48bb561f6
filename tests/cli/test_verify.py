"""What ``ksmith verify`` tells people."""

from __future__ import annotations

from cli.verify import describe
from integrations.verify import TestRun, Verification

NOTHING = TestRun(files=(), status="ran", output_tail="no test names the module")


def verification(new_test: TestRun) -> Verification:
    return Verification(
        branch="ksmith/x", base="0" * 40, commit="1" * 40, new_test=new_test, before=NOTHING,
        after=NOTHING,
    )  # fmt: skip


def test_a_failed_test_is_named_with_its_error() -> None:
    failed = TestRun(
        files=("tests/test_x.py",), status="ran", passed=3, failed=("tests.test_x",),
        output_tail="noise\nE   AssertionError: 1 != 2\nmore noise",
    )  # fmt: skip
    lines = describe(verification(failed)).splitlines()
    assert lines[0] == "new test:      3 passed, 1 failed, 0 skipped"
    assert [line.strip() for line in lines[1:3]] == ["tests.test_x", "AssertionError: 1 != 2"]


def test_a_missing_dependency_gets_its_remedy() -> None:
    failed = TestRun(
        files=("tests/test_x.py",), status="ran", failed=("tests.test_x",),
        output_tail="E   ModuleNotFoundError: No module named 'tqdm'",
    )  # fmt: skip
    assert "install the repository's dependencies" in describe(verification(failed))


def test_no_tests_are_not_reported_as_tests_that_passed() -> None:
    assert "tests before:  no test names the module" in describe(verification(NOTHING))
