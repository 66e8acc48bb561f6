"""The proposer and its sandboxed emitter, the emitter played by a script."""

from __future__ import annotations

import json
import os
import random
from typing import IO, Any

from evaluator.candidate import BackendName
from evaluator.sandbox import SandboxSpec
from evaluator.workload import Workload
from evolver.proposers.base import ProposalContext
from evolver.proposers.compiler import CompilerProposer
from evolver.proposers.compiler.process import request_of
from tests.builders import make_problem, make_tensor


class ScriptedProcess:
    """Has all its replies ready in the pipe."""

    def __init__(self, replies: list[bytes]) -> None:
        read_end, write_end = os.pipe()
        with os.fdopen(write_end, "wb") as out:
            out.write(b"".join(r + b"\n" for r in replies))
        self.replies: IO[bytes] = os.fdopen(read_end, "rb")
        self.requests: IO[bytes] = open(os.devnull, "wb")  # noqa: SIM115
        self.killed = False

    def alive(self) -> bool:
        return not self.killed

    def kill(self) -> None:
        self.killed = True

    def log_tail(self, size_bytes: int = 4000) -> str:
        return "the log"

    def exit_reason(self) -> str:
        return "exit status 1"


class ScriptedSandbox:
    name = "scripted"

    def __init__(self, *replies: dict[str, Any] | bytes) -> None:
        self._replies = [r if isinstance(r, bytes) else json.dumps(r).encode() for r in replies]
        self.started: list[ScriptedProcess] = []

    def start(self, spec: SandboxSpec) -> ScriptedProcess:
        self.started.append(ScriptedProcess(self._replies))
        return self.started[-1]


def variant(source: str) -> dict[str, Any]:
    return {"variant": {"source": source, "description": "d"}}


def make_context() -> ProposalContext:
    return ProposalContext(make_problem(), BackendName.TRITON, random.Random(0), 0, None)


def sources(proposer: CompilerProposer, calls: int) -> list[str | None]:
    proposals = [proposer.propose(make_context()) for _ in range(calls)]
    return [p.source if p else None for p in proposals]


def test_each_call_offers_the_next_program_and_then_nothing() -> None:
    sandbox = ScriptedSandbox(variant("a = 1"), variant("a = 2"), {"done": True})
    proposer = CompilerProposer(sandbox)
    assert sources(proposer, 4) == ["a = 1", "a = 2", None, None]
    assert len(sandbox.started) == 1
    assert sandbox.started[0].killed


def test_a_setting_that_fails_is_noted_and_passed_over() -> None:
    proposer = CompilerProposer(ScriptedSandbox({"failure": "no"}, variant("a"), {"done": True}))
    assert sources(proposer, 1) == ["a"]
    assert proposer.failures == ["no"]


def test_an_emitter_that_dies_ends_the_list_with_its_reason() -> None:
    proposer = CompilerProposer(ScriptedSandbox(variant("a")))
    assert sources(proposer, 3) == ["a", None, None]
    assert "exit status 1" in proposer.failures[0]


def test_a_malformed_reply_from_untrusted_code_ends_the_list() -> None:
    for nonsense in (b"{", b"[]", b'{"variant": {"source": 3}}', b"\xff"):
        proposer = CompilerProposer(ScriptedSandbox(nonsense, variant("a")))
        assert sources(proposer, 2) == [None, None]


def test_a_program_that_is_not_python_is_passed_over() -> None:
    proposer = CompilerProposer(ScriptedSandbox(variant("def"), variant("a"), {"done": True}))
    assert sources(proposer, 2) == ["a", None]
    assert "not Python" in proposer.failures[0]


def test_held_out_workloads_are_not_shown_to_the_emitter() -> None:
    parameters = make_problem().problem.parameters
    values = {p: make_tensor(4, 4) for p in parameters}
    workloads = tuple(
        Workload(name=name, arguments=values, held_out=held)
        for name, held in (("shown", False), ("hidden", True))
    )
    request = request_of(make_problem(workloads=workloads), BackendName.CPP)
    assert [w["name"] for w in request["workloads"]] == ["shown"]


def test_that_a_held_out_workload_differs_in_a_dimension_is_told_but_not_how() -> None:
    parameters = make_problem().problem.parameters
    workloads = tuple(
        Workload(
            name=name,
            arguments={p: make_tensor(rows, 4) for p in parameters},
            held_out=name == "hidden",
        )
        for name, rows in (("shown", 4), ("hidden", 977))
    )
    request = request_of(make_problem(workloads=workloads), BackendName.CPP)
    assert request["varying"] == [[(p, 0) for p in parameters]]
    assert "977" not in json.dumps(request)
