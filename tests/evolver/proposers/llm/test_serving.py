"""Starting a model's server: the command, the wait, the ends."""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path

import pytest

from evolver.errors import LlmUnavailable
from evolver.proposers.llm.serving import (
    Server,
    ServerOrder,
    find_program,
    require_gpu,
    server_command,
)

HEALTHY = """
import http.server, os, sys
print(os.getpid(), file=open(sys.argv[1], "w"), flush=True)
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()
    def log_message(self, *_): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[2])), H).serve_forever()
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_the_command_is_vllms_with_our_defaults() -> None:
    order = ServerOrder("Org/Model", served_name="m", gpus=2, extra=("--dtype", "half"))
    command = " ".join(server_command(order, ["vllm"]))
    assert command.startswith("vllm serve Org/Model --host 127.0.0.1 --port 8000")
    for option in (
        "--served-model-name m", "--max-model-len 65536", "--tensor-parallel-size 2",
        "--enable-prefix-caching --dtype half",
    ):  # fmt: skip
        assert option in command


def test_a_server_is_waited_for_and_ended(tmp_path: Path) -> None:
    order = ServerOrder("m", port=free_port())
    command = [sys.executable, "-S", "-c", HEALTHY, str(tmp_path / "pid"), str(order.port)]
    with Server(command) as server:
        server.wait_until_healthy(order, seconds=20)
        pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_server_that_ends_or_is_never_ready_is_told(tmp_path: Path) -> None:
    order = ServerOrder("m", port=free_port())
    with Server(["false"]) as server, pytest.raises(LlmUnavailable, match="ended with status 1"):
        server.wait_until_healthy(order, seconds=20)
    began = time.monotonic()
    with Server(["sleep", "60"]) as server, pytest.raises(LlmUnavailable, match="not ready within"):
        server.wait_until_healthy(order, seconds=0.05)
    assert time.monotonic() - began < 30  # not the 60 s of the server


def test_what_is_missing_is_told_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LlmUnavailable, match=r"no NVIDIA GPU here.*--endpoint URL.*--without-gpu"):
        require_gpu(0, 1)
    with pytest.raises(LlmUnavailable, match="there are 1 here"):
        require_gpu(1, 2)
    require_gpu(2, 2)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(LlmUnavailable, match=r"pip install 'ksmith-bot\[vllm\]'"):
        find_program()
