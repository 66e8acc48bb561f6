"""Programs forked from one warm interpreter: what it costs, and what none has of another.

The probes of this folder run over a zygote too; here is what only forks could get wrong.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from evaluator.sandbox.bubblewrap import BubblewrapSandbox
from evaluator.sandbox.seccomp import filter_program
from evaluator.sandbox.zygote import ZygoteSandbox
from tests.evaluator.sandbox.inside import SMALL, needs_forks, run, started
from tests.evaluator.sandbox.test_containment import (
    CALL_ME,
    assert_nothing_is_left,
    processes_named,
)

pytestmark = [pytest.mark.sandbox, needs_forks]

# The programs here run without site-packages; the zygote looks there all the same.
TORCH = f"import sys; sys.path += {sys.path!r}; import torch"
ROOM: dict[str, Any] = {
    "limits": replace(SMALL, memory_bytes=4 << 30),
    "environment": {"OPENBLAS_NUM_THREADS": "1"},  # or numpy starts threads at its import
}

FINGERPRINT = """\
import importlib, resource, signal, torch
answer({
    "environment": dict(os.environ),
    "modules": sorted(sys.modules),
    "paths": sys.path,
    "patched": [torch.relu is torch._C._VariableFunctions.relu, torch.float32.itemsize],
    "grad": torch.is_grad_enabled(),
    "threads": torch.get_num_threads(),
    "drawn": torch.rand(2).tolist(),
    "builtins": repr(len),
    "tmp": sorted(os.listdir("/tmp")),
    "shm": sorted(os.listdir("/dev/shm")),
    "folder": os.getcwd(),
    "mask": os.umask(0),
    "handlers": [str(signal.getsignal(n)) for n in range(1, 32)],
    "limits": [resource.getrlimit(n) for n in range(16)],
    "cores": sorted(os.sched_getaffinity(0)),
    "processes": sorted(p for p in os.listdir("/proc") if p.isdigit()),
    "priority": os.getpriority(os.PRIO_PROCESS, 0),
    "descriptors": [n for n in range(256) if os.path.exists(f"/proc/self/fd/{n}")],
})
"""

POISON = """\
import builtins, resource, signal, time, torch
torch.relu = torch.add = lambda *_: None
torch.rand(3)
torch.set_grad_enabled(False)
torch.set_num_threads(1)
builtins.len = lambda _: 0
sys.modules["json.tool"] = sys.modules["os"]
sys.path.insert(0, "/tmp")
os.environ["LD_PRELOAD"] = "/tmp/evil.so"
os.environ["TRITON_CACHE_DIR"] = "/tmp/evil"
for folder in ("/tmp/triton", "/tmp/inductor"):
    os.makedirs(folder)
    open(folder + "/kernel.so", "w").write("evil")
open("/tmp/torch.py", "w").write("evil")
open("/dev/shm/evil", "w").write("evil")
os.chdir("/dev/shm")
os.umask(0o777)
os.nice(5)
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    while True:
        time.sleep(1)
answer("poisoned")
while True:
    time.sleep(1)
"""


@pytest.fixture(scope="module")
def torches() -> Iterator[ZygoteSandbox]:
    """A zygote with torch, for all tests of this file, as for all candidates of a search."""
    sandbox = ZygoteSandbox(BubblewrapSandbox(), preload=TORCH)
    yield sandbox
    assert "forked from a zygote" in sandbox.description
    sandbox.close()


@pytest.fixture
def bare() -> Iterator[ZygoteSandbox]:
    sandbox = ZygoteSandbox(BubblewrapSandbox())
    yield sandbox
    sandbox.close()


def test_what_one_program_poisons_the_next_finds_clean(torches: ZygoteSandbox) -> None:
    clean = run(torches, FINGERPRINT, **ROOM).answer
    with started(torches, POISON, **ROOM, user_slot=1) as poisoner:
        assert poisoner.replies.read(len('"poisoned"')) == b'"poisoned"'
        beside = run(torches, FINGERPRINT, **ROOM).answer
    after = run(torches, FINGERPRINT, **ROOM, user_slot=1).answer
    assert beside == clean
    assert after == clean
    assert clean["patched"] == [True, 4]
    assert clean["tmp"] == ["home"]


def test_torch_is_there_at_once_and_no_device_was_opened(torches: ZygoteSandbox) -> None:
    script = (
        "answer(['torch' in sys.modules])\n"
        "import torch\n"
        "bad_fork = getattr(torch._C, '_cuda_isInBadFork', bool)\n"
        "os.write(4, json.dumps([bad_fork(), torch.cuda.is_initialized()]).encode())"
    )
    with started(torches, script, **ROOM) as process:
        assert process.replies.read() == b"[true][false, false]"


def test_a_forked_program_computes_on_every_thread(torches: ZygoteSandbox) -> None:
    script = (
        "import torch\n"
        "torch.set_num_threads(2)\n"
        "a = torch.ones(300, 300)\n"
        "answer([float((a @ a).sum()), len(os.listdir('/proc/self/task')) > 1])"
    )
    assert run(torches, script, **ROOM).answer == [300.0**3, True]


def test_no_page_that_a_program_writes_is_anothers(torches: ZygoteSandbox) -> None:
    script = "answer([l for l in open('/proc/self/maps') if l.split()[1][1::2] == 'ws'])"
    assert run(torches, script, **ROOM).answer == []


def test_neither_the_zygote_nor_a_sibling_can_be_seen_signalled_or_read(
    torches: ZygoteSandbox,
) -> None:
    script = (
        "import signal\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "seen = sorted(int(p) for p in os.listdir('/proc') if p.isdigit())\n"
        "numbers = [p for p in range(1, 70_000) if p not in seen]\n"
        "reached = [p for p in numbers if attempt(lambda: os.kill(p, 0)) != 'ProcessLookupError']\n"
        "files = ('mem', 'maps', 'environ', 'fd/0', 'cwd/x', 'root/tmp')\n"
        "answer([seen == [1, os.getpid()], os.getppid(), reached,"
        " [attempt(lambda: open(f'/proc/1/{name}').read()) for name in files],"
        " attempt(lambda: os.kill(-1, signal.SIGKILL)), attempt(lambda: os.kill(1, 9))])"
    )
    with started(torches, "import time\nanswer(1)\ntime.sleep(60)", **ROOM) as sibling:
        assert sibling.replies.read(1) == b"1"
        alone, parent, reached, reads, *_ = run(torches, script, **ROOM, user_slot=1).answer
        assert sibling.alive()
    assert (alone, parent, reached) == (True, 1, [])
    assert set(reads) == {"PermissionError"}


def test_siblings_cannot_meet(bare: ZygoteSandbox) -> None:
    serve = (
        "import socket, time\n"
        "server = socket.socket(socket.AF_UNIX)\n"
        "server.bind('\\0meeting')\n"
        "server.listen()\n"
        "answer(1)\n"
        "time.sleep(60)\n"
    )
    meet = (
        "import socket\n"
        "client = socket.socket(socket.AF_UNIX)\n"
        "answer([attempt(lambda: client.connect('\\0meeting')),"
        " attempt(lambda: socket.create_connection(('127.0.0.1', 1), 2)),"
        " attempt(lambda: os.openpty()), os.listdir('/dev/pts'),"
        " attempt(lambda: os.listdir('/dev/mqueue'))])"
    )
    with started(bare, serve) as server:
        assert server.replies.read(1) == b"1"
        connected, looped, terminal, terminals, queues = run(bare, meet, user_slot=1).answer
    assert connected == "ConnectionRefusedError"
    assert looped in ("ConnectionRefusedError", "OSError")
    assert terminal in ("FileNotFoundError", "OSError")
    assert terminals == []
    assert queues == "FileNotFoundError"


def test_many_at_once_are_all_served(bare: ZygoteSandbox) -> None:
    def one(slot: int) -> list[int]:
        return list(run(bare, "answer([os.getuid(), os.getpid()])", user_slot=slot).answer)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(one, range(16)))
    assert {pid for _, pid in answers} == {2}
    assert len({user for user, _ in answers}) == (16 if os.geteuid() == 0 else 1)


def test_each_environment_and_each_bind_has_a_zygote_of_its_own(
    bare: ZygoteSandbox, tmp_path: Path
) -> None:
    shown = tmp_path / "shown"
    shown.mkdir()
    (shown / "data").write_text("42")
    say = "answer([os.environ.get('CHOSEN'), os.path.exists('/input/data')])"
    assert run(bare, say).answer == [None, False]
    assert run(bare, say, environment={"CHOSEN": "1"}).answer == ["1", False]
    assert run(bare, say, read_only={shown: "/input"}).answer == [None, True]
    assert run(bare, say).answer == [None, False]


def test_a_zygote_that_died_is_replaced(bare: ZygoteSandbox) -> None:
    others = psutil.Process().children(recursive=True)
    with started(bare, "import time\nanswer(1)\ntime.sleep(60)") as process:
        assert process.replies.read(1) == b"1"
        ours = psutil.Process().children(recursive=True)
        next(p for p in ours if p not in others and p.name().startswith("python")).kill()
        assert process.replies.read() == b""
    assert run(bare, "answer(2)").answer == 2
    assert "forked from a zygote" in bare.description


def test_closing_ends_the_zygote_and_all_that_it_forked(bare: ZygoteSandbox) -> None:
    before = psutil.Process().children(recursive=True)
    with ExitStack() as stack:
        processes = [
            stack.enter_context(started(bare, "import time\ntime.sleep(60)", user_slot=slot))
            for slot in range(3)
        ]
        bare.close()
        deadline = time.monotonic() + 5
        while any(p.alive() for p in processes) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not any(p.alive() for p in processes)
    assert psutil.Process().children(recursive=True) == before
    assert threading.active_count() <= 3


def test_everything_dies_with_a_supervisor_that_is_killed() -> None:
    marker = f"zygote{os.getpid()}"
    preload = CALL_ME.format(marker=marker)
    supervisor = (
        "import sys, time\n"
        "from evaluator.sandbox import SandboxSpec\n"
        "from evaluator.sandbox.bubblewrap import BubblewrapSandbox\n"
        "from evaluator.sandbox.zygote import ZygoteSandbox\n"
        f"sandbox = ZygoteSandbox(BubblewrapSandbox(), preload={preload!r})\n"
        "inside = [sys.executable, '-c', 'import time; time.sleep(600)']\n"
        "process = sandbox.start(SandboxSpec(argv=inside))\n"
        "print('started', flush=True)\n"
        "time.sleep(600)\n"
    )
    root = Path(__file__).parents[3]
    with subprocess.Popen(
        [sys.executable, "-c", supervisor], stdout=subprocess.PIPE, cwd=root
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        assert len(processes_named(marker)) > 1, "the zygote and the program"
        process.send_signal(signal.SIGKILL)
    assert_nothing_is_left(marker)


FORBID_NAMESPACES = f"""\
import ctypes
class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))
text = bytes.fromhex("{filter_program().hex()}")
ctypes.CDLL(None).prctl(22, 2, ctypes.byref(Program(len(text) // 8, text)), 0, 0)
"""


@pytest.mark.parametrize(
    ("preload", "why"),
    [
        pytest.param(FORBID_NAMESPACES, "Operation not permitted", id="no namespaces"),
        pytest.param(
            "import threading, time\n"
            "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
            "left 2 threads",
            id="threads",
        ),
        pytest.param(
            "import mmap, sys\nsys.shared = mmap.mmap(-1, 4096)",
            "memory that forks would share",
            id="shared memory",
        ),
        pytest.param("raise OSError('no torch')", "OSError: no torch", id="failed import"),
    ],
)
def test_where_nothing_can_be_forked_each_program_has_a_sandbox_of_its_own(
    preload: str, why: str
) -> None:
    others = psutil.Process().children(recursive=True)
    sandbox = ZygoteSandbox(BubblewrapSandbox(), preload=preload)
    state = "answer([int(open('/proc/self/status').read().split('Seccomp:')[1].split()[0])])"
    for _ in range(2):
        assert run(sandbox, state).answer == [2]
    assert "not forked" in sandbox.description
    assert why in sandbox.description
    assert psutil.Process().children(recursive=True) == others
