"""TorchInductor's generated source for a traced graph, without compiling or running it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from unittest import mock

from .tracing import TracedGraph
from .workloads import EmissionFailed


class _SourceIsReady(BaseException):
    """Carries the source out of Inductor; not an ``Exception``, so that nothing wraps it."""

    def __init__(self, source: str) -> None:
        self.source = source


def inductor_source(traced: TracedGraph, settings: Mapping[str, Any]) -> str:
    """Inductor's Python wrapper module for ``traced``, kernels included as strings.

    ``settings`` are keys of ``torch._inductor.config``. For a CUDA target this must run
    inside ``fake_cuda.cuda_target()``.

    Raises:
        EmissionFailed: Inductor cannot lower the graph.
    """
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.graph import GraphLowering
    from torch._inductor.virtualized import V

    def stop(_graph: Any, wrapper: Any, *_rest: Any) -> Any:
        raise _SourceIsReady(wrapper.value)

    patches = {"fx_graph_cache": False, "fx_graph_remote_cache": False, **settings}
    # Inductor calls the hook with the text of the module just before it would import it.
    with (
        config.patch(patches),
        mock.patch.object(GraphLowering, "_compile_to_module_lines", stop),
        V.set_fake_mode(traced.fake_mode),
    ):
        try:
            compile_fx_inner(traced.copy_module(), list(traced.examples))
        except _SourceIsReady as ready:
            return ready.source
        except Exception as error:
            raise EmissionFailed(
                f"TorchInductor cannot lower the graph: {type(error).__name__}: {error}"
            ) from error
    raise EmissionFailed("TorchInductor produced no source for the graph")
