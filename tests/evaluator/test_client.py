"""Replies of a worker that lies: each ends the worker, none reaches further."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.backends import KernelTarget
from evaluator.client import Client, describe
from evaluator.evaluation import Clock
from evaluator.session import Reply, RequestFailed, Role, WorkerCrashed, WorkerOptions, _failure
from evaluator.workload import Workload
from tests.builders import make_problem

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


class LyingSession:
    """Answers every request with the same message."""

    options = WorkerOptions(Role.CANDIDATE, threads=1)

    def __init__(self, message: dict[str, Any]) -> None:
        self.message = message
        self.closed = False

    def request(self, *_: object, **__: object) -> Reply:
        return Reply(self.message, (), wall_ns=1000)

    def waited_ns(self) -> int | None:
        return None

    def close(self) -> None:
        self.closed = True


def workload() -> Workload:
    return make_problem().problem.workloads[0]


REQUESTS: dict[str, tuple[tuple[str, ...], Callable[[Client], object]]] = {
    "run": (
        ("call", "zones", "threads", "late", "earlier"),
        lambda c: c.run(workload(), 1, seconds=1),
    ),
    "prepare": (
        ("clock",),
        lambda c: c.prepare(workload(), [1], writes=(), clock=Clock.WALL_PINNED, seconds=1),
    ),
    "block": (("ns", "calls", "until_idle_ns"), lambda c: c.block(0, 1, seconds=1)),
    "last": (("call", "index"), lambda c: c.last(0, workload(), 0, 0, seconds=1)),
    "traffic": (
        ("readings", "written_bytes"),
        lambda c: c.observe_traffic(
            workload(), (), seeds=[1, 2], samples=1, sampling_seconds=1, seconds=1
        ),
    ),
    "launches": (("launches",), lambda c: c.launches(seconds=1)),
    "compile": (
        ("resources",),
        lambda c: c.compile_kernels(
            [], target=KernelTarget("sm_90", "cuda", 90, warp_size=32), seconds=1
        ),
    ),
}


@pytest.mark.parametrize("kind", REQUESTS)
@given(data=st.data())
def test_whatever_a_worker_answers_is_read_or_ends_the_worker(
    kind: str, data: st.DataObject
) -> None:
    keys, ask = REQUESTS[kind]
    message = data.draw(st.fixed_dictionaries({}, optional=dict.fromkeys(keys, anything)))
    session = LyingSession(message)
    try:
        ask(Client(session, device="cpu", threads=1, cores=[]))  # type: ignore[arg-type]
    except WorkerCrashed:
        assert session.closed


@given(claimed=st.floats(), made=st.integers() | st.floats())
def test_no_claimed_time_overflows_what_is_computed_from_it(claimed: float, made: float) -> None:
    session = LyingSession({"ns": claimed, "calls": made})
    client = Client(session, device="cpu", threads=1, cores=[])  # type: ignore[arg-type]
    try:
        block = client.block(0, 1, seconds=1)
    except WorkerCrashed:
        return
    assert math.isfinite(math.log(block.per_call_ns))


@given(
    fields=anything
    | st.fixed_dictionaries(
        {"kind": anything, "type_name": anything, "message": anything},
        optional={"line": anything, "trace": anything},
    )
)
def test_whatever_a_failure_says_can_be_told_in_one_plain_line(fields: Any) -> None:
    told = describe(RequestFailed(Role.CANDIDATE, _failure(fields)))
    assert told.isprintable()
    assert len(told) < 3000
    json.dumps(told)
