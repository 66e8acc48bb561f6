"""The time that threads inside waited for a core, as seen from outside."""

from __future__ import annotations

import os
import time

import pytest

from evaluator.sandbox import Sandbox
from evaluator.sandbox.waiting import WaitingTime
from tests.evaluator.sandbox.inside import started

pytestmark = pytest.mark.sandbox

SPIN = "os.sched_setaffinity(0, {%d})\nanswer('up')\nwhile True: pass\n"


def test_two_that_share_a_core_wait_for_each_other(sandbox: Sandbox) -> None:
    core = min(os.sched_getaffinity(0))
    with (
        started(sandbox, SPIN % core) as one,
        started(sandbox, SPIN % core, user_slot=1) as other,
    ):
        for process in (one, other):
            process.replies.read(len('"up"'))
        before = one.waited_ns()
        time.sleep(0.5)
        after = one.waited_ns()
    assert before is not None
    assert after is not None
    assert after - before > 0.1e9


def test_of_a_process_that_ended_nothing_is_told() -> None:
    assert WaitingTime(2**22 + 1).read_ns() is None


def test_a_paused_sandbox_stands_still_with_all_its_children_and_runs_on(sandbox: Sandbox) -> None:
    counting = (
        "import time\n"
        "if os.fork() == 0:\n"
        "    while True:\n"
        "        os.write(4, b'.')\n"
        "        time.sleep(0.01)\n"
        "time.sleep(60)\n"
    )
    with started(sandbox, counting) as process:
        process.replies.read(1)
        process.pause()
        time.sleep(0.05)
        os.set_blocking(process.replies.fileno(), False)
        process.replies.read()
        time.sleep(0.2)
        assert not process.replies.read()
        process.resume()
        time.sleep(0.2)
        assert process.replies.read()


def test_a_process_that_forks_all_the_time_cannot_run_on_through_a_pause(
    sandbox: Sandbox,
) -> None:
    """One that is never on a list of processes would slow the baseline's blocks down."""
    fleeing = (
        "import ctypes, signal, time\n"
        "set_child_subreaper = 36\n"
        "ctypes.CDLL(None).prctl(set_child_subreaper, 1, 0, 0, 0)\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "if os.fork():\n"
        "    time.sleep(60)\n"
        "while True:\n"
        "    os.write(4, b'.')\n"
        "    if os.fork():\n"
        "        os._exit(0)\n"
    )
    with started(sandbox, fleeing) as process:
        process.replies.read(1)
        for _ in range(5):
            process.pause()
            os.set_blocking(process.replies.fileno(), False)
            time.sleep(0.05)  # what is under way between us and a container arrives
            while process.replies.read():
                pass
            time.sleep(0.1)
            assert not process.replies.read()
            os.set_blocking(process.replies.fileno(), True)
            process.resume()
            assert process.replies.read(1)


def test_a_paused_sandbox_can_be_killed(sandbox: Sandbox) -> None:
    with started(sandbox, "answer(1)\nwhile True: pass\n") as process:
        process.replies.read(1)
        process.pause()
        process.kill()
        assert not process.alive()
