"""What a program inside may see and touch of the host: nothing."""

from __future__ import annotations

import errno
import os
import platform
import re
import signal
import socket
import sys
import threading
from pathlib import Path

import pytest

from evaluator.sandbox import Sandbox
from evaluator.sandbox.seccomp import DENIED
from tests.evaluator.sandbox.inside import run, started

pytestmark = pytest.mark.sandbox


def test_a_listener_on_the_hosts_loopback_cannot_be_reached(sandbox: Sandbox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        outcome = run(
            sandbox,
            f"import socket\n"
            f"answer(attempt(lambda: socket.create_connection(('127.0.0.1', {port}), 2)))",
        )
    assert outcome.answer in ("ConnectionRefusedError", "OSError")


def test_the_outside_network_cannot_be_reached(sandbox: Sandbox) -> None:
    outcome = run(
        sandbox,
        "import socket\n"
        "answer([attempt(lambda: socket.create_connection(('192.0.2.1', 80), 2)),"
        " [name for _, name in socket.if_nameindex() if name != 'lo']])",
    )
    assert outcome.answer == ["OSError", []]


def test_an_abstract_socket_of_the_host_cannot_be_reached(sandbox: Sandbox) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0ksmith-test-{os.getpid()}")
        server.listen()
        outcome = run(
            sandbox,
            f"import socket\n"
            f"client = socket.socket(socket.AF_UNIX)\n"
            f"answer(attempt(lambda: client.connect('\\0ksmith-test-{os.getpid()}')))",
        )
    assert outcome.answer == "ConnectionRefusedError"


def test_files_of_the_host_do_not_exist_inside(sandbox: Sandbox, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("token")
    paths = [
        str(secret),
        "/etc/shadow",
        "/sys/kernel",
        "/var/log",
        str(Path(__file__).resolve()),
        str(Path.home() / ".bashrc"),
        str(Path.home() / ".ssh"),
        "/var/run/docker.sock",
    ]
    outcome = run(sandbox, f"answer([p for p in {paths!r} if os.path.lexists(p)])")
    assert outcome.answer == []


def test_the_home_folder_holds_nothing_but_the_way_to_python(sandbox: Sandbox) -> None:
    home = Path.home()
    outcome = run(
        sandbox, f"answer(os.listdir({str(home)!r}) if os.path.exists({str(home)!r}) else [])"
    )
    prefixes = {Path(p).resolve() for p in (sys.prefix, sys.base_prefix)}
    allowed = {p.relative_to(home).parts[0] for p in prefixes if p.is_relative_to(home)}
    assert set(outcome.answer) <= allowed


def test_only_named_files_are_bound_and_only_for_reading(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "shown").mkdir()
    (tmp_path / "shown" / "data").write_text("42")
    (tmp_path / "hidden").write_text("no")
    outcome = run(
        sandbox,
        "answer([open('/input/data').read(), os.listdir('/input'),"
        " attempt(lambda: open('/input/data', 'w')), attempt(lambda: open('/input/new', 'w'))])",
        read_only={tmp_path / "shown": "/input"},
    )
    text, listing, *writes = outcome.answer
    assert (text, listing) == ("42", ["data"])
    assert set(writes) <= {"OSError", "PermissionError"}
    assert (tmp_path / "shown" / "data").read_text() == "42"


def test_nothing_can_be_written_outside_the_scratch_folders(sandbox: Sandbox) -> None:
    places = ["/", "/usr", "/usr/bin", "/etc", "/dev", "/ksmith", sys.prefix, sys.base_prefix]
    outcome = run(
        sandbox,
        f"places = {places!r}\n"
        "answer({p: attempt(lambda: open(p + '/planted', 'w')) for p in places})",
    )
    assert set(outcome.answer.values()) <= {"OSError", "PermissionError", "FileNotFoundError"}
    assert not Path(sys.prefix, "planted").exists()


def _leads_to_the_interpreter() -> list[str]:
    """Names in /tmp on the way to Python itself, where ksmith was installed below /tmp."""
    folders = [Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()]
    return [f.parts[2] for f in folders if f.is_relative_to("/tmp")]


def test_scratch_and_home_are_empty_private_and_writable(sandbox: Sandbox) -> None:
    script = (
        f"shown = {_leads_to_the_interpreter()!r}\n"
        "def use(folder):\n"
        "    before = [n for n in os.listdir(folder) if n != 'home' and n not in shown]\n"
        "    open(folder + '/mine', 'w').write('x')\n"
        "    return before\n"
        "answer([use(f) for f in ('/tmp', '/dev/shm', os.environ['HOME'])] + [os.getcwd()])"
    )
    assert run(sandbox, script).answer == [[], [], [], "/tmp"]
    assert run(sandbox, script).answer == [[], [], [], "/tmp"], "left over from the first"
    assert not Path("/tmp/mine").exists()


def test_the_environment_inside_is_not_ours(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "secret")
    outcome = run(sandbox, "answer(dict(os.environ))", environment={"CHOSEN": "1"})
    assert set(outcome.answer) == {"PATH", "HOME", "TMPDIR", "LANG", "PWD", "CHOSEN"}


def test_no_process_of_the_host_is_visible(sandbox: Sandbox) -> None:
    outcome = run(
        sandbox,
        "pids = [p for p in os.listdir('/proc') if p.isdigit()]\n"
        "try:\n"
        "    variables = open('/proc/1/environ').read().split('\\0')\n"
        "except PermissionError:\n"
        "    variables = []\n"
        "answer([len(pids), [v.split('=')[0] for v in variables if v]])",
    )
    count, variables_of_init = outcome.answer
    assert count <= 3
    # Docker's own init is given these, whatever the program gets.
    assert set(variables_of_init) <= {"PATH", "HOSTNAME", "HOME"}


def test_the_machines_name_and_name_servers_are_not_told(sandbox: Sandbox) -> None:
    outcome = run(
        sandbox,
        "files = ('/etc/hostname', '/etc/resolv.conf', '/etc/hosts')\n"
        "answer([os.uname().nodename, *[open(f).read() for f in files if os.path.exists(f)]])",
    )
    name, *contents = outcome.answer
    assert name == "sandbox"
    servers = re.findall(r"nameserver (\S+)", Path("/etc/resolv.conf").read_text())
    for secret in (socket.gethostname(), *servers):
        assert not any(re.search(rf"\b{re.escape(secret)}\b", text) for text in contents)


def test_the_supervisor_gets_no_signal_from_inside(sandbox: Sandbox) -> None:
    received: list[int] = []
    assert threading.current_thread() is threading.main_thread()
    previous = signal.signal(signal.SIGUSR1, lambda number, _: received.append(number))
    try:
        outcome = run(
            sandbox,
            f"import signal\n"
            f"signal.signal(signal.SIGUSR1, signal.SIG_IGN)\n"
            f"targets = [{os.getpid()}, {os.getppid()}, 0, -1]\n"
            f"answer([attempt(lambda: os.kill(t, signal.SIGUSR1)) for t in targets])",
        )
    finally:
        signal.signal(signal.SIGUSR1, previous)
    assert outcome.answer[:2] == ["ProcessLookupError", "ProcessLookupError"]
    assert received == []


def test_no_capability_and_no_way_to_new_ones(sandbox: Sandbox) -> None:
    outcome = run(
        sandbox,
        "lines = dict(line.split(':\\t', 1) for line in open('/proc/self/status'))\n"
        "names = ('CapInh', 'CapPrm', 'CapEff', 'CapAmb', 'NoNewPrivs', 'Seccomp')\n"
        "answer([int(lines[name], 16) for name in names])",
    )
    assert outcome.answer == [0, 0, 0, 0, 1, 2]


def test_the_user_inside_is_not_root_and_cannot_become_it(sandbox: Sandbox) -> None:
    outcome = run(
        sandbox,
        "answer([os.getuid(), os.geteuid(), os.getgid(), os.getgroups(),"
        " attempt(lambda: os.setuid(0)), attempt(lambda: os.setgroups([0]))])",
    )
    user, effective, group, groups, *escapes = outcome.answer
    assert 0 not in (user, effective, group, *groups)
    assert set(escapes) <= {"PermissionError", "OSError"}  # forbidden, or not even mapped


@pytest.mark.skipif(os.geteuid() != 0, reason="another real user needs root")
def test_sandboxes_side_by_side_run_as_different_users(sandbox: Sandbox) -> None:
    users = {run(sandbox, "answer(os.getuid())", user_slot=slot).answer for slot in range(3)}
    assert len(users) == 3


def test_no_way_into_new_namespaces(sandbox: Sandbox) -> None:
    outcome = run(
        sandbox,
        "import ctypes\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "new_user, new_mount = 0x10000000, 0x00020000\n"
        "answer([libc.unshare(new_user), libc.unshare(new_user | new_mount),"
        " libc.mount(b'none', b'/tmp', b'tmpfs', 0, None),"
        " libc.syscall(56, new_user | 17, 0, 0, 0, 0)])",
    )
    assert outcome.answer == [-1, -1, -1, -1]


def test_the_filter_denies_the_same_calls_in_every_sandbox(sandbox: Sandbox) -> None:
    column = ("x86_64", "aarch64").index(platform.machine())
    numbers = {name: row[column] for name, row in DENIED.items()}
    outcome = run(
        sandbox,
        "import ctypes\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "def refusal(number):\n"
        "    returned = libc.syscall(number, 0, 0, 0, 0, 0, 0)\n"
        "    return ctypes.get_errno() if returned == -1 else 0\n"
        f"answer([{{n: refusal(x) for n, x in {numbers!r}.items()}}, refusal(435)])",
    )
    refusals, clone3 = outcome.answer
    assert {n for n, why in refusals.items() if why != errno.EPERM} == set()
    assert clone3 == errno.ENOSYS


def test_processes_inside_cannot_trace_each_other(sandbox: Sandbox) -> None:
    outcome = run(
        sandbox,
        "import ctypes, signal, time\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    time.sleep(60)\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "attach, buffer = 16, ctypes.create_string_buffer(8)\n"
        "answer([libc.ptrace(attach, pid, 0, 0) for pid in (1, child)])\n"
        "os.kill(child, signal.SIGKILL)",
    )
    assert outcome.answer == [-1, -1]


def test_no_descriptor_of_ours_is_open_inside(sandbox: Sandbox, tmp_path: Path) -> None:
    with (tmp_path / "open").open("w") as ours:
        os.set_inheritable(ours.fileno(), True)
        outcome = run(
            sandbox,
            "listing = {int(n) for n in os.listdir('/proc/self/fd')}\n"
            "answer(sorted(n for n in listing if os.path.exists(f'/proc/self/fd/{n}')))",
        )
    assert outcome.answer == [0, 1, 2, 3, 4]


def test_no_terminal_can_be_reached(sandbox: Sandbox) -> None:
    outcome = run(sandbox, "answer([attempt(lambda: open('/dev/tty')), sys.stdin.read()])")
    assert outcome.answer == ["OSError", ""]


def test_gpu_nodes_are_invisible_unless_asked_for(sandbox: Sandbox) -> None:
    with started(sandbox, "answer([n for n in os.listdir('/dev') if 'nvidia' in n])") as process:
        assert process.replies.read() == b"[]"
