"""TorchInductor's generated source for a traced graph, without compiling or running it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

from .settings import COMMON, known_patches
from .tracing import TracedGraph
from .workloads import EmissionFailed


class _SourceIsReady(BaseException):
    """Carries the source out of Inductor; not an ``Exception``, so that nothing wraps it."""

    def __init__(self, source: str) -> None:
        self.source = source


def inductor_source(
    traced: TracedGraph,
    patches: Mapping[str, Any],
    *,
    whole_rows: bool = False,
    gemm_template: int | None = None,
) -> str:
    """Inductor's Python wrapper module for ``traced``, kernels included as strings.

    ``patches`` are keys of ``torch._inductor.config``; those that this version of torch does
    not know are left out. ``whole_rows`` and ``gemm_template`` are as in ``Setting``. For a
    CUDA target this must run inside ``fake_cuda.cuda_target()``.

    Raises:
        EmissionFailed: Inductor cannot lower the graph.
    """
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.graph import GraphLowering
    from torch._inductor.virtualized import V

    def stop(source: str) -> None:
        raise _SourceIsReady(source)

    wanted = known_patches({**COMMON, **patches}, config)
    if gemm_template is not None:
        wanted |= known_patches(_TEMPLATE_PATCHES, config)
    # Inductor calls the hook with the text of the module just before it would import it.
    with (
        config.patch(wanted),
        mock.patch.object(GraphLowering, "save_output_code", stop),
        _masks_everywhere(),
        _whole_rows(whole_rows),
        _template_choice(gemm_template),
        V.set_fake_mode(traced.fake_mode),
    ):
        try:
            compile_fx_inner(traced.copy_module(), list(traced.examples))
        except _SourceIsReady as ready:
            return ready.source
        except EmissionFailed:
            raise
        except Exception as error:
            raise EmissionFailed(
                f"TorchInductor cannot lower the graph: {type(error).__name__}: {error}"
            ) from error
    raise EmissionFailed("TorchInductor produced no source for the graph")


@contextlib.contextmanager
def _masks_everywhere() -> Iterator[None]:
    """Keep the masks that Inductor drops where its own block sizes divide an extent.

    A later edit of a block size must not turn a load into one out of bounds. Only the
    reduction dimension of a persistent kernel keeps Inductor's rule: its block is a constant
    inside the kernel, no launch argument.
    """
    from torch._inductor.codegen.triton import TritonKernel

    original: Callable[..., bool] = TritonKernel._has_constant_mask

    def has_constant_mask(kernel: Any, tree: Any) -> bool:
        persistent = tree.is_reduction and getattr(kernel, "persistent_reduction", False)
        is_template = hasattr(kernel, "template_mask")
        return original(kernel, tree) if persistent or is_template else False

    with mock.patch.object(TritonKernel, "_has_constant_mask", has_constant_mask):
        yield


_LONGEST_ROW = 16384
"""Elements of a row beyond which one block would spill."""


@contextlib.contextmanager
def _whole_rows(wanted: bool) -> Iterator[None]:
    """Make every reduction persistent whose extent is a number and not too large."""
    from torch._inductor.choices import InductorChoices

    if not wanted:
        yield
        return

    def should_be_persistent(features: Any, *_args: Any, **_kwargs: Any) -> bool:
        extent = features.reduction_numel
        return bool(extent.is_number and int(extent) <= _LONGEST_ROW)

    patched = staticmethod(should_be_persistent)
    with mock.patch.object(InductorChoices, "should_use_persistent_reduction", patched):
        yield


_TEMPLATE_PATCHES = {
    "max_autotune_gemm": True,
    "max_autotune_gemm_backends": "TRITON",
    "test_configs.autotune_choice_name_regex": None,
}


@contextlib.contextmanager
def _template_choice(index: int | None) -> Iterator[None]:
    """Take the ``index``-th Triton template for every matrix product, without timing any."""
    if index is None:
        yield
        return
    import torch
    from torch._inductor import select_algorithm
    from torch._inductor import utils as inductor_utils

    # torch 2.11 returns the node; 2.13 returns the node with the choice.
    returns_pair = tuple(int(p) for p in torch.__version__.split(".")[:2]) >= (2, 13)

    def choose(_cache: Any, name: str, choices: list[Any], *_args: Any, **_kwargs: Any) -> Any:
        templates = [c for c in choices if isinstance(c, select_algorithm.TritonTemplateCaller)]
        if not templates:
            raise EmissionFailed(f"Inductor has no Triton template for {name}")
        choice = templates[index % len(templates)]
        node: Any = choice.output_node()  # type: ignore[no-untyped-call]
        return (node, choice) if returns_pair else node

    with (
        mock.patch.object(select_algorithm.AlgorithmSelectorCache, "__call__", choose),
        mock.patch.object(inductor_utils, "is_big_gpu", return_value=True),
    ):
        yield
