"""vLLM's OpenAI-compatible server: its command line, its start, and the wait for its health.

vLLM runs in a process of its own, from an environment of its own if need be: its pins of
torch are not the target repository's. On a GPU that kernels are timed on it must be idle
meanwhile, which it is while the search evaluates.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from evolver.errors import LlmUnavailable

_POLL_SECONDS = 0.2
_PROBE_SECONDS = 5.0
_GRACE_SECONDS = 20.0
_NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class ServerOrder:
    """What is to be served and how; the defaults fit one model and one search."""

    model: str
    """A model's name on the Hugging Face hub, or a folder."""
    served_name: str | None = None
    host: str = "127.0.0.1"
    """This machine alone: the server asks nobody for a key."""
    port: int = 8000
    context_tokens: int = 65_536
    """32K in and 32K out."""
    memory_share: float = 0.85
    """Of the GPU's memory; leave room where kernels run on the same GPU."""
    gpus: int = 1
    """Over which the model is split."""
    extra: tuple[str, ...] = ()
    """Passed on to vLLM as they are."""

    @property
    def endpoint(self) -> str:
        """Where it will answer."""
        return f"http://{self.host}:{self.port}/v1"


def server_command(order: ServerOrder, program: Sequence[str]) -> list[str]:
    """Return the command that starts ``program``, vLLM's own, for ``order``."""
    options: list[tuple[str, object]] = [
        ("--host", order.host),
        ("--port", order.port),
        ("--served-model-name", order.served_name or order.model),
        ("--max-model-len", order.context_tokens),
        ("--gpu-memory-utilization", order.memory_share),
        ("--tensor-parallel-size", order.gpus),
    ]
    words = [str(word) for option in options for word in option]
    # The prompts of a search share their beginning: the system prompt and the reference.
    return [*program, "serve", order.model, *words, "--enable-prefix-caching", *order.extra]


def find_program() -> list[str]:
    """Return how vLLM's command is called here.

    Raises:
        LlmUnavailable: it is not installed.
    """
    beside = Path(sys.executable).with_name("vllm")
    found = str(beside) if beside.exists() else shutil.which("vllm")
    if found is None:
        raise LlmUnavailable(
            "vLLM is not installed here: pip install 'ksmith-bot[vllm]', in an environment of its "
            "own where its torch is not yours; or use any other OpenAI-compatible server with "
            "`ksmith optimize --model NAME --endpoint URL`"
        )
    return [found]


def require_gpu(count: int, wanted: int) -> None:
    """Check that there are GPUs enough.

    Raises:
        LlmUnavailable: there are not; the message says what else can be done.
    """
    if count == 0:
        raise LlmUnavailable(
            "there is no NVIDIA GPU here, and vLLM needs one. Serve the model on a machine that "
            "has one and search with `ksmith optimize --model NAME --endpoint URL`; or, for a "
            "small model, run `transformers serve MODEL` or llama.cpp's server on the CPU; or "
            "give --without-gpu if your vLLM is built for the CPU"
        )
    if count < wanted:
        raise LlmUnavailable(f"--gpus {wanted}: there are {count} here; ask for fewer")


class Server:
    """The running server; a context manager that ends it with all its processes."""

    def __init__(self, command: Sequence[str]) -> None:
        """Start ``command`` in a process group of its own; its output goes where ours goes."""
        self._process = subprocess.Popen(command, start_new_session=True)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait_until_healthy(
        self, order: ServerOrder, *, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Wait until the server says that it is ready.

        Raises:
            LlmUnavailable: it ends, or is not ready in time.
        """
        deadline = clock() + seconds
        url = f"http://{order.host}:{order.port}/health"
        while not _is_healthy(url):
            code = self._process.poll()
            if code is not None:
                raise LlmUnavailable(
                    f"the server ended with status {code} before it was ready; its output above "
                    "says why. Out of memory: lower --context-tokens or raise --gpus; port in "
                    "use: --port"
                )
            if clock() >= deadline:
                raise LlmUnavailable(
                    f"the server was not ready within {seconds:.0f} s (its first start downloads "
                    "the model); give it more with --wait-seconds"
                )
            time.sleep(_POLL_SECONDS)
        if self._process.poll() is not None:
            raise LlmUnavailable(
                f"something else answers at {url}; end it, or serve on another --port"
            )

    def wait(self) -> int:
        """Wait until it ends; return its exit status."""
        return self._process.wait()

    def stop(self) -> None:
        """End the whole process group: politely, then for good."""
        for sent in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, sent)
                self._process.wait(_GRACE_SECONDS)
            except ProcessLookupError:
                break
            except subprocess.TimeoutExpired:
                continue
        self._process.wait()


def _is_healthy(url: str) -> bool:
    try:
        with _NO_PROXY.open(url, timeout=_PROBE_SECONDS) as answer:
            return bool(answer.status == 200)
    except (OSError, ValueError):
        return False
