"""The operators on C++ candidates, with how often each is tried."""

from __future__ import annotations

from evaluator.candidate import BackendName
from evolver.proposers.mutate.cpp_fuse import fuse_options
from evolver.proposers.mutate.cpp_loops import prefetch_options, tile_options, unroll_options
from evolver.proposers.mutate.cpp_openmp import (
    collapse_options,
    schedule_options,
    simd_options,
    threads_options,
)
from evolver.proposers.mutate.cpp_promises import compiler_options, pointer_options
from evolver.proposers.mutate.operators import Operator

_CPP = BackendName.CPP

CPP_OPERATORS = (
    Operator("schedule", _CPP, schedule_options, weight=2),
    Operator("threads", _CPP, threads_options, weight=3),
    Operator("collapse", _CPP, collapse_options, weight=2),
    Operator("simd", _CPP, simd_options, weight=4),
    Operator("unroll", _CPP, unroll_options, weight=2),
    Operator("tile", _CPP, tile_options, weight=2),
    Operator("fuse", _CPP, fuse_options, weight=3),
    Operator("prefetch", _CPP, prefetch_options),
    Operator("compiler", _CPP, compiler_options, weight=2),
    Operator("pointers", _CPP, pointer_options),
)
