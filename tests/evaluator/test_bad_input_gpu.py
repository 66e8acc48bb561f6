"""What candidates do to a GPU, and others who use it, costs the next candidate nothing.

As ``test_bad_input.py``, with a device that has errors, memory and users of its own.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from evaluator import machine
from evaluator.candidate import BackendName
from evaluator.evaluation import Evaluation, Status
from evaluator.supervisor import CompiledBaseline, LocalEvaluator
from evaluator.timing.clocks import open_monitor, strangers
from tests import samples
from tests.builders import make_candidate, make_problem
from tests.evaluator.test_bad_input import brief_policy, processes, wait_for

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.sandbox,
    pytest.mark.skipif(not machine.gpus(), reason="there is no GPU"),
]

SHORT_SECONDS = 6.0
"""For a first call, which makes a context and compiles."""
LONGEST_SECONDS = 40.0
MIB = 1 << 20
HONEST = samples.RMS_NORM_TRITON


def with_kernel(kernel: str, launch: str) -> str:
    """The honest candidate with another kernel, launched at each call's start."""
    source = HONEST.replace("def rms_norm(x,", f"@triton.jit\n{kernel}\n\n\ndef rms_norm(x,")
    return source.replace("    out = torch.empty_like(x)\n", f"    {launch}\n{OUT}", 1)


def with_top(top: str) -> str:
    """The honest candidate with more to do at its import."""
    return HONEST.replace("import torch\n", f"import torch\n{top}", 1)


OUT = "    out = torch.empty_like(x)\n"
ASTRAY = """\
def astray(p, far):
    tl.store(p + far, 1.0)
"""
ENDLESS = """\
def endless(p):
    seen = tl.load(p, volatile=True)
    while seen >= 0:
        seen = tl.load(p, volatile=True)
"""
UNROLLED = """\
def unrolled(p):
    for i in tl.static_range(100_000_000):
        tl.store(p + i, 1.0)
"""
HOARD = """\
KEPT, size = [], 1 << 30
while size >= 1 << 20:
    try:
        KEPT.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError:
        size //= 2
"""
SQUATTER = """\
import os, time
ready, said = os.pipe()
if os.fork() == 0:
    try:
        os.setsid()
        kept = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
        os.write(said, b"!")
        while True: time.sleep(1)
    finally:
        os._exit(1)
os.close(said)
assert os.read(ready, 1), "the child could not use the GPU"
"""
ZERO = "torch.zeros(1, dtype=torch.int32, device=x.device)"

BAD = {
    "writes where nothing is": (
        with_kernel(ASTRAY, "astray[(1,)](x, 1 << 40)"),
        {Status.RUNTIME_ERROR},
    ),
    "runs a kernel that does not end": (
        with_kernel(ENDLESS, f"endless[(1,)]({ZERO})"),
        {Status.TIMEOUT},
    ),
    "compiles without end": (with_kernel(UNROLLED, "unrolled[(1,)](x)"), {Status.TIMEOUT}),
    "asks for more memory than there is": (
        HONEST.replace(OUT, f"    torch.empty(1 << 45, device=x.device)\n{OUT}", 1),
        {Status.OUT_OF_MEMORY},
    ),
    "takes all memory and keeps it": (with_top(HOARD), {Status.OUT_OF_MEMORY, Status.OK}),
    "leaves a process with a gigabyte": (with_top(SQUATTER), {Status.OK}),
}


@pytest.fixture(scope="module")
def evaluator() -> Iterator[LocalEvaluator]:
    policy = brief_policy(short_seconds=SHORT_SECONDS)
    with LocalEvaluator(
        make_problem(), BackendName.TRITON, policy=policy, compiled=CompiledBaseline.NEVER
    ) as started:
        yield started


def screen(evaluator: LocalEvaluator, source: str) -> Evaluation:
    return evaluator.screen(make_candidate(source, backend=BackendName.TRITON))


@pytest.fixture(scope="module")
def undisturbed(evaluator: LocalEvaluator) -> Evaluation:
    """The honest candidate before anything bad was there."""
    found = screen(evaluator, HONEST)
    assert found.status is Status.OK, (found.message, found.log_tail)
    return found


def used_bytes() -> int:
    """Of the GPU's memory, by everyone."""
    import pynvml

    pynvml.nvmlInit()
    return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).used)


def settled_bytes(usual: int) -> int:
    """What is used once the driver had a moment to give back what the dead had."""
    deadline = time.monotonic() + 5
    while (used := used_bytes()) > usual + 64 * MIB and time.monotonic() < deadline:
        time.sleep(0.05)
    return used


@pytest.mark.parametrize("what", BAD)
def test_a_candidate_ends_as_what_it_is_and_leaves_the_gpu_as_it_was(
    evaluator: LocalEvaluator, undisturbed: Evaluation, what: str
) -> None:
    source, statuses = BAD[what]
    usual, usual_bytes, started = processes(), used_bytes(), time.monotonic()
    found = screen(evaluator, source)
    assert found.status in statuses, (found.message, found.log_tail)
    assert time.monotonic() - started < LONGEST_SECONDS
    assert wait_for(usual) == set()
    assert settled_bytes(usual_bytes) <= usual_bytes + 64 * MIB
    after = screen(evaluator, HONEST)
    assert (after.status, after.correctness) == (Status.OK, undisturbed.correctness)


STRANGER = """\
import ctypes, os, time
if os.fork():
    os._exit(0)
os.setsid()
cuda = ctypes.CDLL("libcuda.so.1")
device, context = ctypes.c_int(), ctypes.c_void_p()
failed = cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0)
failed = failed or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
print(os.getpid(), failed, flush=True)
time.sleep(120)
"""


@contextmanager
def stranger() -> Iterator[int]:
    """The number of a process with a context on the GPU that does not descend from us."""
    with subprocess.Popen([sys.executable, "-c", STRANGER], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid, failed = map(int, parent.stdout.readline().split())
        try:
            assert not failed
            yield pid
        finally:
            subprocess.run(["kill", "-9", str(pid)], check=True)


def test_someone_else_on_the_gpu_makes_the_machine_unfit_for_as_long_as_they_are_there(
    evaluator: LocalEvaluator, undisturbed: Evaluation
) -> None:
    monitor = open_monitor("cuda")
    assert monitor is not None
    with stranger() as pid:
        if pid not in strangers(monitor):
            pytest.skip("the driver does not tell processes by the numbers that they have here")
        found = screen(evaluator, HONEST)
    assert found.status is Status.MACHINE_UNFIT, found.message
    assert f"someone else uses the GPU (process {pid})" in found.message
    assert found.correctness == undisturbed.correctness
    assert screen(evaluator, HONEST).status is Status.OK


def test_of_an_evaluator_no_gpu_memory_is_left(undisturbed: Evaluation) -> None:
    assert undisturbed.status is Status.OK
    usual = used_bytes()
    policy = brief_policy(short_seconds=SHORT_SECONDS)
    with LocalEvaluator(
        make_problem(), BackendName.TRITON, policy=policy, compiled=CompiledBaseline.NEVER
    ) as another:
        assert screen(another, HONEST).status is Status.OK
        assert used_bytes() > usual + 64 * MIB
    assert settled_bytes(usual) <= usual + 64 * MIB
