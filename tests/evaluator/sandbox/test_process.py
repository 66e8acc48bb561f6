"""How a running sandbox is talked to, how it ends, and that it leaves nothing behind."""

from __future__ import annotations

import os
import sys
import threading
import time

import psutil
import pytest

from evaluator.errors import SandboxUnavailable
from evaluator.sandbox import Sandbox, SandboxedProcess, SandboxSpec
from tests.evaluator.sandbox.inside import run, started, wait_for_the_end

pytestmark = pytest.mark.sandbox

ECHO = (
    "requests, replies = os.fdopen(3, 'rb'), os.fdopen(4, 'wb')\n"
    "for line in requests:\n"
    "    replies.write(line.upper())\n"
    "    replies.flush()\n"
)


def test_requests_and_replies_travel_apart_from_the_log(sandbox: Sandbox) -> None:
    with started(sandbox, "print('a note', flush=True)\n" + ECHO) as process:
        for word in (b"one", b"two"):
            process.requests.write(word + b"\n")
            process.requests.flush()
            assert process.replies.readline() == word.upper() + b"\n"
        assert process.log_tail() == "a note\n"


def test_large_messages_pass_whole(sandbox: Sandbox) -> None:
    size = 20 << 20
    with started(sandbox, f"os.fdopen(4, 'wb').write(os.fdopen(3, 'rb').read({size}))") as process:
        payload = os.urandom(1 << 20) * 20
        writer = threading.Thread(target=process.requests.write, args=(payload,))
        writer.start()
        assert process.replies.read(size) == payload
        writer.join()


def test_the_end_of_the_program_ends_the_replies(sandbox: Sandbox) -> None:
    with started(sandbox, "answer(1)\nos._exit(3)") as process:
        assert process.replies.read() == b"1"
        wait_for_the_end(process, seconds=5)
        assert process.exit_reason() == "exited with status 3"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("pass", "exited with status 0"),
        ("sys.exit(7)", "exited with status 7"),
        ("import ctypes; ctypes.string_at(0)", "ended by SIGSEGV"),
        ("os.kill(os.getpid(), 15)", "ended by SIGTERM"),
        ("os.abort()", "ended by SIGABRT"),
    ],
)
def test_the_reason_of_the_end_is_told(sandbox: Sandbox, script: str, reason: str) -> None:
    assert run(sandbox, script).reason == reason


def test_a_running_process_has_no_reason_and_a_killed_one_says_who(sandbox: Sandbox) -> None:
    with started(sandbox, ECHO) as process:
        assert process.alive()
        assert process.exit_reason() == ""
        process.kill()
        process.kill()
        assert not process.alive()
        assert process.exit_reason() == "stopped by the supervisor"


def test_the_log_survives_the_kill_and_bad_bytes(sandbox: Sandbox) -> None:
    with started(sandbox, "os.write(1, b'caf\\xe9 ' + b'z' * 10)\nanswer(1)\n" + ECHO) as process:
        assert process.replies.read(1) == b"1"
        process.kill()
        assert process.log_tail() == "caf� zzzzzzzzzz"
        assert process.log_tail(size_bytes=3) == "zzz"


def test_a_program_that_does_not_exist_inside_is_refused_by_name(sandbox: Sandbox) -> None:
    with pytest.raises(SandboxUnavailable, match=r"cannot start /nowhere/python.*No such file"):
        sandbox.start(SandboxSpec(argv=["/nowhere/python"]))


def test_a_bind_that_does_not_exist_is_refused_and_named(sandbox: Sandbox, tmp_path) -> None:
    spec = SandboxSpec(argv=[sys.executable], read_only={tmp_path / "absent": "/input"})
    with pytest.raises(SandboxUnavailable, match="absent"):
        sandbox.start(spec)


def test_a_kill_wakes_a_thread_that_waits_for_a_reply(sandbox: Sandbox) -> None:
    with started(sandbox, ECHO) as process:
        heard: list[bytes] = []
        reader = threading.Thread(target=lambda: heard.append(process.replies.read()))
        reader.start()
        time.sleep(0.1)
        process.kill()
        reader.join(5)
        assert heard == [b""]


def test_a_sandbox_outlives_the_thread_that_asked_for_it(sandbox: Sandbox) -> None:
    processes: list[SandboxedProcess] = []
    spec = SandboxSpec(argv=[sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"])
    thread = threading.Thread(target=lambda: processes.append(sandbox.start(spec)))
    thread.start()
    thread.join()
    time.sleep(0.3)
    assert processes[0].alive()
    processes[0].kill()


def test_many_starts_leave_no_descriptor_no_zombie_and_no_thread(sandbox: Sandbox) -> None:
    def start_in_every_way(times: int) -> None:
        for _ in range(times):
            run(sandbox, "answer(1)")
            with started(sandbox, ECHO) as process:
                process.requests.write(b"never read")
            with pytest.raises(SandboxUnavailable):
                sandbox.start(SandboxSpec(argv=["/nowhere"]))

    start_in_every_way(3)  # a client of Docker's keeps some connections, not more and more
    us = psutil.Process()
    before = us.num_fds(), us.children(recursive=True), threading.active_count()
    start_in_every_way(5)
    after = us.num_fds(), us.children(recursive=True), threading.active_count()
    assert after == before


def test_a_process_that_nobody_kills_is_reaped_all_the_same(sandbox: Sandbox) -> None:
    run(sandbox, "pass")  # what serves all programs is there from the first on
    before = psutil.Process().children(recursive=True)
    process = sandbox.start(SandboxSpec(argv=["/bin/true"]))
    deadline = time.monotonic() + 5
    while process.alive() or psutil.Process().children(recursive=True) != before:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.kill()
