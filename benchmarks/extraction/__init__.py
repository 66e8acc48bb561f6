"""``ksmith bench extraction``: 25 functions of published engines, extracted, run and compared.

Each target is extracted as a user would, and its reference is run on the CPU beside the
repository's own function, which another sandbox imports with stand-ins for the packages that
are missing (``integrations/probe/originals.py``). Both draw the same inputs from the same
seeds; outputs and arguments after the call must be the same bits, or within what the type can
tell apart. Some are compared with a reference written by hand as well. Two targets draw random
numbers, and are right to be refused.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from benchmarks.extraction.comparison import Likeness, compare, original_source, written_source
from benchmarks.extraction.targets import BenchTarget, Folder, read_targets
from benchmarks.result import BenchmarkResult, Figure
from evaluator import machine
from evaluator.errors import EvaluatorError
from integrations.errors import IntegrationError, Refused
from integrations.extraction.machines import Machine

MACHINE = "cpu"


def run_extraction(
    repositories: Path, *, only: tuple[str, ...] = (), say: Callable[[str], None]
) -> BenchmarkResult:
    """Extract and compare every target, or those named in ``only``.

    Args:
        repositories: holds what ``scripts/real_repos.sh extraction`` unpacks.
        only: names of targets; all where there are none.
        say: told what becomes of each, one line.
    """
    folders, targets = read_targets()
    chosen = [t for t in targets if not only or t.name in only]
    rows = {}
    for target in chosen:
        rows[target.name] = _row(target, folders[target.repository], repositories)
        say(f"{target.name}: {_told(rows[target.name])}")
    return BenchmarkResult.create(
        "extraction",
        figures=figures(rows),
        versions={"torch": machine.package_version("torch") or "absent"},
        machines={MACHINE: {"cpu": machine.cpu_model()}},
        details={"targets": rows, "repositories": {n: f.origin for n, f in folders.items()}},
    )


def figures(rows: dict[str, dict[str, Any]]) -> list[Figure]:
    """Count the targets by what became of them; a target that was not there counts as none."""
    there = [r for r in rows.values() if "absent" not in r]
    counts = Counter[str]()
    for row in there:
        counts["extracted"] += row["extracted"]
        counts["equal_to_original"] += row.get("original", {}).get("equal", False)
        counts["bitwise_equal_to_original"] += row.get("original", {}).get("bitwise", False)
        counts["equal_to_hand_written"] += row.get("written", {}).get("equal", False)
        counts["refused_rightly"] += row.get("refused_rightly", False)
    bars = {"extracted": "at least 23 of 25", "equal_to_original": "at least 18 of 25"}
    named = {"targets_total": len(there)} | {
        name: counts[name]
        for name in (
            "extracted",
            "equal_to_original",
            "bitwise_equal_to_original",
            "equal_to_hand_written",
            "refused_rightly",
        )
    }
    return [
        Figure(name=n, value=v, unit="targets", n=len(there), machine=MACHINE, bar=bars.get(n))
        for n, v in named.items()
    ]


def _row(target: BenchTarget, folder: Folder, repositories: Path) -> dict[str, Any]:
    from evaluator.problem import load_problem
    from integrations.extraction.pipeline import extract

    repo = repositories / folder.folder
    row: dict[str, Any] = {"target": target.target, "repository": target.repository}
    if not repo.is_dir():
        return {**row, "absent": f"{repo}: scripts/real_repos.sh extraction fetches it"}
    with tempfile.TemporaryDirectory(prefix="ksmith-extraction-") as work:
        inputs, output = Path(work) / "workloads.yml", Path(work) / "problem"
        inputs.write_text(yaml.safe_dump(target.inputs), encoding="utf-8")
        try:
            kind = Machine(target.machine)
            problem = extract(target.target, repo, output, workloads=inputs, machine=kind)
        except Refused as error:
            rightly = target.refused is not None and any(target.refused in r for r in error.reasons)
            reasons = list(error.reasons)
            return {**row, "extracted": False, "refused": reasons, "refused_rightly": rightly}
        except (IntegrationError, EvaluatorError) as error:
            return {**row, "extracted": False, "failure": str(error)}
        loaded = load_problem(output)
        row |= {
            "extracted": True,
            "reference_lines": loaded.reference_source.count("\n"),
            "contract": problem.contract.model_dump(mode="json", exclude_defaults=True),
            "assumptions": [f"{a.kind}: {a.detail}" for a in problem.assumptions],
            "upstream_compiled": problem.upstream_compiled,
            "original": compare(loaded, original_source(loaded, target, repo), (repo,)).as_row(),
        }
        if target.written is not None:
            likeness = compare(loaded, written_source(target.written), ())
            row["written"] = likeness.as_row()
    return row


def _told(row: dict[str, Any]) -> str:
    for key in ("absent", "failure"):
        if key in row:
            return str(row[key])
    if not row["extracted"]:
        return f"refused{' rightly' if row['refused_rightly'] else ''}: {row['refused'][0]}"
    return "; ".join(f"{k}: {Likeness(**row[k]).told}" for k in ("original", "written") if k in row)
