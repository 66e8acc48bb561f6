"""Reading what a repository's commands print; untrusted text."""

from __future__ import annotations

import pytest

from integrations.checkouts import CommandResult
from integrations.verify import LatencyUnreadable, _read_junit, read_latency


def printed(output: str, *, status: int = 0, timed_out: bool = False) -> CommandResult:
    return CommandResult(status, 1.0, output, timed_out, None)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ('{"metric": "ttft_ms", "value": 2.5}\n', ("ttft_ms", 2.5)),
        ('{"value": 3}\nbye\n', ("latency", 3.0)),
        ("warm-up 9\nlatency: 1.25e1 ms\n", ("latency", 12.5)),
    ],
)
def test_a_latency_is_read_from_json_or_the_last_number(
    output: str, expected: tuple[str, float]
) -> None:
    assert read_latency(printed(output), ["bench"]) == expected


@pytest.mark.parametrize(
    "done",
    [
        printed(""),
        printed("nothing to see"),
        printed("took -3"),
        printed("1.5", status=1),
        printed("1.5", status=-9, timed_out=True),
        printed("nan"),
    ],
)
def test_a_benchmark_that_fails_or_prints_nothing_is_no_latency(done: CommandResult) -> None:
    with pytest.raises(LatencyUnreadable, match="bench"):
        read_latency(done, ["bench"])


def test_outcomes_of_tests_are_told_apart() -> None:
    found = _read_junit(
        '<testsuites><testsuite><testcase classname="t" name="a"/>'
        '<testcase classname="t" name="b"><failure/></testcase>'
        '<testcase classname="" name="t.py"><error/></testcase>'
        '<testcase classname="t" name="c"><skipped/></testcase></testsuite></testsuites>'
    )

    assert (found.count("passed"), found.count("skipped")) == (1, 1)
    assert found.failures == ["t::b", "t.py"]


@pytest.mark.parametrize("text", ["<!DOCTYPE a [<!ENTITY b 'c'>]><a/>", "<a", ""])
def test_a_broken_or_hostile_report_counts_for_nothing(text: str) -> None:
    assert _read_junit(text).by_test == {}
