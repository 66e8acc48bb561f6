"""Small Triton kernels for both evaluators: the same text, wrapped as each of them wants it.

Two operators (RMSNorm with a weight, row softmax) in two loop forms, over warps and block
sizes: the kind of candidates that a search tries by the hundred.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from evaluator.candidate import BackendName, Candidate
from evaluator.problem import (
    Contract,
    Entry,
    LoadedProblem,
    Origin,
    Output,
    Problem,
    sha256_text,
)
from evaluator.workload import TensorSpec, Workload

ROWS, WIDTH = 512, 2048

_HEADER = "import torch\nimport triton\nimport triton.language as tl\n"

_RMS_NORM_REFERENCE = """
def rms_norm(x, weight):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight
"""
_RMS_NORM_KERNEL = """
@triton.jit
def _rms_norm(x_ptr, weight_ptr, out_ptr, width, BLOCK: tl.constexpr):
    base = tl.program_id(0) * width
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, width, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + base + columns, mask=columns < width, other=0.0)
        total += x * x
    scale = tl.rsqrt(tl.sum(total, axis=0) / width + 1e-6)
    for start in range(0, width, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        mask = columns < width
        x = tl.load(x_ptr + base + columns, mask=mask)
        weight = tl.load(weight_ptr + columns, mask=mask)
        tl.store(out_ptr + base + columns, x * scale * weight, mask=mask)


def rms_norm(x, weight):
    out = torch.empty_like(x)
    _rms_norm[(x.shape[0],)](x, weight, out, x.shape[1], BLOCK=%(block)d, num_warps=%(warps)d)
    return out
"""
_SOFTMAX_REFERENCE = """
def softmax(x):
    return torch.softmax(x, dim=-1)
"""
_SOFTMAX_KERNEL = """
@triton.jit
def _softmax(x_ptr, out_ptr, width, BLOCK: tl.constexpr):
    base = tl.program_id(0) * width
    high = tl.full((BLOCK,), float("-inf"), tl.float32)
    for start in range(0, width, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + base + columns, mask=columns < width, other=float("-inf"))
        high = tl.maximum(high, x)
    peak = tl.max(high, axis=0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, width, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + base + columns, mask=columns < width, other=float("-inf"))
        total += tl.exp(x - peak)
    scale = 1.0 / tl.sum(total, axis=0)
    for start in range(0, width, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        mask = columns < width
        x = tl.load(x_ptr + base + columns, mask=mask)
        tl.store(out_ptr + base + columns, tl.exp(x - peak) * scale, mask=mask)


def softmax(x):
    out = torch.empty_like(x)
    _softmax[(x.shape[0],)](x, out, x.shape[1], BLOCK=%(block)d, num_warps=%(warps)d)
    return out
"""

_MODEL = """
class {name}(torch.nn.Module):
    def forward(self, {arguments}):
        return {function}({arguments})
"""
_INPUTS = """
def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


@dataclass(frozen=True)
class Operator:
    """One operator: its reference, and a kernel with places for the launch's numbers."""

    name: str
    shapes: dict[str, tuple[int, ...]]
    reference: str
    kernel: str

    def problem(self) -> LoadedProblem:
        """The operator as ksmith takes it."""
        source = "import torch\n" + self.reference
        tensors = {n: TensorSpec(shape=shape) for n, shape in self.shapes.items()}
        problem = Problem(
            id=self.name,
            origin=Origin(repository="ksmith", target=f"benchmarks/throughput::{self.name}"),
            entry=Entry(function=self.name, candidate_function=self.name),
            arguments=tuple(self.shapes),
            contract=Contract(outputs=(Output(),), returns_tuple=False),
            workloads=(Workload(name="rows", arguments=dict(tensors)),),
            reference_sha256=sha256_text(source),
        )
        return LoadedProblem(problem=problem, reference_source=source)

    def kernels(self, count: int) -> list[str]:
        """The texts of ``count`` different kernels."""
        shapes = itertools.product((256, 512, 1024, 2048), (1, 2, 4, 8, 16))
        launches = [{"block": b, "warps": w} for b, w in shapes]
        rounds = itertools.count()
        texts: list[str] = []
        while len(texts) < count:
            number = next(rounds)
            suffix = f"_v{number}"  # a new name is a new kernel to Triton's cache
            texts += [
                _HEADER
                + f"\nROUND = {number}\n"  # and to ksmith, which sees through names
                + (self.kernel % launch)
                .replace(f"_{self.name}[", f"_{self.name}{suffix}[")
                .replace(f"def _{self.name}(", f"def _{self.name}{suffix}(")
                for launch in launches
            ]
        return texts[:count]

    def candidates(self, count: int) -> list[Candidate]:
        """``count`` candidates as ksmith takes them."""
        return [
            Candidate.create(text, backend=BackendName.TRITON, proposer="benchmark")
            for text in self.kernels(count)
        ]

    def as_kernelbench(self, text: str | None = None) -> str:
        """A file as KernelBench takes it: the reference, or a kernel as ``ModelNew``."""
        name = "Model" if text is None else "ModelNew"
        body = "import torch\n" + self.reference if text is None else text
        model = _MODEL.format(name=name, arguments=", ".join(self.shapes), function=self.name)
        inputs = ", ".join(f"torch.randn({', '.join(map(str, s))})" for s in self.shapes.values())
        return body + model + _INPUTS.format(inputs=inputs)


OPERATORS = (
    Operator(
        "rms_norm",
        {"x": (ROWS, WIDTH), "weight": (WIDTH,)},
        _RMS_NORM_REFERENCE,
        _RMS_NORM_KERNEL,
    ),
    Operator("softmax", {"x": (ROWS, WIDTH)}, _SOFTMAX_REFERENCE, _SOFTMAX_KERNEL),
)
