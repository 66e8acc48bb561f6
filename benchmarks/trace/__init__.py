"""``ksmith bench trace``: what becomes of real profiler traces, and how fast.

Every trace of a folder is read and attributed, the pairs of a replay and its capture joined,
with the checkouts that are there. Time and memory are of fresh processes, imports excluded,
and beside HolisticTraceAnalysis on the same files and stages (reading with correlation, then
call stacks), the two taking turns. A synthetic trace shows what memory grows with.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.result import BenchmarkResult, Figure
from benchmarks.trace.synthetic import write_synthetic
from evaluator import machine
from integrations.traces.attribution import Attributed, Reason
from integrations.traces.columns import Kind
from integrations.traces.errors import TraceError
from integrations.traces.ranking import rank_traces
from integrations.traces.report import HotReport

_ROOT = Path(__file__).resolve().parents[2]
_LARGE = "large_216k.json.gz"
_HTA_LEAST_EVENTS = 10_000
"""Smaller files measure how a process starts."""
_LISTED = 10


@dataclass(frozen=True)
class Sample:
    """A trace with what belongs to it."""

    name: str
    capture: str | None = None
    repository: str | None = None
    """Folder below the checkouts with the sources nearest to the recorded ones."""
    newer: str | None = None
    """Folder with a later version, for what moved sources do."""


_SAMPLES = {
    sample.name: sample
    for sample in (
        Sample(
            "sglang_qwen3_decode.json.gz",
            "sglang_qwen3_decode_capture_bs32.json.gz",
            "traces/sglang",
            "sglang",
        ),
        Sample("vllm_decode_graph.json.gz", "vllm_decode_capture.json.gz", "traces/vllm"),
        Sample("h100_qwen_0.5b.json.gz", repository="traces/transformers"),
        Sample("sglang_qwen3_decode_capture_bs32.json.gz", repository="traces/sglang"),
        Sample("vllm_decode_capture.json.gz", repository="traces/vllm"),
    )
}


@dataclass
class _Counts:
    """Over the traces that were read."""

    kernels: int = 0
    launched: int = 0
    device_us: float = 0.0
    """Of traces with Python frames, like the rest."""
    resolved_us: float = 0.0
    launched_us: float = 0.0


def run_trace(
    traces: Path,
    repos: Path,
    *,
    hta: Path | None,
    repeats: int,
    synthetic_events: int,
    work: Path,
    say: Callable[[str], None],
) -> BenchmarkResult:
    """Read every trace below ``traces`` and measure.

    Args:
        traces: folder with ``*.json`` and ``*.json.gz``.
        repos: holds the checkouts; a missing one leaves its functions unresolved.
        hta: the Python of an environment with HolisticTraceAnalysis; None leaves it out.
        repeats: fresh processes per measurement.
        synthetic_events: size of the synthetic trace, 0 for none.
        work: where that is written, and removed.
        say: told what happens, one line each.

    Raises:
        TraceError: the folder has no traces.
    """
    paths = sorted(p for p in traces.iterdir() if p.name.endswith((".json", ".json.gz")))
    if not paths:
        raise TraceError(f"there are no traces in {traces}; --traces names their folder")
    counts = _Counts()
    details: dict[str, Any] = {"files": {}}
    for path in paths:
        say(f"reading {path.name}")
        details["files"][path.name] = _read(path, traces, repos, counts)
    parsed = sum("error" not in facts for facts in details["files"].values())
    name = f"cpu-{machine.cpu_count()}"
    figures = _counted(counts, len(paths), parsed, name)
    large = traces / _LARGE
    if large.is_file():
        say(f"timing {large.name}")
        figures += _timed(large, repeats, name, details)
    if hta is not None:
        figures += _beside_hta(paths, hta, repeats, name, details, say)
    if synthetic_events:
        figures += _synthetic(synthetic_events, work, name, details, say)
    details["denominators"] = vars(counts)
    return BenchmarkResult.create(
        "trace",
        figures=figures,
        versions={n: machine.package_version(n) or "absent" for n in ("msgspec", "numpy")},
        machines={name: {"name": machine.machine_name(), "cores": machine.cpu_count()}},
        details=details,
    )


def _read(path: Path, traces: Path, repos: Path, counts: _Counts) -> dict[str, Any]:
    """Rank one trace; return what is worth keeping, and add to ``counts``."""
    sample = _SAMPLES.get(path.name, Sample(path.name))
    captures = [traces / sample.capture] if sample.capture else []
    repository = repos / sample.repository if sample.repository else None
    if repository is not None and not repository.is_dir():
        repository = None

    def count(found: Attributed) -> None:
        is_kernel = found.trace.kind[found.rows] == Kind.KERNEL
        launched = [p.reason is not Reason.NO_LAUNCH for p in found.places]
        counts.kernels += int(is_kernel.sum())
        counts.launched += int((is_kernel & launched).sum())
        if found.side.has_stack and found.on_device:
            durations = found.trace.duration_us[found.rows]
            counts.device_us += float(durations.sum())
            counts.launched_us += float(durations[launched].sum())

    before = counts.device_us
    try:
        report = rank_traces([path], repository=repository, captures=captures, each=count)
    except TraceError as error:
        return {"error": str(error)}
    if counts.device_us > before:
        counts.resolved_us += report.resolved_us
    facts = _facts(report)
    newer = repos / sample.newer if sample.newer else None
    if newer is not None and newer.is_dir():
        moved = rank_traces([path], repository=newer, captures=captures)
        facts["newer_checkout"] = _facts(moved)
    return facts


def _facts(report: HotReport) -> dict[str, Any]:
    (trace,) = report.traces
    share = report.resolved_us / report.device_us if report.device_us else 0.0
    return {
        "events": trace.events,
        "pieces": trace.kernels,
        "launched": trace.launched,
        "device_ms": round(report.device_us / 1e3, 3),
        "attributed_percent": round(100 * (1 - report.unattributed_share), 2),
        "resolved_percent": round(100 * share, 2),
        "unattributed": {p.name: p.count for p in report.unattributed},
        "replays_joined": trace.replays_joined,
        "replay_agreement": trace.replay_agreement,
        "repository": Path(report.repository).name if report.repository else None,
        "disagreement": report.disagreement.model_dump() if report.disagreement else None,
        "targets": [
            {"target": t.target, "score": round(t.score.value, 2), "found": t.found.value}
            for t in report.targets[:_LISTED]
        ],
    }


def _counted(counts: _Counts, total: int, parsed: int, name: str) -> list[Figure]:
    figures = [
        Figure(name="traces_total", value=total, unit="traces", machine=name),
        Figure(name="traces_parsed", value=parsed, unit="traces", machine=name, bar=f">= {total}"),
    ]
    if counts.kernels:
        launched = 100 * counts.launched / counts.kernels
        figures.append(
            Figure(
                name="launch_attributed_percent", value=launched, unit="%", n=counts.kernels,
                machine=name,
            )
        )  # fmt: skip
    if counts.device_us:
        for figure, whole in (
            ("resolved_device_time_percent", counts.device_us),
            ("resolved_of_launched_percent", counts.launched_us),
        ):
            value = min(100.0, 100 * counts.resolved_us / whole)
            figures.append(Figure(name=figure, value=value, unit="%", machine=name))
    return figures


def _timed(path: Path, repeats: int, name: str, details: dict[str, Any]) -> list[Figure]:
    rows = [_ours("rank", path) for _ in range(repeats)]
    details["large"] = rows
    seconds = [row["seconds"] for row in rows]
    peaks = [row["peak_mb"] for row in rows]
    return [
        Figure(
            name="seconds_216k", value=statistics.median(seconds), low=min(seconds),
            high=max(seconds), unit="s", n=repeats, machine=name, bar="< 3",
        ),
        Figure(
            name="peak_mb_216k", value=max(peaks), unit="MB", n=repeats, machine=name, bar="< 600"
        ),
    ]  # fmt: skip


def _beside_hta(
    paths: Sequence[Path],
    hta: Path,
    repeats: int,
    name: str,
    details: dict[str, Any],
    say: Callable[[str], None],
) -> list[Figure]:
    """Total time of both over the larger files that HTA can do, and the ratio of each file."""
    rows: dict[str, dict[str, Any]] = {}
    for path in paths:
        events = details["files"][path.name].get("events", 0)
        if events < _HTA_LEAST_EVENTS:
            continue
        say(f"HolisticTraceAnalysis beside ours: {path.name}")
        theirs, ours = [], []
        for _ in range(repeats):
            theirs.append(
                _run(
                    [str(hta), str(Path(__file__).with_name("hta_inside.py")), str(path.resolve())]
                )
            )
            ours.append(_ours("attribute", path))
        failed = next((row["error"] for row in theirs if "error" in row), None)
        rows[path.name] = {"ours": ours, "hta": theirs, "hta_failed": failed}
        if failed is None:
            mine, other = (statistics.median(r["seconds"] for r in side) for side in (ours, theirs))
            rows[path.name] |= {"ours_seconds": mine, "hta_seconds": other, "ratio": other / mine}
    details["hta"] = rows
    ratios = [row["ratio"] for row in rows.values() if "ratio" in row]
    if not ratios:
        return []
    value = math.exp(statistics.fmean(math.log(r) for r in ratios))
    memory = [
        max(r["peak_mb"] for r in row["hta"]) / max(r["peak_mb"] for r in row["ours"])
        for row in rows.values()
        if "ratio" in row
    ]
    return [
        Figure(
            name="vs_hta_ratio", value=value, low=min(ratios), high=max(ratios), unit="x",
            n=len(ratios), machine=name, bar=">= 5",
        ),
        Figure(
            name="vs_hta_memory_ratio", value=statistics.geometric_mean(memory), unit="x",
            n=len(memory), machine=name,
        ),
    ]  # fmt: skip


def _synthetic(
    events: int, work: Path, name: str, details: dict[str, Any], say: Callable[[str], None]
) -> list[Figure]:
    work.mkdir(parents=True, exist_ok=True)
    path = work / "synthetic.json"
    say(f"writing a synthetic trace of {events:,} events")
    try:
        write_synthetic(path, events)
        size = path.stat().st_size
        say(f"reading its {size / 1e9:.2f} GB")
        row = _ours("rank", path)
    finally:
        path.unlink(missing_ok=True)
    details["synthetic"] = row | {"events": events, "bytes": size}
    return [
        Figure(name="synthetic_events", value=events, unit="events", machine=name),
        Figure(name="synthetic_seconds", value=row["seconds"], unit="s", n=1, machine=name),
        Figure(name="synthetic_peak_mb", value=row["peak_mb"], unit="MB", n=1, machine=name),
        Figure(
            name="synthetic_peak_share", value=row["peak_mb"] * 1e6 / size, unit="of the file",
            machine=name,
        ),
    ]  # fmt: skip


def _ours(what: str, path: Path) -> dict[str, Any]:
    return _run([sys.executable, "-P", "-m", "benchmarks.trace.inside", what, str(path)])


def _run(command: list[str]) -> dict[str, Any]:
    """Run one measurement in a fresh process and return its last line's JSON."""
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    try:
        found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        return {"error": f"status {done.returncode}: {done.stderr.strip()[-500:]}"}
    return found
