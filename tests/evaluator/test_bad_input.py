"""Whatever a candidate or a reference does, it ends as what it is, in time, and leaves nothing.

Each bad candidate is followed by the same honest one, whose checks must come out to the last
digit as they did before; no process may be left. There is no source policy here. How a machine
or a GPU fails is scripted in ``test_clocks.py`` and shown in ``test_bad_input_gpu.py``.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator

import psutil
import pytest

from evaluator import stages
from evaluator.candidate import BackendName
from evaluator.errors import ReferenceFailed
from evaluator.evaluation import Evaluation, Status
from evaluator.problem import LoadedProblem
from evaluator.sandbox import Sandbox
from evaluator.sandbox.bubblewrap import BubblewrapSandbox
from evaluator.sandbox.zygote import ZygoteSandbox
from evaluator.session import PRELOAD, RequestFailed, Role
from evaluator.supervisor import CompiledBaseline, LocalEvaluator
from evaluator.timing.timekeeper import Timekeeper
from evaluator.worker.protocol import Failure
from policies.model import EvaluatorPolicy, LayoutPolicy
from tests import samples
from tests.builders import make_candidate, make_problem

pytestmark = pytest.mark.sandbox

SHORT_SECONDS = 1.5
COMPILE_SECONDS = 4.0
LONGEST_SECONDS = 30.0
"""For a whole evaluation of which one stage hangs, on a busy machine."""

FINE = {Status.OK, Status.MACHINE_UNFIT}
"""Right; on a busy machine nobody can say how fast."""

NOTHING_NATIVE = "\n\nSOURCE = ''\nSIGNATURES = {}\n"
HONEST = samples.RMS_NORM_REFERENCE + NOTHING_NATIVE


def with_body(body: str, top: str = "") -> str:
    """The honest candidate with ``top`` at import and ``body`` in each call."""
    head, returned = HONEST.split("    return x * weight, residual")
    source = f"{head}    {body}\n    return x * weight, residual{returned}"
    return source.replace("import torch\n", f"import torch\n{top}\n", 1)


def with_native(statement: str, top: str = "") -> str:
    """The honest C++ candidate with ``statement`` at each call's start, and ``top`` before it."""
    source = samples.RMS_NORM_CPP.replace("float eps) {\n", f"float eps) {{\n  {statement}\n", 1)
    return source.replace('extern "C"', f'#include <cstdlib>\n{top}\nextern "C"', 1)


TEMPLATE_BOMB = """\
template <int A, int B> struct G {
  typedef typename G<A - 1, B>::t left;
  typedef typename G<A, B - 1>::t t;
};
template <int B> struct G<0, B> { typedef int t; };
template <int A> struct G<A, 0> { typedef int t; };
"""
DEAF = "import signal\nfor n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\n"
DAEMON = """\
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for n in range(5): os.close(n)
        while True: time.sleep(1)
    os._exit(0)
os.wait()
"""

BAD = {
    "hangs in import, deaf to signals": (
        with_body("", DEAF + "while True: pass"),
        {Status.TIMEOUT},
    ),
    "hangs in a call": (with_body("while True: pass"), {Status.TIMEOUT}),
    "hangs in native code": (with_native("for (volatile int i = 0;;) i = 1;"), {Status.TIMEOUT}),
    "hangs in the compiler": (
        with_native("typename G<800, 800>::t z;", TEMPLATE_BOMB),
        {Status.TIMEOUT, Status.COMPILE_ERROR},
    ),
    "stops itself": (with_body("import os; os.kill(os.getpid(), 19)"), {Status.TIMEOUT}),
    "hangs in a destructor while it exits": (
        with_native("exit(0);", "__attribute__((destructor)) void last() { for (;;) {} }"),
        {Status.TIMEOUT},
    ),
    "would hang in its exit, were it allowed one": (
        with_body("", DEAF + "import atexit, time\natexit.register(time.sleep, 1e6)"),
        FINE,
    ),
    "exits amid a call": (with_body("raise SystemExit(0)"), {Status.RUNTIME_ERROR}),
    "is gone without a word": (with_body("import os; os._exit(0)"), {Status.RUNTIME_ERROR}),
    "raises in import": (with_body("", "raise ValueError('no')"), {Status.RUNTIME_ERROR}),
    "crashes": (with_native("*(volatile int*)0 = 1;"), {Status.RUNTIME_ERROR}),
    "closes its pipes": (with_body("import os; os.closerange(3, 99)"), {Status.RUNTIME_ERROR}),
    "prints a gigabyte": (
        with_body("", "import os\nfor _ in range(1 << 10): os.write(1, b'x' * (1 << 20))"),
        FINE | {Status.TIMEOUT},
    ),
    "asks for more memory than there is": (
        with_body("torch.empty(1 << 45)"),
        {Status.OUT_OF_MEMORY},
    ),
    "takes what memory it may have, bit by bit": (
        with_body("kept = [torch.empty(1 << 28) for _ in range(64)]"),
        {Status.OUT_OF_MEMORY},
    ),
    "writes NaN": (with_body("x = x * float('nan')"), {Status.INCORRECT}),
    "leaves a daemon behind": (with_body("", DAEMON), FINE),
}


def brief_policy(*, short_seconds: float = SHORT_SECONDS) -> EvaluatorPolicy:
    """Short limits and little timing."""
    default = EvaluatorPolicy.default()
    limits = {
        "import_seconds": short_seconds,
        "call_seconds": short_seconds,
        "compile_seconds": COMPILE_SECONDS,
    }
    derived = {"shapes": 0, "values": 0, "layouts": LayoutPolicy.OFF}
    screen = {"workload_seconds": 0.1, "min_rounds": 5, "max_rounds": 5, "slope_pairs": 2}
    timing = {
        "waiting_share": 1e9,
        "self_comparison": None,
        "screen": default.timing.screen.model_copy(update=screen),
    }
    correctness = default.correctness
    return default.model_copy(
        update={
            "limits": default.limits.model_copy(update=limits),
            "source": default.source.model_copy(update={"enforced": False}),
            "census": default.census.model_copy(update={"enabled": False}),
            "timing": default.timing.model_copy(update=timing),
            "correctness": correctness.model_copy(
                update={"derived": correctness.derived.model_copy(update=derived)}
            ),
        }
    )


@pytest.fixture(scope="module")
def sandbox() -> Iterator[ZygoteSandbox]:
    """One import of torch for all evaluators of this file."""
    shared = ZygoteSandbox(BubblewrapSandbox(), preload=PRELOAD)
    yield shared
    shared.close()


def evaluator_of(loaded: LoadedProblem, sandbox: Sandbox) -> LocalEvaluator:
    return LocalEvaluator(
        loaded,
        BackendName.CPP,
        policy=brief_policy(),
        sandbox=sandbox,
        compiled=CompiledBaseline.NEVER,
    )


@pytest.fixture(scope="module")
def evaluator(sandbox: ZygoteSandbox) -> Iterator[LocalEvaluator]:
    problem = make_problem()
    small = problem.problem.workloads[:1]
    with evaluator_of(make_problem(workloads=small), sandbox) as started:
        yield started


@pytest.fixture(scope="module")
def undisturbed(evaluator: LocalEvaluator) -> Evaluation:
    """The honest candidate before anything bad was there."""
    found = evaluator.screen(make_candidate(HONEST))
    assert found.status in FINE, found.message
    return found


def processes() -> set[int]:
    return {p.pid for p in psutil.Process().children(recursive=True)}


def memory_kib() -> int:
    """The most that this process has ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def wait_for(expected: set[int]) -> set[int]:
    """The processes beyond ``expected``, once they had a moment to go."""
    deadline = time.monotonic() + 3
    while (left := processes() - expected) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


@pytest.mark.parametrize("what", BAD)
def test_a_candidate_ends_as_what_it_is_and_the_next_one_as_if_it_had_not_been(
    evaluator: LocalEvaluator, undisturbed: Evaluation, what: str
) -> None:
    source, statuses = BAD[what]
    usual, usual_kib, started = processes(), memory_kib(), time.monotonic()
    found = evaluator.screen(make_candidate(source))
    elapsed = time.monotonic() - started
    assert found.status in statuses, found.message
    assert found.message
    assert elapsed < LONGEST_SECONDS
    assert len(found.log_tail) < 20_000
    assert memory_kib() < usual_kib + (100 << 10)
    assert wait_for(usual) == set()
    after = evaluator.screen(make_candidate(HONEST))
    assert after.status in FINE, after.message
    assert after.correctness == undisturbed.correctness


def test_what_fails_on_a_gpu_that_is_lost_is_not_the_candidates_fault(
    evaluator: LocalEvaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Timekeeper, "device_lost", lambda _: "GPU is lost")
    found = evaluator.screen(make_candidate(with_body("raise RuntimeError('CUDA error')")))
    assert found.status is Status.MACHINE_UNFIT
    assert "GPU is lost" in found.message


def test_a_reference_that_lacks_memory_only_beside_a_candidate_is_not_at_fault(
    evaluator: LocalEvaluator, undisturbed: Evaluation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(*_: object, **__: object) -> None:
        failure = Failure(kind="out_of_memory", type_name="OutOfMemoryError", message="no")
        raise ReferenceFailed("it cannot run") from RequestFailed(Role.REFERENCE, failure)

    with monkeypatch.context() as patched:
        patched.setattr(stages, "check_candidate", check)
        assert evaluator.screen(make_candidate(HONEST)).status is Status.OUT_OF_MEMORY
    after = evaluator.screen(make_candidate(HONEST))
    assert after.status in FINE, after.message
    assert after.correctness == undisturbed.correctness


BROKEN_REFERENCES = {
    "hangs in import": ("import torch", "import torch\nwhile True: pass", "cannot be imported"),
    "hangs in a call": ("x = x + residual", "while True: pass", "did not survive.*'small'"),
    "dies": ("x = x + residual", "__import__('os')._exit(1)", "did not survive.*'small'"),
    "needs another shape": ("x + residual", "x + residual[:, :3]", "cannot run.*'small'"),
    "draws random numbers": (
        "x + residual",
        "x + residual + torch.rand_like(x)",
        "disagrees with itself",
    ),
    "writes what it does not declare": ("x = x + residual", "x += residual", "its own contract"),
    "is wrong by its own contract": ("return x * weight, residual", "return x", "its own contract"),
}


@pytest.mark.usefixtures("evaluator")  # so that all that lasts is there
@pytest.mark.parametrize("how", BROKEN_REFERENCES)
def test_a_broken_reference_is_named_before_any_candidate_is_judged(
    sandbox: ZygoteSandbox, how: str
) -> None:
    honest, broken, message = BROKEN_REFERENCES[how]
    source = samples.RMS_NORM_REFERENCE.replace(honest, broken, 1)
    usual, started = processes(), time.monotonic()
    with pytest.raises(ReferenceFailed, match=message):
        evaluator_of(make_problem(source=source), sandbox).__enter__()
    assert time.monotonic() - started < LONGEST_SECONDS
    assert wait_for(usual) == set()


@pytest.mark.usefixtures("evaluator")
def test_nothing_is_left_of_an_evaluator(sandbox: ZygoteSandbox) -> None:
    usual, files = processes(), len(os.listdir("/proc/self/fd"))
    with evaluator_of(make_problem(), sandbox) as evaluator:
        evaluator.screen(make_candidate(BAD["leaves a daemon behind"][0]))
    assert wait_for(usual) == set()
    assert len(os.listdir("/proc/self/fd")) <= files
