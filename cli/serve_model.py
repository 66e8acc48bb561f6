"""``ksmith serve-model``: a language model behind an endpoint, by vLLM."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated

import typer

from cli.failures import ExitCode


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(name="serve-model")(serve_model)


def serve_model(
    model: Annotated[str, typer.Argument(help="A name on the Hugging Face hub, or a folder.")],
    name: Annotated[str | None, typer.Option(help="What requests call it. Default: MODEL.")] = None,
    host: Annotated[str, typer.Option(help="Others than this machine: 0.0.0.0.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8000,
    context_tokens: Annotated[
        int, typer.Option(min=1024, help="Prompt and reply together.")
    ] = 65_536,
    memory_share: Annotated[
        float, typer.Option(min=0.05, max=1.0, help="Of the GPU's memory.")
    ] = 0.85,
    gpus: Annotated[int, typer.Option(min=1, help="To split the model over.")] = 1,
    wait_seconds: Annotated[float, typer.Option(min=1.0, help="Until it is ready.")] = 1800.0,
    without_gpu: Annotated[
        bool, typer.Option("--without-gpu", help="vLLM here is built for the CPU.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the command.")] = False,
    vllm: Annotated[
        list[str] | None, typer.Option("--vllm", metavar="WORD", help="Passed on; repeatable.")
    ] = None,
) -> None:
    """Serve MODEL for `ksmith optimize --model` until Ctrl-C. Exit 3: it cannot run here."""
    from evaluator.machine import gpus as gpus_here
    from evolver.proposers.llm.serving import (
        Server,
        ServerOrder,
        find_program,
        require_gpu,
        server_command,
    )

    order = ServerOrder(
        model=model,
        served_name=name,
        host=host,
        port=port,
        context_tokens=context_tokens,
        memory_share=memory_share,
        gpus=gpus,
        extra=tuple(vllm or ()),
    )
    if dry_run:
        print(shlex.join(server_command(order, ["vllm"])))
        return
    if not without_gpu:
        require_gpu(len(gpus_here()), gpus)
    command = server_command(order, find_program())
    print(f"starting {shlex.join(command)}", file=sys.stderr)
    with Server(command) as server:
        server.wait_until_healthy(order, seconds=wait_seconds)
        words = ["--model", name or model, "--endpoint", order.endpoint]
        print(f"ready: ksmith optimize PROBLEM {shlex.join(words)}", flush=True)
        code = server.wait()
    raise typer.Exit(ExitCode.DONE if code == 0 else ExitCode.MACHINE_CANNOT)
