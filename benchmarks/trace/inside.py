"""One measurement of ours in a fresh process: ``inside.py rank|attribute FILE``; prints JSON."""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

from integrations.traces.attribution import Functions, attribute
from integrations.traces.columns import read_trace
from integrations.traces.frames import WithoutSource
from integrations.traces.ranking import rank_traces


def main(what: str, path: Path) -> dict[str, float]:
    """Return seconds, without imports, and the process's peak of memory."""
    start, processor = time.perf_counter(), time.process_time()
    if what == "rank":
        rank_traces([path])
        read = time.perf_counter()
    else:
        trace = read_trace(path)
        read = time.perf_counter()
        attribute(trace, WithoutSource(), Functions())
    end = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    return {
        "seconds": end - start,
        "read_seconds": read - start,
        "cpu_seconds": time.process_time() - processor,
        "peak_mb": peak,
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]))))
