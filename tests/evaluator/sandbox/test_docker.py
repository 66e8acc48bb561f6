"""What is Docker's alone: it fails closed, says why, and leaves no container behind."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker as sdk
import pytest

from evaluator.errors import SandboxUnavailable
from evaluator.sandbox import SandboxSpec, docker
from evaluator.sandbox.daemon import why_unfit
from evaluator.sandbox.docker import DockerSandbox
from evaluator.sandbox.docker_options import image_archive
from tests import samples
from tests.builders import make_problem, save_problem
from tests.evaluator.sandbox.inside import run, started, wait_for_the_end

ABLE = {
    "MemoryLimit": True,
    "SwapLimit": True,
    "PidsLimit": True,
    "SecurityOptions": ["name=seccomp,profile=default"],
    "Runtimes": {"runc": {}},
}


def test_an_address_where_nobody_answers_is_told_with_the_command(tmp_path: Path) -> None:
    with pytest.raises(SandboxUnavailable, match=r"nothing was run.*systemctl start docker"):
        DockerSandbox(f"unix://{tmp_path}/socket")


def test_a_daemon_on_another_machine_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://192.0.2.1:2376")
    with pytest.raises(SandboxUnavailable, match=r"DOCKER_HOST=unix:///var/run/docker\.sock"):
        DockerSandbox()


def test_without_the_sdk_its_name_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)
    with pytest.raises(SandboxUnavailable, match=r"SDK for Python.*pip install docker"):
        DockerSandbox()


@pytest.mark.parametrize(
    ("lacking", "words"),
    [
        ({"MemoryLimit": False}, "limits on memory"),
        ({"SwapLimit": False}, "swapaccount=1"),
        ({"PidsLimit": False}, "limits on processes"),
        ({"SecurityOptions": ["name=apparmor"]}, "seccomp"),
    ],
)
def test_a_daemon_that_cannot_limit_is_not_used(lacking: dict[str, Any], words: str) -> None:
    assert why_unfit(ABLE, None) == ""
    assert words in why_unfit(ABLE | lacking, None)


def test_a_runtime_that_the_daemon_does_not_know_is_told() -> None:
    assert "runsc install" in why_unfit(ABLE, "runsc")


def test_the_image_is_the_same_each_time() -> None:
    assert image_archive() == image_archive()


def assert_no_container_is_left(address: str) -> None:
    client = sdk.APIClient(base_url=address, version="auto")
    deadline = time.monotonic() + 5
    while client.containers(all=True):  # the daemon removes one after it has told its end
        assert time.monotonic() < deadline
        time.sleep(0.02)


Change = Callable[[dict[str, Any]], object]


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda config: config["HostConfig"].pop("CapDrop"), "CapBnd"),
        (lambda config: config["HostConfig"].update(ReadonlyRootfs=False), "/ is writable"),
        (lambda config: config["HostConfig"]["SecurityOpt"].pop(0), "NoNewPrivs"),
        (lambda config: config["HostConfig"].update(SecurityOpt=["seccomp=unconfined"]), "Seccomp"),
        (lambda config: config.update(User="0:0"), "it runs as user 0"),
        (lambda config: config["HostConfig"]["Mounts"][0].pop("ReadOnly"), "is writable"),
    ],
    ids=["capabilities", "root", "privileges", "filter", "user", "bind"],
)
def test_what_the_daemon_did_not_do_is_seen_from_inside(
    engine: str, monkeypatch: pytest.MonkeyPatch, change: Change, complaint: str
) -> None:
    def without_it(*arguments: Any, **options: Any) -> dict[str, Any]:
        config = original(*arguments, **options)
        change(config)
        return config

    original = docker.container_config
    monkeypatch.setattr(docker, "container_config", without_it)
    with pytest.raises(SandboxUnavailable, match=complaint):
        DockerSandbox(engine).start(SandboxSpec(argv=["/bin/true"]))
    assert_no_container_is_left(engine)


@pytest.mark.sandbox
def test_an_option_that_the_daemon_changed_stops_everything(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forget(self: sdk.APIClient, config: dict[str, Any], *more: Any) -> Any:
        forgetful = {**config, "HostConfig": {**config["HostConfig"], "PidsLimit": None}}
        return create(self, forgetful, *more)

    create = sdk.APIClient.create_container_from_config
    monkeypatch.setattr(sdk.APIClient, "create_container_from_config", forget)
    with pytest.raises(SandboxUnavailable, match="does not honour PidsLimit"):
        DockerSandbox(engine).start(SandboxSpec(argv=["/bin/true"]))
    assert_no_container_is_left(engine)


@pytest.mark.sandbox
@pytest.mark.skipif(any(Path("/dev").glob("nvidia*")), reason="there is a GPU")
def test_a_gpu_without_nvidias_toolkit_is_told_with_the_command(engine: str) -> None:
    with pytest.raises(SandboxUnavailable, match=r"apt-get install nvidia-container-toolkit"):
        DockerSandbox(engine).start(SandboxSpec(argv=["/bin/true"], gpu=True))
    assert_no_container_is_left(engine)


@pytest.mark.sandbox
def test_a_container_that_the_daemon_loses_is_no_longer_alive(engine: str) -> None:
    with started(DockerSandbox(engine), "answer(1)\nsys.stdin.read()\nos.read(3, 1)") as process:
        assert process.replies.read(1) == b"1"
        client = sdk.APIClient(base_url=engine, version="auto")
        (container,) = client.containers()
        client.remove_container(container["Id"], force=True)
        assert process.replies.read() == b""
        wait_for_the_end(process, seconds=5)
        assert process.exit_reason() == "ended by SIGKILL"


@pytest.mark.sandbox
@pytest.mark.skipif(shutil.which("runsc") is None, reason="no runsc (apt-get install runsc)")
def test_in_gvisor_a_program_has_another_kernel_and_the_same_walls(engine: str) -> None:
    sandbox = DockerSandbox(engine, runtime="runsc")
    outcome = run(
        sandbox,
        "import socket\n"
        "answer([os.uname().release, os.getuid() > 0, attempt(lambda: open('/usr/planted', 'w')),"
        " attempt(lambda: socket.create_connection(('192.0.2.1', 80), 2)), os.listdir('/tmp')])",
    )
    release, unprivileged, written, connected, listing = outcome.answer
    assert release != os.uname().release
    assert (unprivileged, connected, listing) == (True, "OSError", ["home"])
    assert written in ("OSError", "PermissionError")
    assert sandbox.name == "docker:runsc"


@pytest.mark.sandbox
def test_an_honest_candidate_is_judged_in_containers_as_it_is_elsewhere(
    engine: str, tmp_path: Path
) -> None:
    """The same run in the default sandbox is in ``tests/cli/test_evaluate.py``."""
    problem = save_problem(make_problem("rotary"), tmp_path / "problem")
    candidate = tmp_path / "candidate.py"
    candidate.write_text(samples.ROTARY_CPP)
    program = [sys.executable, "-P", "-c", "from cli.main import main; main()", "evaluate"]
    done = subprocess.run(
        [*program, problem, candidate, "--json", "--no-compiled", "--sandbox", "docker"],
        env={**os.environ, "DOCKER_HOST": engine},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    record = json.loads(done.stdout)
    assert record["environment"]["sandbox"] == "docker"
    # A busy machine gives no number, here as elsewhere; that is not what this is about.
    answers = (done.returncode, record["status"])
    assert answers in ((0, "ok"), (3, "machine_unfit")), (done.stderr, record["message"])
    assert all(workload["passed"] for workload in record["correctness"])
    assert_no_container_is_left(engine)
