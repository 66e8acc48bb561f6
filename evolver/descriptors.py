"""Where a candidate stands in the archive: its complexity and its score, two pure functions.

Kernel-Smith's archive is a grid of kernel complexity and overall score, and the paper
leaves both open. Here complexity is the size of the kernels' code, with structure weighed
more than arithmetic, and the score is the lower bound of the measured speedup over eager,
so that a candidate cannot rise by being noisy.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from evaluator.backends import Language, language_of
from evaluator.candidate import Candidate, native_text
from evaluator.evaluation import Baseline, Evaluation, KernelResources, Status, Verdict
from evaluator.normal_form import nodes_in

# A loop, a memory operation and a launch each change what the machine does more than an
# operator does; without the weights, two- and one-pass forms of a kernel share a cell.
LOOP_WEIGHT = 10
MEMORY_WEIGHT = 5
KERNEL_WEIGHT = 20


@dataclass(frozen=True)
class Complexity:
    """Counts over the kernels of a candidate, its host code left out."""

    nodes: int
    """AST nodes of Triton kernels (contexts left out), tokens of C++."""
    loops: int
    memory_operations: int
    kernels: int
    """Launch sites, or calls of native functions."""

    @property
    def size(self) -> int:
        """The weighted sum that the archive's axis is the logarithm of; at least 1."""
        weighted = (
            self.nodes
            + LOOP_WEIGHT * self.loops
            + MEMORY_WEIGHT * self.memory_operations
            + KERNEL_WEIGHT * self.kernels
        )
        return max(1, weighted)


@dataclass(frozen=True)
class Score:
    """How good a candidate is, with an interval; ``value`` is positive and finite.

    Measured: ``value`` is the one-sided 99 % lower bound of the overall speedup over eager
    and [``low``, ``high``] its two-sided interval. Unmeasured: a static proxy in (0, 1],
    which orders candidates of a machine without the device, and is never a speedup.
    """

    measured: bool
    value: float
    low: float
    high: float
    verdict: Verdict | None = None
    """Of the overall speedup over eager; None when unmeasured."""

    @property
    def rank(self) -> tuple[bool, float]:
        """Sorts scores: whatever was measured stands above whatever was not."""
        return (self.measured, self.value)

    @property
    def contends(self) -> bool:
        """Whether a confirmation might find the candidate faster than the reference."""
        return self.verdict in (Verdict.FASTER, Verdict.AMBIGUOUS) and self.high > 1.0

    def beats(self, other: Score) -> bool:
        """Whether this score lies above ``other`` beyond noise: the intervals are apart."""
        if self.measured != other.measured:
            return self.measured
        return self.low > other.high


def score_of(evaluation: Evaluation) -> Score | None:
    """Return the score of a correct candidate, None for every other."""
    if evaluation.status is Status.NOT_MEASURED:
        proxy = _static_proxy(evaluation.resources)
        return Score(measured=False, value=proxy, low=proxy, high=proxy)
    speedup = evaluation.speedup(Baseline.EAGER)
    if speedup is None:
        return None
    return Score(
        measured=True,
        value=speedup.lower_99,
        low=speedup.low,
        high=speedup.high,
        verdict=speedup.verdict,
    )


@dataclass(frozen=True)
class Failure:
    """What is known of a candidate that failed."""

    candidate_id: str
    cause: str = ""
    """Alike for failures of one kind: the status and the message, numbers left out."""
    score: float = 0.0
    """How near it came to success; below every score of a correct candidate's that counts."""


# Kernel-Smith: failures score low. The order is how much of the way was right.
FAILURE_SCORES = {
    Status.CHEATING_SUSPECTED: 1 / 512,
    Status.POLICY_VIOLATION: 1 / 256,
    Status.COMPILE_ERROR: 1 / 128,
    Status.RUNTIME_ERROR: 1 / 64,
    Status.TIMEOUT: 1 / 64,
    Status.OUT_OF_MEMORY: 1 / 64,
    Status.INCORRECT: 1 / 32,
}


def failure_of(evaluation: Evaluation) -> Failure:
    """Return how a candidate failed; of the incorrect, who passed more workloads is nearer."""
    status = evaluation.status
    passed = sum(workload.passed for workload in evaluation.correctness)
    share = passed / len(evaluation.correctness) if evaluation.correctness else 0.0
    return Failure(
        candidate_id=evaluation.candidate_id,
        cause=f"{status.value}: {_NUMBERS.sub('#', evaluation.message)[:CAUSE_LENGTH]}",
        score=FAILURE_SCORES.get(status, 0.0) * (1.0 + share),
    )


CAUSE_LENGTH = 120
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


def complexity_of(candidate: Candidate) -> Complexity:
    """Return the complexity of the candidate's kernels."""
    return complexity_in(ast.parse(candidate.source), language_of(candidate.backend))


def complexity_in(tree: ast.Module, language: Language) -> Complexity:
    """Return the complexity of the kernels in a candidate's parsed source."""
    if language.native:
        return _cpp_complexity(tree, native_text(tree) or "")
    return _triton_complexity(tree)


def _static_proxy(resources: tuple[KernelResources, ...]) -> float:
    """Fewer kernels, no spills, few registers: what can be said without a device."""
    cost = sum(
        1.0 + kernel.spill_bytes / 64 + max(0, kernel.registers - 64) / 128 for kernel in resources
    )
    return 1.0 / max(1.0, cost)


def _triton_complexity(tree: ast.Module) -> Complexity:
    inside = [node for kernel in jit_functions(tree) for node in nodes_in(kernel)]
    called = [
        n.func.attr for n in inside if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)
    ]
    return Complexity(
        nodes=len(inside),
        loops=sum(isinstance(n, ast.For | ast.While) for n in inside),
        memory_operations=sum(
            name in {"load", "store", "gather"} or name.startswith("atomic_") for name in called
        ),
        kernels=sum(
            isinstance(n, ast.Call) and isinstance(n.func, ast.Subscript) for n in nodes_in(tree)
        ),
    )


def jit_functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """Yield the module's Triton functions: kernels, and what they call."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and any(map(_is_jit, node.decorator_list)):
            yield node


def _is_jit(decorator: ast.expr) -> bool:
    named = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = named.attr if isinstance(named, ast.Attribute) else getattr(named, "id", "")
    return name.endswith("jit")


_CPP_NOISE = re.compile(r"//[^\n]*|/\*.*?\*/|^[ \t]*#[^\n]*", re.DOTALL | re.MULTILINE)
_CPP_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|[A-Za-z_]\w*|\d[\w.]*|[^\w\s]')
_CPP_LOOPS = {"for", "while"}
_CPP_INTRINSIC = re.compile(r"_mm\d*_\w*(?:load|store|gather|scatter)")


def cpp_tokens(source: str) -> list[str]:
    """Return the tokens of C++ or CUDA, comments and directives left out."""
    return _CPP_TOKEN.findall(_CPP_NOISE.sub(" ", source))


def _cpp_complexity(tree: ast.Module, source: str) -> Complexity:
    tokens = cpp_tokens(source)
    return Complexity(
        nodes=len(tokens),
        loops=sum(token in _CPP_LOOPS for token in tokens),
        memory_operations=sum(t == "[" or bool(_CPP_INTRINSIC.match(t)) for t in tokens),
        kernels=sum(
            isinstance(n, ast.Attribute) and ast.unparse(n.value) == "native"
            for n in ast.walk(tree)
        ),
    )
