"""The workloads file to fill in, with everything that the source gives away filled in already."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from integrations.errors import WorkloadsNeeded
from integrations.extraction.hints import Hint

_HEAD = """\
# Workloads of {target}
# Fill in every FIXME, delete what you do not need, then run:
#   {command}
# A shape may name symbols (n, 2 * n); each workload gives them values.
# docs/workloads.md explains every key.
"""


def template_text(
    target: str, hints: list[Hint], command: str, constructor: Mapping[str, object] | None = None
) -> str:
    """Return the file that the user completes."""
    lines = [_HEAD.format(target=target, command=command)]
    if constructor is not None:
        lines.append("constructor:   # what __init__ takes; parameters and buffers follow from it")
        for name, default in constructor.items():
            lines.append(f"  {name}: {'FIXME' if default is None else _scalar(default)}")
    lines.append("arguments:")
    for is_state in (False, True):
        chosen = [h for h in hints if h.is_state is is_state]
        if chosen and is_state:
            lines.append("  # attributes of self")
        for hint in chosen:
            lines += _entry(hint)
    symbols = sorted({s for h in hints for s in h.shape or () if s.isidentifier()} or {"n"})
    for name, held_out, value in (("typical", False, 512), ("odd", True, 37)):
        values = ", ".join(f"{s}: {value}" for s in symbols)
        lines += ["workloads:"] if name == "typical" else []
        lines += [f"  - name: {name}", f"    symbols: {{{values}}}"]
        lines += ["    held_out: true   # not shown to the search"] if held_out else []
    return "\n".join(lines) + "\n"


def _entry(hint: Hint) -> list[str]:
    comment = "  # " + "; ".join(t for t in (hint.annotation, hint.note) if t)
    comment = comment if comment.strip(" #") else ""
    if hint.has_default and not (hint.default is None and _may_be_tensor(hint)):
        return [f"  {hint.name}: {_scalar(hint.default)}{comment}"]
    if hint.looks_scalar:
        return [f"  {hint.name}: FIXME{comment}"]
    shape = ", ".join(hint.shape) if hint.shape else "n, FIXME"
    dtype = hint.dtype or "float32"
    note = "   # or null" if hint.has_default else ""
    return [f"  {hint.name}: {{shape: [{shape}], dtype: {dtype}}}{comment}{note}"]


def _may_be_tensor(hint: Hint) -> bool:
    return "Tensor" in (hint.annotation or "")


def _scalar(value: object) -> str:
    return json.dumps(value)


def ask_for_workloads(
    target: str,
    hints: list[Hint],
    problem: Path,
    repo: Path,
    constructor: Mapping[str, object] | None = None,
) -> WorkloadsNeeded:
    """Write the template beside ``problem``, never over a file; return what to tell the user."""
    path = _free_path(problem.parent / "workloads.yml", problem.name)
    command = f"ksmith extract {target} --repo {repo} -o {problem} --workloads {path}"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("x", encoding="utf-8") as file:
        file.write(template_text(target, hints, command, constructor))
    unknown = [h.name for h in hints if not h.has_default]
    return WorkloadsNeeded(
        f"nothing says what inputs {target} is called with. Fill in {path} "
        f"(shapes and values of {', '.join(unknown) or 'its arguments'}), then run:\n  {command}",
        path,
    )


def _free_path(wanted: Path, problem: str) -> Path:
    candidates = [wanted, wanted.with_name(f"{problem}.workloads.yml")]
    candidates += [wanted.with_name(f"{problem}.workloads.{i}.yml") for i in range(2, 1000)]
    return next(p for p in candidates if not p.exists())
