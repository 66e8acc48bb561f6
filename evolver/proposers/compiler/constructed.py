"""Programs for problems whose entry is a class: the emitted function behind a module.

The class takes whatever the reference is constructed with, and holds the problem's state as
buffers, which the evaluator fills by position.
"""

from __future__ import annotations

from evaluator.problem import Problem
from evaluator.workload import TensorSpec

FLAT_FUNCTION = "call_kernels"
"""What the emitted function of arguments and state is called within such a program."""


def emitted_function(problem: Problem) -> str:
    """The name that the emitter gives its function."""
    entry = problem.entry
    return entry.candidate_function if entry.constructor is None else FLAT_FUNCTION


def as_candidate(source: str, problem: Problem) -> str:
    """Return ``source`` with the class that the problem asks for, if it asks for one."""
    if problem.entry.constructor is None:
        return source
    shapes = {
        name: spec.shape
        for name, spec in problem.workloads[0].arguments.items()
        if name in problem.state and isinstance(spec, TensorSpec)
    }
    registered = [
        f'        self.register_buffer("{name}", torch.empty({shapes[name]!r}))'
        for name in problem.state
    ]
    arguments = ", ".join(problem.arguments)
    passed = ", ".join([*problem.arguments, *(f"self.{name}" for name in problem.state)])
    lines = [
        "",
        "",
        "",
        f"class {problem.entry.candidate_function}(torch.nn.Module):",
        "    def __init__(self, *_options):",
        "        super().__init__()",
        *registered,
        "",
        f"    def {problem.entry.function}(self, {arguments}):",
        f"        return {FLAT_FUNCTION}({passed})",
    ]
    return source.rstrip("\n") + "\n".join(lines) + "\n"
