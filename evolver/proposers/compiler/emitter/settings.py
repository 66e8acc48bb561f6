"""The Inductor settings that give structurally different kernels, and those that all share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

COMMON: Mapping[str, Any] = {
    "alignment_asserts": False,
    "assert_indirect_indexing": False,
    "emulate_precision_casts": True,
    "force_disable_caches": True,
    "fx_graph_cache": False,
    "fx_graph_remote_cache": False,
    "graph_partition": False,
    "max_autotune": False,
    "size_asserts": False,
    "triton.autotune_at_compile_time": False,
    "triton.cudagraphs": False,
    "triton.descriptive_names": "original_aten",
    "triton.multi_kernel": 0,
}
"""Readable names, no checks that belong to torch's own runtime, and eager's rounding points."""


@dataclass(frozen=True)
class Setting:
    """One way to have Inductor generate code."""

    description: str
    patches: Mapping[str, Any] = field(default_factory=dict)
    config_index: int = 0
    """Which of the launch configurations that Inductor would time."""
    static_shapes: bool = False
    """Whether each workload gets kernels of its own, with its extents as numbers."""
    whole_rows: bool = False
    """Whether every reduction over a fixed extent is done in one block."""
    gemm_template: int | None = None
    """Which of Inductor's Triton templates takes the matrix products; None for the library."""


TRITON_SETTINGS: tuple[Setting, ...] = (
    Setting("default settings"),
    Setting("no persistent reductions", {"triton.persistent_reductions": False}),
    Setting("intermediates not rounded to the input type", {"emulate_precision_casts": False}),
    Setting("one kernel per operator", {"max_fusion_size": 1}),
    Setting("tiled in two dimensions", {"triton.prefer_nd_tiling": True}),
    Setting(
        "tiled reductions",
        {"triton.prefer_nd_tiling": True, "triton.tile_reductions": True},
    ),
    Setting("no split reductions", {"split_reductions": False}),
    Setting(
        "two-pass softmax",
        {"online_softmax": False, "triton.persistent_reductions": False},
    ),
    Setting("whole rows in one block", whole_rows=True),
    Setting("second launch configuration", config_index=1),
    Setting("kernels for each workload's own shape", static_shapes=True),
    Setting("matrix products as a Triton template", gemm_template=0),
    Setting("matrix products as another Triton template", gemm_template=5),
)
"""In the order of offer: what is most likely to be fast and faithful first."""


def known_patches(patches: Mapping[str, Any], config: Any) -> dict[str, Any]:
    """The ``patches`` whose names this version's ``torch._inductor.config`` knows."""
    return {name: value for name, value in patches.items() if _has(config, name)}


def _has(config: Any, dotted: str) -> bool:
    owner = config
    for part in dotted.split("."):
        if not hasattr(owner, part):
            return False
        owner = getattr(owner, part)
    return True
