"""References of all kinds, traced, lowered and interpreted, against eager torch."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from evaluator.workload import DType, TensorSpec
from evolver.proposers.synth.interpreter import run, torch_dtype
from evolver.proposers.synth.ir import ElementType
from tests.builders import make_tensor
from tests.evolver.proposers.synth.programs import (
    EmissionFailed,
    function_problem,
    lowered_function,
)

pytestmark = pytest.mark.real

X = make_tensor(6, 40)
V = make_tensor(40)
HALF = make_tensor(6, 40, dtype=DType.BFLOAT16)
WHOLE = make_tensor(6, 40, dtype=DType.INT32)
SEGMENTS = make_tensor(6, dtype=DType.INT64)
PLACES = make_tensor(6, 5, dtype=DType.INT64)

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "softmax": ("return torch.softmax(x, -1)", {"x": X}),
    "log_softmax of bfloat16": ("return F.log_softmax(x, -1)", {"x": HALF}),
    "layer_norm": ("return F.layer_norm(x, (40,), v, v)", {"x": X, "v": V}),
    "rms_norm of bfloat16": (
        "h = x.float()\n    return (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6))"
        ".to(x.dtype) * x",
        {"x": HALF},
    ),
    "group_norm": ("return F.group_norm(x.view(2, 6, 20), 3)", {"x": X}),
    "variance": ("return torch.var(x, -1), torch.std(x, 0, correction=0)", {"x": X}),
    "gelu and silu": ("return F.gelu(x) + F.silu(x) * F.softplus(x)", {"x": X}),
    "half with numbers": ("return x * 0.1 / 3", {"x": HALF}),
    "promotion": ("return x + w, w / 3, x * w.long(), w % 3, w // -3", {"x": HALF, "w": WHOLE}),
    "comparisons": ("return (x > 0) & (w != 2) | ~(x <= w)", {"x": X, "w": WHOLE}),
    "clamp and where": ("return torch.where(x > 0, x.clamp(-1, 0.5), -x)", {"x": X}),
    "masked fill": ("return x.masked_fill(x < 0, float('-inf')).amax(-1)", {"x": X}),
    "powers": ("return x ** 2, x.abs() ** 0.5, 2 ** x, x.pow(3)", {"x": X}),
    "reductions": (
        "return x.sum(), x.amin(0), x.prod(-1), (x > 1).any(-1), (x > -9).all(), w.sum(-1)",
        {"x": X, "w": WHOLE},
    ),
    "extremes with positions": ("return x.max(-1)[1], x.min(0)[0], x.argmax()", {"x": X}),
    "norms": ("return F.normalize(x, dim=-1), torch.linalg.norm(x, dim=0)", {"x": X}),
    "scans": ("return x.cumsum(-1), w.cumsum(0), x.logcumsumexp(-1)", {"x": X, "w": WHOLE}),
    "top-k": (
        "v, i = torch.topk(x, 5, dim=-1)\n    return v / v.sum(-1, keepdim=True), i",
        {"x": X},
    ),
    "sort": ("v, i = torch.sort(x, -1, descending=True)\n    return v, x.argsort(0)", {"x": X}),
    "gather and scatter": (
        "g = x.gather(1, i)\n    m = torch.zeros_like(x).scatter_(1, i, 1)\n"
        "    return g, x * m, torch.zeros_like(x).scatter_add(1, i, g)",
        {"x": X, "i": PLACES},
    ),
    "indexing": (
        "return x[:, i[0]], x[i[:, 0] - 8], x[torch.arange(5), i[0]], x[i[:5], i[:5]]",
        {"x": make_tensor(9, 40), "i": PLACES},
    ),
    "embedding": ("return F.embedding(i, x)", {"x": make_tensor(9, 40), "i": PLACES}),
    "one-hot": ("return F.one_hot(i, 9).sum(1)", {"i": PLACES}),
    "views": (
        "return x.view(6, 8, 5).transpose(1, 2).reshape(30, 8), x[1::2, -3:], x.t().flip(0)",
        {"x": X},
    ),
    "joins": (
        "a, b = x.chunk(2, -1)\n    return torch.cat((-b, a), -1), torch.stack((a, b), 1)",
        {"x": X},
    ),
    "pad, shift and roll": (
        "return F.pad(x, (2, -1), value=7.0), F.pad(x, (1, 0))[:, :-1], torch.roll(x, 3, -1)",
        {"x": X},
    ),
    "causal depthwise convolution": (
        "return F.conv1d(F.pad(x.view(1, 6, 40), (6, 0)), k, None, groups=6, dilation=3)",
        {"x": X, "k": make_tensor(6, 1, 3)},
    ),
    "linear and attention scores": (
        "h = F.linear(x, k, v)\n    return torch.softmax(h @ h.t(), -1) @ h",
        {"x": X, "k": make_tensor(40, 40), "v": V},
    ),
    "convolution": (
        "return F.conv2d(x.view(1, 6, 5, 8), k, b, padding=1, stride=2)",
        {"x": X, "k": make_tensor(4, 6, 3, 3), "b": make_tensor(4)},
    ),
    "quantisation to int8": (
        "s = x.abs().amax(-1, keepdim=True) / 127\n"
        "    return torch.clamp(torch.round(x / s), -128, 127).to(torch.int8), s",
        {"x": X},
    ),
    "quantisation to float8": (
        "return (x / x.abs().amax()).to(torch.float8_e4m3fn).to(torch.float32)",
        {"x": X},
    ),
    "writes in place": (
        "x.mul_(2)\n    x[:, 3:7] = v[3:7]\n    y[1:, ::2] += x[1:, ::2]\n    return x",
        {"x": X, "y": X, "v": V},
    ),
    "puts in place": (
        "x[i[:, 0], :] = v\n    y.index_add_(0, i[:, 1], y[:6].clone())\n    return None",
        {"x": make_tensor(9, 40), "y": make_tensor(9, 40), "i": PLACES, "v": V},
    ),
    "triangular mask": ("return torch.tril(x), torch.triu(x, 2)", {"x": X}),
    "empty": ("return x[:, :0], x[:0].sum(0), torch.cat((x[:, :0], x), 1)", {"x": X}),
    "windows and diagonals": (
        "return x.unfold(1, 5, 3).amax(-1), x.unfold(0, 2, 1), x.diagonal(2), x.diagonal(-1)",
        {"x": X},
    ),
    "places in sorted lists": (
        "e = torch.tensor([-1.0, 0, 0.5])\n"
        "    return torch.bucketize(x, e), torch.searchsorted(e, x, right=True), x.kthvalue(3)[0]",
        {"x": X},
    ),
    "gates": ("return F.glu(x, -1) * F.mish(x[:, :20])", {"x": X}),
    "batch_norm": ("return F.batch_norm(x, None, None, training=True)", {"x": X}),
    "a histogram": (
        "return torch.zeros(8, dtype=torch.int64).scatter_add(0, w, torch.ones_like(w))",
        {"w": make_tensor(50, dtype=DType.INT64)},
    ),
    "a segmented sum": ("return torch.zeros(8, 40).index_add(0, i, x)", {"x": X, "i": SEGMENTS}),
    "distances": ("return (x[:, None] - x[None]).pow(2).sum(-1).sqrt()", {"x": X}),
    "writes of what was never read": ("y.copy_(x * 2)\n    return y", {"x": X, "y": X}),
    "a permutation": ("return x.view(6, 2, 2, 10).permute(0, 2, 1, 3).reshape(6, 40)", {"x": X}),
    "a table of numbers": ("return x.view(6, 10, 4) * torch.tensor([1.0, 2, 3, 4])", {"x": X}),
}


def drawn(spec: TensorSpec, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    dtype = torch_dtype(ElementType(spec.dtype.value))
    if dtype.is_floating_point:
        return torch.randn(spec.shape, generator=generator).to(dtype)
    return torch.randint(0, 8, spec.shape, generator=generator).to(dtype)


@pytest.mark.parametrize("name", CASES)
def test_a_lowered_reference_computes_what_eager_does(name: str) -> None:
    body, arguments = CASES[name]
    source = f"def f({', '.join(arguments)}):\n    {body}\n"
    found = lowered_function(source, **arguments)
    assert found.refusals == ()
    assert found.program is not None
    inputs = {n: drawn(spec, seed) for seed, (n, spec) in enumerate(arguments.items())}
    if name == "puts in place":  # places that meet may be stored in any order
        inputs["i"] = torch.arange(30).reshape(6, 5) % 6
    outcome = run(found.program, inputs)
    scope: dict[str, Any] = {}
    exec(function_problem(source, **arguments).reference_source, scope)
    eager = {n: t.clone() for n, t in inputs.items()}
    expected = scope["f"](*eager.values())
    expected = expected if isinstance(expected, tuple) else (expected,)
    torch.testing.assert_close(outcome.returned, expected, equal_nan=True)
    torch.testing.assert_close({**inputs, **outcome.written}, eager)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("return x[x > 0]", "line 6"),
        ("return x * int(x.sum().item())", "line 6"),
        ("return torch.fft.fft(x).real", "line 6: .*fft"),
        ("return x + torch.rand_like(x)", "line 6: .*rand"),
        ("if x.sum() > 0:\n        return x\n    return -x", "line 6"),
        ("return torch.linalg.inv(x[:6, :6])", "line 6: .*inv"),
    ],
)
def test_what_is_no_row_program_is_refused_with_its_line(body: str, reason: str) -> None:
    try:
        found = lowered_function(f"def f(x):\n    {body}\n", x=X)
    except EmissionFailed as failure:
        told = str(failure)
    else:
        assert found.program is None
        told = "; ".join(map(str, found.refusals))
    assert re.search(reason, told), told
