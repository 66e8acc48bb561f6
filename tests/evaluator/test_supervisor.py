"""What becomes of candidates in the real sandbox; the worst are in ``test_bad_input.py``."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from evaluator.candidate import BackendName
from evaluator.evaluation import Baseline, Evaluation, Stage, Status, Verdict
from evaluator.supervisor import CompiledBaseline, LocalEvaluator
from policies.model import EvaluatorPolicy
from tests import samples
from tests.builders import make_candidate, make_problem

pytestmark = pytest.mark.sandbox

PYTHON = """\
import torch
import math

SOURCE = ""
SIGNATURES = {{}}
{top}


def rms_norm(x, residual, weight, eps):
    total = x + residual
    scale = torch.rsqrt(total.pow(2).mean(dim=-1, keepdim=True) + eps)
    out = total * scale * weight
    {body}
"""


def quick_policy(*, enforced: bool = True) -> EvaluatorPolicy:
    """The default with short limits, so that a hang costs seconds; judges on a busy machine too."""
    policy = EvaluatorPolicy.default()
    limits = policy.limits.model_copy(
        update={"import_seconds": 3.0, "call_seconds": 3.0, "compile_seconds": 10.0}
    )
    source = policy.source.model_copy(update={"enforced": enforced})
    screen = policy.timing.screen.model_copy(update={"workload_seconds": 0.7, "max_rounds": 40})
    timing = policy.timing.model_copy(
        update={
            "screen": screen,
            "waiting_share": 1e9,
            "slope_noise_limit": 1e9,
            "self_comparison": None,
        }
    )
    return policy.model_copy(update={"limits": limits, "source": source, "timing": timing})


@pytest.fixture(scope="module")
def evaluator() -> Iterator[LocalEvaluator]:
    with LocalEvaluator(
        make_problem(), BackendName.CPP, policy=quick_policy(), compiled=CompiledBaseline.NEVER
    ) as started:
        yield started


@pytest.fixture(scope="module")
def lawless() -> Iterator[LocalEvaluator]:
    """Without the source policy: what the sandbox and the checks hold alone."""
    with LocalEvaluator(
        make_problem(),
        BackendName.CPP,
        policy=quick_policy(enforced=False),
        compiled=CompiledBaseline.NEVER,
    ) as started:
        yield started


def screen(evaluator: LocalEvaluator, body: str, *, top: str = "") -> Evaluation:
    return evaluator.screen(make_candidate(PYTHON.format(body=body, top=top)))


def test_an_honest_candidate_is_correct_and_timed(evaluator: LocalEvaluator) -> None:
    found = evaluator.screen(make_candidate())
    assert found.status is Status.OK, found.message
    assert {c.workload for c in found.correctness} == {"small", "odd"}
    assert all(e.budget_used < 1 for c in found.correctness for e in c.errors)
    assert found.speedup(Baseline.EAGER) is not None
    assert found.environment.sandbox != "none"
    visible, held_out = found.census
    assert [k.name for k in visible.kernels] == ["fused"]
    assert not held_out.kernels
    assert found.triviality is not None or found.speedups[0].verdict is not Verdict.FASTER


def test_an_evaluation_says_where_its_time_went(evaluator: LocalEvaluator) -> None:
    judged = evaluator.screen(make_candidate())
    spent = judged.stage_seconds
    passed = {Stage.POLICY, Stage.START, Stage.BUILD, Stage.CORRECTNESS, Stage.CENSUS, Stage.TIMING}
    assert passed <= set(spent)
    assert 0.5 * judged.seconds < sum(spent.values()) <= judged.seconds
    assert spent[Stage.TIMING] < judged.device_seconds < judged.seconds

    refused = evaluator.screen(make_candidate("import os"))
    assert set(refused.stage_seconds) == {Stage.POLICY}
    assert refused.device_seconds == 0


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("return torch.zeros_like(out), total", "output 0 is off"),
        ("return torch.full_like(out, float(out.mean())), total", "output 0 is off"),
        ("return torch.roll(out, 1, -1), total", "output 0 is off"),
        ("return out + 1e-3, total", "output 0 is off"),
        ("return out.half().float(), total", "output 0 is off"),
        ("out[0, 0] = math.nan; return out, total", "output 0 is off"),
        ("return out.double(), total", "dtype"),
        ("return out.t(), total", "shape"),
        ("return out", "bare tensor|a tuple"),
        ("return out, total, out", "3 tensors"),
        ("return out, 3", "output 1 is builtins.int"),
        ("return out, x.copy_(total)", "shares memory with x"),
        ("x.add_(1); return out, total", "argument x was modified"),
        ("return out, out", "shares memory with output"),
        ("return torch.nn.Parameter(out), total", "torch.nn.parameter.Parameter"),
    ],
)
def test_wrong_results_of_each_kind_are_incorrect(
    evaluator: LocalEvaluator, body: str, reason: str
) -> None:
    found = screen(evaluator, body)
    assert found.status is Status.INCORRECT, found.message
    assert re.search(reason, found.message), found.message


def test_a_failure_on_a_held_out_workload_tells_its_kind_and_nothing_else(
    evaluator: LocalEvaluator,
) -> None:
    found = screen(evaluator, "return (out if out.shape[1] != 129 else out * 2), total")
    assert found.status is Status.INCORRECT
    assert found.message == "wrong values on a held-out workload"
    assert "7, 129" not in found.model_dump_json()


def test_an_exception_on_a_held_out_workload_tells_its_type_and_nothing_else(
    evaluator: LocalEvaluator,
) -> None:
    body = "assert out.shape[1] != 129, str(out.shape); return out, total"
    found = screen(evaluator, body)
    assert found.status is Status.RUNTIME_ERROR
    assert found.message == "AssertionError on a held-out workload"
    assert "7, 129" not in found.model_dump_json()


def test_a_compile_error_carries_the_compilers_message_and_line(
    evaluator: LocalEvaluator,
) -> None:
    source = samples.RMS_NORM_CPP.replace("float total = 0.0f;", "flaot total = 0.0f;")
    found = evaluator.screen(make_candidate(source))
    assert found.status is Status.COMPILE_ERROR
    assert "flaot" in found.message
    assert "source.cpp:9" in found.message


HOSTILE = {
    "socket": "import socket\nsocket.create_connection(('1.1.1.1', 53), timeout=2)",
    "home": "open({secret!r}).read()",
    "forks": (
        "import os, time\n"
        "for _ in range(1000):\n"
        "    if os.fork() == 0:\n"
        "        time.sleep(60)\n"
        "        os._exit(0)"
    ),
}


@pytest.fixture(scope="module")
def secret() -> Iterator[str]:
    """A file in the home folder."""
    with tempfile.NamedTemporaryFile(dir=Path.home(), prefix=".ksmith-test-") as file:
        yield file.name


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_candidate_is_refused_by_the_source_policy(
    evaluator: LocalEvaluator, what: str, secret: str
) -> None:
    top = HOSTILE[what].replace("{secret!r}", repr(secret))
    found = screen(evaluator, "return out, total", top=top)
    assert found.status is Status.POLICY_VIOLATION
    assert "line 6" in found.message


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_candidate_is_contained_without_the_source_policy(
    lawless: LocalEvaluator, what: str, secret: str
) -> None:
    top = HOSTILE[what].replace("{secret!r}", repr(secret))
    found = screen(lawless, "return out, total", top=top)
    assert found.status is Status.RUNTIME_ERROR, found.message
    assert screen(lawless, "return out, total").status is Status.OK


FORGER = """\
import gc
from worker.main import Worker
from worker.protocol import Frame

for found in gc.get_objects():
    if isinstance(found, Worker):
        honest = found._handlers[{kind!r}]
        found._handlers = {{
            **found._handlers, {kind!r}: lambda r: (honest(r), Frame({reply}))[1]
        }}
"""

FORGED = {
    "run": "{'call': {'container': 'tuple', 'outputs': [7], 'arguments': [], 'lifted': 0}}",
    "prepare": "{'clock': 'sundial'}",
    "block": "{'ns': float('inf'), 'calls': 1}",
    "last": "{'call': {}, 'index': 'x'}",
}


@pytest.mark.parametrize("kind", FORGED)
def test_a_forged_reply_ends_the_candidate_and_nothing_else(
    lawless: LocalEvaluator, kind: str
) -> None:
    top = FORGER.format(kind=kind, reply=FORGED[kind])
    found = screen(lawless, "return out, total", top=top)
    assert found.status is Status.RUNTIME_ERROR, found.message
    assert screen(lawless, "return out, total").status is Status.OK


@pytest.mark.parametrize(
    "top",
    [
        "raise ValueError('\\ud800 \\x1b[2J\\0' + 'x' * 5_000_000)",
        "raise type('E\\nvil', (Exception,), {})('x')",
        "import os, json\nos.write(4, b'%c' % 27 + bytes(7) + b'{\"failure\":{\"message\":[7]}}')",
    ],
)
def test_what_a_candidate_says_can_be_shown_and_written_down(
    lawless: LocalEvaluator, top: str
) -> None:
    found = screen(lawless, "return out, total", top=top)
    assert found.status is Status.RUNTIME_ERROR
    assert found.message.isprintable()
    assert len(found.model_dump_json()) < 100_000


def test_results_remembered_by_address_are_caught_in_a_timed_block(
    lawless: LocalEvaluator,
) -> None:
    body = (
        "key = x.data_ptr()\n"
        "    n = CALLS.setdefault(key, 0)\n"
        "    CALLS[key] = n + 1\n"
        "    if n < 3 or key not in MEMORY:\n"
        "        MEMORY[key] = (out, total)\n"
        "    return MEMORY[key][0].clone(), MEMORY[key][1].clone()"
    )
    found = screen(lawless, body, top="CALLS = {}\nMEMORY = {}")
    assert found.status in (Status.CHEATING_SUSPECTED, Status.INCORRECT), found.message


def test_what_is_wrong_outside_the_timed_region_too_is_incorrect_and_no_cheating(
    lawless: LocalEvaluator,
) -> None:
    body = "CALLS.append(1); return (out if len(CALLS) < 60 else out + 1), total"
    found = screen(lawless, body, top="CALLS = []")
    assert found.status is Status.INCORRECT, found.message
    assert "came up while timing" in found.message or "held-out" in found.message


def test_a_clock_that_was_replaced_is_named(lawless: LocalEvaluator) -> None:
    top = (
        "import time\n"
        "real = time.perf_counter_ns\n"
        "base = real()\n"
        "time.perf_counter_ns = lambda: base + (real() - base) // 1000"
    )
    found = screen(lawless, "return out, total", top=top)
    assert found.status is Status.CHEATING_SUSPECTED, found.message
    assert [f.evidence for f in found.flags if f.rule == "tampering"] == [found.message]
    assert "time.perf_counter_ns was replaced" in found.message


def test_a_candidate_twice_as_slow_is_slower(evaluator: LocalEvaluator) -> None:
    body = (
        "for _ in range(3):\n"
        "        out = (x + residual) * scale * weight\n"
        "        scale = torch.rsqrt((x + residual).pow(2).mean(dim=-1, keepdim=True) + eps)\n"
        "    return out, total"
    )
    found = screen(evaluator, body)
    assert found.status is Status.OK, found.message
    speedup = found.speedup()
    assert speedup is not None
    assert speedup.verdict is Verdict.SLOWER


def test_the_reference_against_itself_is_not_faster(evaluator: LocalEvaluator) -> None:
    source = samples.RMS_NORM_REFERENCE + "\n\nSOURCE = ''\nSIGNATURES = {}\n"
    found = evaluator.screen(make_candidate(source))
    assert found.status is Status.OK, found.message
    speedup = found.speedup()
    assert speedup is not None
    assert speedup.verdict is not Verdict.FASTER


def test_a_confirmation_uses_fresh_processes_and_says_so() -> None:
    policy = quick_policy()
    confirm = policy.timing.confirm.model_copy(
        update={"process_pairs": 2, "workload_seconds": 0.5, "min_rounds": 8}
    )
    policy = policy.model_copy(
        update={"timing": policy.timing.model_copy(update={"confirm": confirm})}
    )
    with LocalEvaluator(
        make_problem("rotary"), BackendName.CPP, policy=policy, compiled=CompiledBaseline.NEVER
    ) as evaluator:
        found = evaluator.confirm(make_candidate(samples.ROTARY_CPP))
    assert found.status is Status.OK, found.message
    assert found.confirmed
    assert len(found.correctness) == 1


def test_indices_and_state_are_judged_through_the_contract() -> None:
    source = samples.ROUTER_CANDIDATE + "\n\nSOURCE = ''\nSIGNATURES = {}\n"
    with LocalEvaluator(
        make_problem("router"),
        BackendName.CPP,
        policy=quick_policy(),
        compiled=CompiledBaseline.NEVER,
    ) as evaluator:
        right = evaluator.screen(make_candidate(source))
        wrong = evaluator.screen(make_candidate(source.replace(", order\n", ", order.flip(-1)\n")))
    assert right.status is Status.OK, right.message
    assert wrong.status is Status.INCORRECT


def test_a_problem_that_zeros_would_solve_is_flagged() -> None:
    dull = make_problem(
        source=samples.RMS_NORM_REFERENCE.replace("return x * weight", "return x * weight * 0")
    )
    with LocalEvaluator(
        dull, BackendName.CPP, policy=quick_policy(), compiled=CompiledBaseline.NEVER
    ) as evaluator:
        found = screen(evaluator, "return out * 0, total")
    assert any(f.rule == "degenerate" and "zeros" in f.evidence for f in found.flags)


def test_workers_that_others_killed_are_started_again(evaluator: LocalEvaluator) -> None:
    processes = psutil.Process().children(recursive=True)
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=10)
    assert screen(evaluator, "return out, total").status is Status.OK


def test_the_record_is_whole_as_json(evaluator: LocalEvaluator) -> None:
    found = screen(evaluator, "out[0, 0] = math.inf; return out, total")
    again = Evaluation.model_validate_json(found.model_dump_json())
    assert again == found
