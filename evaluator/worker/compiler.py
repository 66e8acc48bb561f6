"""The C++ compiler's command: one place, for the worker, for `doctor` and for patches."""

from __future__ import annotations

COMPILER = "g++"
FLAGS = (
    "-std=c++17",
    "-O3",
    "-march=native",
    "-fopenmp",
    "-fPIC",
    "-shared",
    "-fno-math-errno",
    "-fno-trapping-math",
)
