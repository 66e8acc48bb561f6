"""The mended interpreter computes what a device would; run apart, since it patches triton."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

SCRIPT = """
import torch, triton, triton.language as tl
from evaluator.worker import interpreter

interpreter.install()
own_name = tl.math.sqrt


@triton.jit
def kernel(a, b, out, scale, N: tl.constexpr):
    at = tl.arange(0, N)
    left, right = tl.load(a + at), tl.load(b + at)
    scaled = (left.to(tl.float32) * scale.to(tl.float32)).to(left.dtype)
    both = tl.where(left > right, left - right, scaled * right)
    tl.store(out + at, both / right + own_name(tl.abs(left).to(tl.float32)) * 0.0)


a, b = (torch.randn(256).bfloat16() for _ in range(2))
b[0] = 0.0
out = torch.empty_like(a)
kernel[(1,)](a, b, out, 0.3, N=256)
scaled = (a.float() * 0.3).bfloat16()
expected = torch.where(a > b, a - b, scaled * b) / b
assert torch.equal(out.isnan(), expected.isnan())
torch.testing.assert_close(out, expected, rtol=0, atol=0, equal_nan=True)
"""


def test_bfloat16_arithmetic_and_float_arguments_are_those_of_a_device(tmp_path: Path) -> None:
    script = tmp_path / "script.py"  # triton reads kernels from their file
    script.write_text(SCRIPT, encoding="utf-8")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
