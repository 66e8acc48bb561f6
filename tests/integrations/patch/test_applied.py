"""An applied patch runs: the generated test passes in the sandbox, against real compilers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from evaluator.problem import Contract, LoadedProblem, Origin, Output, OutputKind
from evaluator.workload import ValueKind, Values, Workload
from integrations.checkouts import Checkouts
from integrations.patch import integrate
from integrations.patch.repository import TargetRepository
from integrations.verify import Verification, verify
from tests.builders import make_candidate, make_problem, make_tensor
from tests.integrations.patch.repositories import (
    ENGINE,
    NORM_FILE,
    confirmed,
    make_repository,
    winner_for,
)
from tests.samples import RMS_NORM_CPP, ROTARY_CPP, ROTARY_REFERENCE, ROUTER_CANDIDATE

pytestmark = [pytest.mark.real, pytest.mark.sandbox]

ROUTER_FILE = '''\
"""Routing."""
import torch
from torch import nn


class Router(nn.Module):
    """Chooses experts."""

    def __init__(self, experts, top_k):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(experts), requires_grad=False)
        self.top_k = top_k

    async def forward(self, logits):
        scores = torch.sigmoid(logits) + self.bias
        values, indices = torch.topk(scores, self.top_k, dim=-1)
        return values / values.sum(dim=-1, keepdim=True), indices
'''
ROUTE_CPP = ROUTER_CANDIDATE.replace(
    "import torch\n",
    'import torch\n\nSOURCE = "extern \\"C\\" void nothing() {}"\nSIGNATURES = {"nothing": ()}\n',
)


def verified(
    repository: Path, loaded: LoadedProblem, source: str, *, latency: tuple[str, ...] = ()
) -> Verification:
    candidate = make_candidate(source)
    result = integrate(loaded, candidate, confirmed(loaded, candidate), repository)
    return verify(result, repository, latency_command=latency, rounds=4, threads=1)


def test_a_function_with_two_outputs(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "a repository \u00fc")
    loaded, _, _ = winner_for()
    latency = ("python", "-c", 'import json, time; print(json.dumps({"value": 2.5}))')

    found = verified(repository, loaded, RMS_NORM_CPP, latency=latency)

    assert found.passed, found.new_test.output_tail
    assert found.new_test.passed == 10
    assert found.before.files == ("tests/test_ops.py",)
    assert found.before.passed == found.after.passed == 1
    assert found.latency is not None
    assert found.latency.ratio == 1.0


def test_a_wrong_kernel_is_found_by_the_generated_test(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "r")
    loaded, _, _ = winner_for()

    found = verified(repository, loaded, RMS_NORM_CPP.replace("/ cols + eps", "/ cols + 1.0f"))

    assert not found.passed
    assert any("agrees_with_the_pytorch_code" in name for name in found.new_test.failed)


def test_a_test_that_the_change_breaks_is_told_from_one_that_failed_before(tmp_path: Path) -> None:
    tests = (
        "import inspect, engine.ops\n\n\n"
        "def test_failed_before():\n    assert False\n\n\n"
        "def test_broken():\n    assert 'can_use' not in inspect.getsource(engine.ops)\n"
    )
    repository = make_repository(tmp_path / "r", {**ENGINE, "tests/test_ops.py": tests})
    loaded, _, _ = winner_for()

    found = verified(repository, loaded, RMS_NORM_CPP)

    assert found.before.failed == ("tests.test_ops::test_failed_before",)
    assert found.broken == ("tests.test_ops::test_broken",)
    assert not found.passed


def test_an_in_place_function(tmp_path: Path) -> None:
    repository = make_repository(
        tmp_path / "r", {"engine/__init__.py": "", "engine/rope.py": ROTARY_REFERENCE}
    )
    origin = Origin(repository="example/engine", target="engine/rope.py::rotary")

    found = verified(repository, make_problem("rotary", origin=origin), ROTARY_CPP)

    assert found.passed, found.new_test.output_tail


def test_an_in_place_function_that_returns_none(tmp_path: Path) -> None:
    returning = "    return query, key\n"
    reference = ROTARY_REFERENCE.replace(returning, "")
    repository = make_repository(
        tmp_path / "r", {"engine/__init__.py": "", "engine/rope.py": reference}
    )
    outputs = (Output(alias_of="query"), Output(alias_of="key"))
    loaded = make_problem(
        "rotary",
        source=reference,
        origin=Origin(repository="example/engine", target="engine/rope.py::rotary"),
        contract=Contract(
            outputs=outputs, returns_tuple=False, returns_none=True, writes=("query", "key")
        ),
    )

    found = verified(repository, loaded, ROTARY_CPP.replace(returning, ""))

    assert found.passed, found.new_test.output_tail


def test_an_asynchronous_method_with_state_ties_and_free_order(tmp_path: Path) -> None:
    repository = make_repository(
        tmp_path / "r", {"engine/__init__.py": "", "engine/moe.py": ROUTER_FILE}
    )

    def tokens(name: str, count: int, kind: ValueKind = ValueKind.NORMAL) -> Workload:
        logits = make_tensor(count, 32, values=Values(kind=kind, high=7))
        return Workload(
            name=name, arguments={"logits": logits, "bias": make_tensor(32), "top_k": 4}
        )

    loaded = make_problem(
        "router",
        origin=Origin(repository="example/engine", target="engine/moe.py::Router.forward"),
        workloads=(tokens("a", 1), tokens("b", 64), tokens("c", 33, ValueKind.TIES)),
        contract=Contract(
            outputs=(
                Output(order_free_dim=-1),
                Output(kind=OutputKind.INDICES, selects=0, order_free_dim=-1),
            ),
            returns_tuple=True,
        ),
    )

    found = verified(repository, loaded, ROUTE_CPP)

    assert found.passed, found.new_test.output_tail


def test_without_a_compiler_the_original_code_runs(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "r")
    result = integrate(*winner_for(), repository)
    script = (
        "import torch\nfrom engine import ops, ops_rms_norm_kernel as k\n"
        "x = torch.ones(8, 200)\nw = torch.ones(200)\n"
        "assert not k.can_use(x, x, w, 1e-6)\nassert ops.rms_norm(x, x, w)[0].shape == x.shape\n"
    )
    side = TargetRepository(repository)
    with Checkouts(side, {"after": result.commit}, threads=1) as checkouts:
        done = checkouts.run(
            "after", [sys.executable, "-c", script], seconds=120, environment={"PATH": "/nowhere"}
        )

    assert done.status == 0, done.output
    assert "slower path kept" in done.output


def test_under_torch_compile_the_original_code_is_traced(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "r", {**ENGINE, "engine/ops.py": NORM_FILE})
    result = integrate(*winner_for(), repository)
    script = (
        "import torch\nfrom engine import ops, ops_rms_norm_kernel as k\n"
        "x = torch.randn(8, 200)\nw = torch.ones(200)\n"
        "assert k.can_use(x, x, w, 1e-6)\n"
        "compiled = torch.compile(ops.rms_norm, backend='eager', fullgraph=True)\n"
        "k.rms_norm = None\n"
        "assert compiled(x, x, w)[0].shape == x.shape\n"
    )
    with Checkouts(TargetRepository(repository), {"after": result.commit}, threads=1) as checkouts:
        done = checkouts.run("after", ["python", "-c", script], seconds=300)

    assert done.status == 0, done.output


def test_code_of_the_repository_sees_no_host(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    repository = make_repository(tmp_path / "r")
    script = (
        f"import os, socket\nassert not os.path.exists({str(secret)!r})\n"
        "try:\n    socket.create_connection(('192.0.2.1', 53), 2)\n"
        "except OSError:\n    print('no network')\n"
    )
    side = TargetRepository(repository)
    with Checkouts(side, {"base": side.base}, threads=1) as checkouts:
        done = checkouts.run("base", ["python", "-c", script], seconds=60)
        late = checkouts.run("base", ["sleep", "60"], seconds=1)
        lost = checkouts.run("base", ["no-such-program"], seconds=5)

    assert "no network" in done.output
    assert late.timed_out
    assert lost.status is None
