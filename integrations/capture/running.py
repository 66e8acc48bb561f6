"""``ksmith capture``: run a command, watch a function, write its workloads file."""

from __future__ import annotations

import ast
import json
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from evaluator.records import Record
from integrations.capture.choosing import Chosen, choose, of_one_kind
from integrations.capture.describing import arguments_of, file_name, reasons_against
from integrations.capture.seen import (
    CaptureFailed,
    Form,
    Process,
    SeenTensor,
    merged,
    read_processes,
)
from integrations.capture.writing import workloads_text
from integrations.errors import OutputExists, Refused
from integrations.extraction.closure import close_over
from integrations.extraction.construction import has_own_constructor
from integrations.extraction.machines import Machine
from integrations.extraction.resolution import Resolver
from integrations.extraction.source import SourceTree
from integrations.extraction.target import Target, find_target, triton_decorator
from integrations.injection import CommandEnd, Environment, run_here, run_in_sandbox

_NOT_SEEN = (
    "Not seen: calls before the file is imported, of the file run as a script (use `python -m`), "
    "by torch.jit.script, and by `python -I`, `-S` or `-E`."
)
Run = Callable[[Environment, Path], CommandEnd]


@dataclass(frozen=True)
class CaptureSettings:
    """How much to keep."""

    most: int = 8
    """Workloads."""
    most_bytes: int = 2 << 30
    """Of one workload's tensors together."""


class CapturedWorkload(Record):
    """One workload of the file."""

    name: str
    calls: int
    """That it stands for."""
    shapes: dict[str, tuple[int, ...]]


class LeftOut(Record):
    """Calls of which no workload was made."""

    calls: int
    reasons: tuple[str, ...]


class Captured(Record):
    """What the command showed of the target."""

    target: str
    command: tuple[str, ...]
    status: int | None
    """Exit status of the command; None where it ran out of time."""
    seconds: float
    output: Path
    calls: int
    nested: int
    """Calls within a call, which belong to it."""
    processes: int
    """In which the target was called."""
    workloads: tuple[CapturedWorkload, ...]
    left_out: tuple[LeftOut, ...]
    writes: tuple[str, ...]
    unread: tuple[str, ...]
    """Tensors too large to see whether they are written."""
    aliases: dict[str, str]
    """Argument to the earlier argument whose elements it has."""
    returns: tuple[str | None, ...]
    """For each returned tensor the argument that it is."""
    notes: tuple[str, ...]


def in_sandbox(
    repository: Path, command: Sequence[str], *, seconds: float, threads: int, gpu: bool
) -> Run:
    """How to run ``command`` on a copy of HEAD, with no network."""

    def run(environment: Environment, output: Path) -> CommandEnd:
        return run_in_sandbox(
            repository, command, environment, output, seconds=seconds, threads=threads, gpu=gpu
        )

    return run


def in_place(repository: Path, command: Sequence[str]) -> Run:
    """How to run ``command`` with the user's own environment and rights."""
    return lambda environment, output: run_here(repository, command, environment, output)


def capture(
    target: str,
    repo: Path,
    run: Run,
    output: Path,
    settings: CaptureSettings = CaptureSettings(),
    *,
    force: bool = False,
) -> Captured:
    """Watch ``target`` while ``run`` runs a command, and write the workloads file ``output``.

    Raises:
        TargetError: the target is no definition of the repository.
        Refused: it is no function whose calls begin and end (a generator, a coroutine, a kernel).
        OutputExists: ``output`` is there.
        CaptureFailed: it was never called, or no call can be a workload.
        NotRun: the command cannot be started.
    """
    if output.exists() and not force:
        raise OutputExists(f"{output} is there already; remove it, or replace it with --force")
    root = repo.resolve()
    tree = SourceTree(root)
    resolver = Resolver(tree, Machine.CUDA)
    found = find_target(tree, resolver, target)
    _refuse_unwatchable(found)
    environment = _environment(found, resolver)
    with tempfile.TemporaryDirectory(prefix="ksmith-capture-") as folder:
        end = run(environment, Path(folder))
        processes = read_processes(Path(folder))
    forms = merged(processes)
    if not forms:
        raise CaptureFailed(_why_not_called(found.spelled, end, processes))
    captured, text = _captured(found.spelled, end, processes, forms, output, settings)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(text, encoding="utf-8")
    return captured


def _refuse_unwatchable(target: Target) -> None:
    function = target.function
    inner = [n for s in function.body for n in _own_nodes(s)]
    if triton_decorator(function):
        reason = "it is a Triton kernel, which no call enters as Python; name the function around"
    elif isinstance(function, ast.AsyncFunctionDef):
        reason = "it is a coroutine, whose call ends before it has run"
    elif any(isinstance(n, ast.Yield | ast.YieldFrom) for n in inner):
        reason = "it is a generator, whose call ends before it has run"
    else:
        return
    raise Refused(target.spelled, (reason,))


def _own_nodes(node: ast.AST) -> list[ast.AST]:
    """The nodes below ``node`` that are not of a function within it."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return []
    return [node, *(n for child in ast.iter_child_nodes(node) for n in _own_nodes(child))]


def _environment(target: Target, resolver: Resolver) -> Environment:
    try:
        closure = close_over(target, resolver, {})
        state, holds_modules = closure.state, closure.needs_constructor
    except Refused:  # extraction will say why; what it is called with may interest all the same
        state, holds_modules = [], False
    decorators = {ast.unparse(d) for d in target.function.decorator_list}
    settings = {
        "target": target.spelled,
        "method": target.owner is not None and "staticmethod" not in decorators,
        "state": state,
        "constructor": holds_modules and has_own_constructor(target),
    }

    def variables(out: str) -> Mapping[str, str]:
        # Compiled, a function is not called again; what it is called with is the same.
        compiler_off = {"TORCH_COMPILE_DISABLE": "1"}
        return {"KSMITH_CAPTURE": json.dumps({**settings, "out": out}), **compiler_off}

    return variables


def _why_not_called(target: str, end: CommandEnd, processes: Sequence[Process]) -> str:
    errors = [p.error for p in processes if p.error]
    elsewhere = [p.elsewhere for p in processes if p.elsewhere]
    if any(p.calls for p in processes) and errors:
        why = f"its calls could not be read: {errors[0]}"
    elif any(p.script for p in processes):
        why = "its file is run as a script, where it cannot be watched; run it with `python -m`"
    elif elsewhere:
        why = f"a file of that name was imported from {elsewhere[0]}, not from the repository"
    elif processes:
        why = "its file was imported, and it was never called"
    else:
        why = "no Python process of it imported the file"
    return f"{target} was not called: {end.told}, and {why}. {_NOT_SEEN}{end.tail}"


def _captured(
    target: str,
    end: CommandEnd,
    processes: Sequence[Process],
    forms: Sequence[Form],
    output: Path,
    settings: CaptureSettings,
) -> tuple[Captured, str]:
    reasons = {f.key: reasons_against(f, settings.most_bytes) for f in forms}
    able, others = of_one_kind([f for f in forms if not reasons[f.key]])
    for form in others:
        reasons[form.key] = ["constructed otherwise than most, or with lists of other lengths"]
    left_out = _left_out(forms, reasons, sum(p.beyond for p in processes))
    if not able:
        told = "\n".join(f"  - {r} ({one.calls} calls)" for one in left_out for r in one.reasons)
        raise CaptureFailed(f"{target} was called, but no call can be a workload:\n{told}")
    chosen, notes = choose(able, settings.most), list[str]()
    known: dict[str, SeenTensor] = {}
    for form in able:
        known |= {n: t for n, t in form.tensors.items() if t.sample and n not in known}
    arguments = [arguments_of(c.form, known, notes) for c in chosen]
    if any(f.grad for f in able):
        notes.append("called with gradients, which extraction leaves out")
    notes += [f"a call could not be read: {p.error}" for p in processes if p.error]
    captured = Captured(
        target=target,
        command=end.command,
        status=end.status,
        seconds=end.seconds,
        output=output,
        calls=sum(p.calls for p in processes),
        nested=sum(p.nested for p in processes),
        processes=sum(1 for p in processes if p.calls),
        workloads=tuple(_workload(n, c) for n, c in enumerate(chosen, 1)),
        left_out=left_out,
        writes=_named(f.writes for f in able),
        unread=_named(f.unread for f in able),
        aliases={file_name(n): file_name(o) for f in able for n, (o, _) in f.overlaps.items()},
        returns=tuple(n and file_name(n) for n in chosen[-1].form.returns),
        notes=tuple(dict.fromkeys(notes)),
    )
    text = workloads_text(_head(captured, able), chosen, arguments, captured.writes, captured.notes)
    return captured, text


def _named(names: Iterable[Sequence[str]]) -> tuple[str, ...]:
    return tuple(sorted({file_name(n) for some in names for n in some}))


def _workload(number: int, chosen: Chosen) -> CapturedWorkload:
    shapes = {file_name(n): t.shape for n, t in chosen.form.tensors.items()}
    return CapturedWorkload(name=f"captured-{number}", calls=chosen.calls, shapes=shapes)


def _left_out(
    forms: Sequence[Form], reasons: Mapping[str, list[str]], beyond: int
) -> tuple[LeftOut, ...]:
    calls: dict[tuple[str, ...], int] = {}
    for form in forms:
        if reasons[form.key]:
            told = tuple(reasons[form.key][:10])
            calls[told] = calls.get(told, 0) + form.calls
    if beyond:
        calls[("one of too many different calls to tell of each",)] = beyond
    return tuple(LeftOut(calls=n, reasons=told) for told, n in calls.items())


def _head(captured: Captured, forms: Sequence[Form]) -> list[str]:
    devices = sorted({t.device for f in forms for t in f.tensors.values()})
    left = sum(one.calls for one in captured.left_out)
    lines = [
        # Of the command its program alone: what follows may hold a token.
        f"Workloads of {captured.target}, captured from `{Path(captured.command[0]).name} …`:",
        f"{captured.calls} calls in {captured.processes} process(es) on {', '.join(devices)}; "
        f"{left} left out; the weight is the number of calls that a workload stands for.",
    ]
    if captured.aliases:
        told = ", ".join(f"{n} is in {o}" for n, o in captured.aliases.items())
        lines.append(f"aliases: {told}")
    owned = [f"output {i} is in {n}" for i, n in enumerate(captured.returns) if n]
    return lines + ([f"results: {', '.join(owned)}"] if owned else [])
