"""The same stages by HolisticTraceAnalysis, with its own Python: ``hta_inside.py FILE``.

Of its two call graphs, the one that can do more of the files, which is also the faster.
"""

from __future__ import annotations

import json
import logging
import resource
import sys
import time
import warnings
from typing import Any

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)


def main(path: str) -> dict[str, Any]:
    """Return seconds, without imports, and the process's peak of memory."""
    from hta.common.call_stack import CallGraph  # type: ignore[import-not-found]
    from hta.common.trace import Trace  # type: ignore[import-not-found]

    start, processor = time.perf_counter(), time.process_time()
    try:
        trace = Trace(trace_files={0: path}, trace_dir="/")
        trace.parse_traces(use_multiprocessing=False)
        trace.decode_symbol_ids(use_shorten_name=False)
        read = time.perf_counter()
        CallGraph(trace)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:300]}
    end = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    return {
        "seconds": end - start,
        "read_seconds": read - start,
        "cpu_seconds": time.process_time() - processor,
        "peak_mb": peak,
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
