"""The operators on Triton candidates, with how often each is tried."""

from __future__ import annotations

from evaluator.candidate import BackendName
from evolver.proposers.mutate.operators import Operator
from evolver.proposers.mutate.triton_accumulate import accumulate_options
from evolver.proposers.mutate.triton_arithmetic import (
    division_options,
    exponential_options,
    index_options,
)
from evolver.proposers.mutate.triton_fission import fission_options
from evolver.proposers.mutate.triton_forward import reuse_options
from evolver.proposers.mutate.triton_fuse import fuse_options
from evolver.proposers.mutate.triton_grid import grid_options
from evolver.proposers.mutate.triton_launch import (
    registers_options,
    stages_options,
    tile_options,
    warps_options,
)
from evolver.proposers.mutate.triton_loops import loop_hint_options
from evolver.proposers.mutate.triton_math import libdevice_options, nan_options
from evolver.proposers.mutate.triton_memory import cache_hint_options
from evolver.proposers.mutate.triton_one_pass import one_pass_options
from evolver.proposers.mutate.triton_split import split_options

_TRITON = BackendName.TRITON

TRITON_OPERATORS = (
    Operator("tile", _TRITON, tile_options, weight=4),
    Operator("num_warps", _TRITON, warps_options, weight=3),
    Operator("num_stages", _TRITON, stages_options),
    Operator("registers", _TRITON, registers_options),
    Operator("cache_hint", _TRITON, cache_hint_options, weight=2),
    Operator("loop_hint", _TRITON, loop_hint_options, weight=2),
    Operator("grid", _TRITON, grid_options, weight=2),
    Operator("one_pass", _TRITON, one_pass_options, weight=3),
    Operator("fuse", _TRITON, fuse_options, weight=3),
    Operator("fission", _TRITON, fission_options),
    Operator("split", _TRITON, split_options),
    Operator("accumulate", _TRITON, accumulate_options),
    Operator("reuse", _TRITON, reuse_options),
    Operator("index", _TRITON, index_options, weight=2),
    Operator("division", _TRITON, division_options),
    Operator("exponential", _TRITON, exponential_options),
    Operator("libdevice", _TRITON, libdevice_options),
    Operator("nan", _TRITON, nan_options),
)
