"""The process inside the sandbox: one request in, then one reply for each line ``next``.

Reads the request, one line of JSON, from file descriptor 3. Each further line asks for the
next reply on 4: ``{"variant": ...}``, ``{"failure": ...}`` for a setting that gave none, at
last ``{"done": true}``. A request for graphs has one ``{"graphs": ...}`` instead of variants.
It computes only when asked, so as not to disturb measurements.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from typing import Any

from .workloads import EmissionFailed, Request, Variant, request_from_json

REQUEST_FD = 3
REPLY_FD = 4


def emit(request: Request) -> Iterator[Variant | EmissionFailed]:
    """The variants for the request's backend.

    Raises:
        EmissionFailed: there are none, for a reason that holds for all.
    """
    if request.backend == "triton":
        from .triton_emission import emit_triton

        return iter(emit_triton(request))
    if request.backend == "cpp":
        from .cpp_emission import emit_cpp

        return iter(emit_cpp(request))
    raise EmissionFailed(f"TorchInductor is not asked for backend {request.backend!r}")


def replies(raw: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The messages that answer the request ``raw``, each computed when it is taken."""
    try:
        request = request_from_json(raw)
        if request.wants_graphs:
            from .graphs import emit_graphs

            yield {"graphs": emit_graphs(request)}
            return
        for result in emit(request):
            if isinstance(result, Variant):
                yield {"variant": dataclasses.asdict(result)}
            else:
                yield {"failure": str(result)}
    except EmissionFailed as failure:
        yield {"failure": str(failure)}
    yield {"done": True}


def main() -> None:
    """Answer one request."""
    with os.fdopen(REQUEST_FD, "rb") as requests, os.fdopen(REPLY_FD, "wb") as out:
        messages = replies(json.loads(requests.readline()))
        for _question, message in zip(requests, messages, strict=False):
            out.write(json.dumps(message).encode() + b"\n")
            out.flush()


if __name__ == "__main__":
    main()
