"""A scripted OpenAI-compatible server with faults, and builders of conversations with it.

Each request is answered by the next step of the script, the last one again and again. A step
is a function of the handler: ``say`` answers as a model would, the others as servers do that
are broken, busy or another kind of server altogether.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from evaluator.candidate import BackendName
from evaluator.problem import LoadedProblem
from evolver.proposers.base import Attempt, ProposalContext
from evolver.proposers.llm import LlmConfig, LlmProposer, ModelConfig
from tests.builders import make_candidate, make_evaluation, make_problem

Step = Callable[["Handler"], None]
BODY = "def rms_norm(x, residual, weight, eps):\n    return native.fused(x), residual\n"


@dataclass
class Scripted:
    """The server's script, and what it was asked."""

    steps: list[Step]
    listing: Any = None
    """The answer to ``GET /v1/models``; None is an error 500."""
    requests: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""
    released: threading.Event = field(default_factory=threading.Event)
    """Set at the end, so that nothing stalls longer than its test."""

    def next(self, request: dict[str, Any]) -> Step:
        self.requests.append(request)
        return self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]

    def prompt(self, number: int = 0) -> str:
        """All that the model was told in a request."""
        return "\n".join(m["content"] for m in self.requests[number]["messages"])


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    scripted: Scripted

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.close_connection = True
        self.scripted.next(json.loads(body))(self)

    def do_GET(self) -> None:
        self.close_connection = True
        if self.scripted.listing is None:
            self.answer(b"no list", status=500)
        else:
            self.answer(json.dumps(self.scripted.listing).encode())

    def answer(
        self,
        body: bytes,
        *,
        status: int = 200,
        kind: str = "application/json",
        promised: int | None = None,
        **headers: str,
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(promised or len(body)))
        self.send_header("Connection", "close")  # or the client may write to what is closing
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Keep the tests' output clean."""


def events(*parts: dict[str, Any], done: bool = True) -> bytes:
    lines = [f"data: {json.dumps(part)}\n\n" for part in parts]
    return "".join(lines + ["data: [DONE]\n\n"] * done).encode()


def chunk(text: str, *, finish: str | None = None, **delta: str) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text, **delta}, "finish_reason": finish}]}


def say(
    text: str,
    *,
    finish: str = "stop",
    usage: tuple[int, int] | None = (100, 20),
    reasoning: str = "",
) -> Step:
    """Answer in a stream, as vLLM does."""
    told = {"prompt_tokens": usage[0], "completion_tokens": usage[1]} if usage else None
    half = len(text) // 2
    body = events(
        chunk("", role="assistant", reasoning_content=reasoning),
        chunk(text[:half]),
        chunk(text[half:]),
        chunk("", finish=finish),
        {"choices": [], "usage": told},
    )
    return lambda handler: handler.answer(body, kind="text/event-stream")


def raw(body: bytes, *, kind: str = "text/html", status: int = 200, **headers: str) -> Step:
    return lambda handler: handler.answer(body, kind=kind, status=status, **headers)


def refuse(status: int, **headers: str) -> Step:
    body = json.dumps({"error": {"message": f"no: {status}", "code": None}}).encode()
    return raw(body, kind="application/json", status=status, **headers)


def cut(text: str) -> Step:
    """Send half a stream, then drop the connection."""
    body = events(chunk(text), done=False)
    return lambda handler: handler.answer(body, kind="text/event-stream", promised=len(body) + 100)


def stall(handler: Handler) -> None:
    """Begin to answer and say nothing more."""
    handler.answer(events(chunk("Let me"), done=False), promised=10_000)
    handler.scripted.released.wait(10)


@contextmanager
def scripted_server(*steps: Step, listing: Any = None) -> Iterator[Scripted]:
    scripted = Scripted(list(steps), listing)
    handler = type("ScriptedHandler", (Handler,), {"scripted": scripted})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads, server.block_on_close = True, False
    scripted.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield scripted
    finally:
        scripted.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


def program(speed: float = 1.9) -> str:
    """A toy candidate that defines the entry."""
    return f"SPEED = {speed!r}\n\n\n{BODY}"


def full(source: str, plan: str = "Fuse both passes.") -> str:
    return f"<plan>\n{plan}\n</plan>\n\n```python\n{source}```\n"


def make_attempt(source: str | None = None, **changes: Any) -> Attempt:
    candidate = make_candidate() if source is None else make_candidate(source)
    return Attempt(candidate, make_evaluation(candidate, **changes))


def make_context(
    parent: Attempt | None = None, *, loaded: LoadedProblem | None = None, **changes: Any
) -> ProposalContext:
    fields: dict[str, Any] = {
        "loaded": loaded or make_problem(),
        "backend": BackendName.CPP,
        "rng": random.Random(changes.pop("seed", 0)),
        "attempt_number": 7,
        "parent": parent,
    }
    return ProposalContext(**{**fields, **changes})


class Clock:
    """Time that passes only in sleep."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def make_config(*urls: str, model: dict[str, Any] | None = None, **changes: Any) -> LlmConfig:
    models = [
        ModelConfig(**{"name": f"model-{n}", "endpoint": url, **(model or {})})
        for n, url in enumerate(urls)
    ]
    return LlmConfig(models=tuple(models), **{"diff_share": 0.0, **changes})


def make_proposer(
    server: Scripted, folder: Path, *, clock: Clock | None = None, **changes: Any
) -> LlmProposer:
    """A proposer that never waits; ``clock`` keeps what it would have slept."""
    clock = clock or Clock()
    return LlmProposer(
        make_config(server.url, **changes),
        folder / "llm.jsonl",
        hardware="CPU: a test's, 2 cores",
        clock=clock,
        sleep=clock.sleep,
    )
