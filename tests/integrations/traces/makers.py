"""Small traces, built event by event; times in microseconds."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

Event = dict[str, Any]
HOST, DEVICE, STREAM = 100, 0, 7


def x(cat: str, name: str, ts: float, dur: float, **args: Any) -> Event:
    """A complete event on the host."""
    return {
        "ph": "X", "cat": cat, "name": name, "pid": HOST, "tid": HOST, "ts": ts, "dur": dur,
        "args": args,
    }  # fmt: skip


def frame(name: str, ts: float, dur: float, **args: Any) -> Event:
    return x("python_function", name, ts, dur, **args)


def kernel(name: str, ts: float, dur: float, correlation: int | None, **args: Any) -> Event:
    event = x("kernel", name, ts, dur, correlation=correlation, **args)
    return event | {"pid": args.pop("device", DEVICE), "tid": STREAM}


def launch(ts: float, correlation: int, name: str = "cudaLaunchKernel", **args: Any) -> Event:
    cat = "cuda_driver" if name.startswith("cu") and name[2].isupper() else "cuda_runtime"
    return x(cat, name, ts, 1.0, correlation=correlation, **args)


def op(name: str, ts: float, dur: float, **args: Any) -> Event:
    return x("cpu_op", name, ts, dur, **args)


def shaped(name: str, ts: float, dur: float, dims: list[Any], types: list[str]) -> Event:
    return op(name, ts, dur, **{"Input Dims": dims, "Input type": types})


def document(events: list[Event], **metadata: Any) -> dict[str, Any]:
    return {"schemaVersion": 1, **metadata, "traceEvents": events}


def write(path: Path, events: list[Event] | str, **metadata: Any) -> Path:
    """Write events, or a text as it is; packed where the name ends in .gz."""
    text = events if isinstance(events, str) else json.dumps(document(events, **metadata))
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def one_call(start: float = 0.0, correlation: int = 1, function: str = "work") -> list[Event]:
    """A function of ``pkg/mod.py`` that launches one kernel of 10 us."""
    return [
        frame(f"pkg/mod.py(1): {function}", start, 50),
        shaped("aten::add", start + 10, 20, [[8, 4], [8, 4]], ["float", "float"]),
        launch(start + 15, correlation),
        kernel("void at::native::add_kernel()", start + 100, 10, correlation),
    ]
