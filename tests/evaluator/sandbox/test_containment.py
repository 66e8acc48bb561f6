"""What a hostile program can do to the machine: nothing that lasts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from evaluator.sandbox import Sandbox
from tests.evaluator.sandbox.inside import SMALL, run, started, wait_for_the_end

pytestmark = pytest.mark.sandbox


CALL_ME = "import ctypes\nctypes.CDLL(None).prctl(15, {marker!r}.encode(), 0, 0, 0)\n"
"""Sets the name that the kernel knows a process by; what it forks has it too."""


def processes_named(marker: str) -> list[psutil.Process]:
    assert len(marker) < 16, "the kernel keeps no more"
    return [p for p in psutil.process_iter(["name"]) if p.info["name"] == marker]


def assert_nothing_is_left(marker: str) -> None:
    deadline = time.monotonic() + 5
    while processes_named(marker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_named(marker) == []


def test_a_fork_bomb_of_a_thousand_ends_at_the_process_limit(sandbox: Sandbox) -> None:
    outcome = run(
        sandbox,
        "import time\n"
        "made = 0\n"
        "for _ in range(1000):\n"
        "    try:\n"
        "        if os.fork() == 0:\n"
        "            time.sleep(60); os._exit(0)\n"
        "        made += 1\n"
        "    except BlockingIOError:\n"
        "        break\n"
        "answer(made)",
    )
    assert 0 < outcome.answer < SMALL.processes
    assert outcome.reason == "exited with status 0"


def test_a_fork_bomb_that_doubles_is_killed_whole(sandbox: Sandbox) -> None:
    marker = f"doubling{os.getpid()}"
    script = CALL_ME.format(marker=marker) + (
        "answer(1)\n"
        "while True:\n"
        "    try:\n"
        "        os.fork()\n"
        "    except BlockingIOError:\n"
        "        pass\n"
    )
    with started(sandbox, script) as process:
        assert process.replies.read(1) == b"1"
        time.sleep(0.5)
        assert len(processes_named(marker)) > 1
        process.kill()
    assert_nothing_is_left(marker)


def test_threads_count_as_processes(sandbox: Sandbox) -> None:
    outcome = run(
        sandbox,
        "import threading, time\n"
        "def many():\n"
        "    for _ in range(1000):\n"
        "        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "answer(attempt(many))\n"
        "os._exit(0)",
    )
    assert outcome.answer == "RuntimeError"


def test_a_memory_bomb_in_one_process_gets_no_memory(sandbox: Sandbox) -> None:
    outcome = run(sandbox, "answer(attempt(lambda: len(bytearray(1 << 30))))")
    assert outcome.answer == "MemoryError"


@pytest.mark.parametrize(
    "bomb",
    [
        pytest.param(
            "for _ in range(8):\n"
            "    if os.fork() == 0:\n"
            "        hold = b'x' * (100 << 20)\n"
            "        time.sleep(60)\n",
            id="spread over processes",
        ),
        pytest.param(
            "hold = mmap.mmap(-1, 1 << 30)\nfor at in range(0, 1 << 30, 4096):\n    hold[at] = 1\n",
            id="in shared pages",
        ),
        pytest.param(
            "hold = mmap.mmap(-1, 1 << 30)\n"
            "for start in range(0, 1 << 30, 50 << 20):\n"
            "    if os.fork() == 0:\n"
            "        for at in range(start, min(start + (50 << 20), 1 << 30), 4096):\n"
            "            hold[at] = 1\n"
            "        os._exit(0)\n"
            "    os.wait()\n",
            id="in shared pages that those who filled them left behind",
        ),
    ],
)
def test_a_memory_bomb_that_dodges_the_limit_per_process_is_killed(
    sandbox: Sandbox, bomb: str
) -> None:
    outcome = run(sandbox, f"import mmap, time\n{bomb}time.sleep(60)")
    assert "memory limit" in outcome.reason
    assert "256 MiB are allowed" in outcome.reason


def test_pages_that_forks_share_count_once(sandbox: Sandbox) -> None:
    outcome = run(
        sandbox,
        "import time\n"
        "hold = b'x' * (100 << 20)\n"
        "for _ in range(8):\n"
        "    if os.fork() == 0:\n"
        "        time.sleep(60)\n"
        "time.sleep(2)\n"
        "answer('alive')\n",
    )
    assert (outcome.answer, "memory limit" in outcome.reason) == ("alive", False)


def test_memory_that_no_limit_counts_cannot_be_had(sandbox: Sandbox) -> None:
    outcome = run(
        sandbox,
        "import ctypes\n"
        "libc = ctypes.CDLL(None)\n"
        "answer([attempt(lambda: os.memfd_create('x')), libc.shmget(0, 1 << 30, 0o1600)])",
    )
    assert outcome.answer == ["PermissionError", -1]


def test_endless_output_is_drained_and_only_its_end_kept(sandbox: Sandbox) -> None:
    limits = replace(SMALL, log_bytes=10_000)
    script = (
        "for _ in range(3000):\n    os.write(1, b'x' * 10_000)\nos.write(2, b'the end')\nanswer(1)"
    )
    with started(sandbox, script, limits=limits) as process:
        wait_for_the_end(process, seconds=30)
        tail = process.log_tail(size_bytes=1 << 20)
    assert len(tail) == 10_000
    assert tail.endswith("the end")


def test_a_daemon_dies_with_its_sandbox(sandbox: Sandbox) -> None:
    marker = f"daemon{os.getpid()}"
    script = CALL_ME.format(marker=marker) + (
        "import time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        for n in range(5): os.close(n)\n"
        "        time.sleep(600)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "answer(1)\n"
    )
    outcome = run(sandbox, script)
    assert outcome.answer == 1
    assert_nothing_is_left(marker)


def test_ignoring_every_signal_does_not_help(sandbox: Sandbox) -> None:
    script = (
        "import signal, time\n"
        "for number in range(1, 65):\n"
        "    if number not in (9, 19, 32, 33):\n"
        "        signal.signal(number, signal.SIG_IGN)\n"
        "answer(1)\n"
        "while True: time.sleep(1)"
    )
    with started(sandbox, script) as process:
        assert process.replies.read(1) == b"1"
        start = time.monotonic()
        process.kill()
        assert time.monotonic() - start < 2
        assert not process.alive()


@pytest.mark.parametrize("folder", ["/tmp", "/dev/shm"])
def test_filling_the_disk_ends_at_the_size_of_the_scratch_folder(
    sandbox: Sandbox, folder: str
) -> None:
    free = psutil.disk_usage("/").free
    outcome = run(
        sandbox,
        "def fill():\n"
        "    for n in range(1000):\n"
        f"        with open(f'{folder}/{{n}}', 'wb') as file:\n"
        "            file.write(bytes(4 << 20))\n"
        "cause = attempt(fill)\n"
        f"answer([cause, sum(os.stat(f'{folder}/' + n).st_blocks * 512"
        f" for n in os.listdir('{folder}'))])",
    )
    cause, written = outcome.answer
    assert cause == "OSError"
    assert written <= 4 * SMALL.file_bytes
    assert abs(psutil.disk_usage("/").free - free) < 1 << 30


def test_one_file_cannot_pass_the_file_limit(sandbox: Sandbox) -> None:
    outcome = run(
        sandbox,
        "file = open('/tmp/large', 'wb', buffering=0)\n"
        "answer(attempt(lambda: [file.write(bytes(1 << 20)) for _ in range(100)]))",
    )
    assert outcome.answer == "OSError"


def test_a_busy_loop_ends_at_the_processor_time_limit(sandbox: Sandbox) -> None:
    outcome = run(sandbox, "while True: pass", limits=replace(SMALL, cpu_seconds=1))
    assert outcome.reason == "ended by SIGKILL"


def test_a_program_that_stops_itself_can_be_killed(sandbox: Sandbox) -> None:
    with started(sandbox, "answer(1)\nos.kill(os.getpid(), 19)") as process:
        assert process.replies.read(1) == b"1"
        process.kill()
        assert not process.alive()


SUPERVISOR = """\
import sys, time
from evaluator.sandbox import SandboxSpec
from evaluator.sandbox.bubblewrap import BubblewrapSandbox
from evaluator.sandbox.docker import DockerSandbox
sandbox = {sandbox}
process = sandbox.start(SandboxSpec(argv=[sys.executable, "-c", {script!r}]))
process.replies.read(1)
{then}
print("started", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("sandbox", "then"),
    [
        ("BubblewrapSandbox()", ""),
        ("DockerSandbox({engine!r})", ""),
        ("DockerSandbox({engine!r})", "process.pause()"),
    ],
    ids=["bubblewrap", "docker", "docker, paused"],
)
def test_everything_dies_with_a_supervisor_that_is_killed(
    request: pytest.FixtureRequest, sandbox: str, then: str
) -> None:
    """With a zygote: ``test_zygote.py``, where it must die as well."""
    if "Docker" in sandbox:
        sandbox = sandbox.format(engine=request.getfixturevalue("engine"))
    marker = f"orphan{os.getpid()}"
    script = CALL_ME.format(marker=marker) + "import os, time\nos.write(4, b'!')\ntime.sleep(600)"
    supervisor = SUPERVISOR.format(sandbox=sandbox, script=script, then=then)
    root = Path(__file__).parents[3]
    with subprocess.Popen(
        [sys.executable, "-c", supervisor], stdout=subprocess.PIPE, cwd=root
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        assert processes_named(marker)
        process.send_signal(signal.SIGKILL)
    assert_nothing_is_left(marker)
