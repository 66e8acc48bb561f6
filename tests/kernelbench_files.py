"""KernelBench's form in small: files of our own, and where the real ones may be."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from integrations.kernelbench.inside import look
from integrations.kernelbench.looking import Seen, read_answer

VARIABLE = "KSMITH_KERNELBENCH"

NORMALISED = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width, shape):
        super(Model, self).__init__()
        self.norm = nn.BatchNorm1d(width)
        self.scale = nn.Parameter(torch.randn(shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.norm(x) * self.scale) + torch.sigmoid(x)


batch_size, width = 64, 128


def get_inputs():
    return [torch.rand(batch_size, width)]


def get_init_inputs():
    return [width, (width,)]
"""

_STATELESS = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, {arguments}):
        return {returned}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


def stateless(inputs: str, *, arguments: str = "x", returned: str = "x * 2") -> str:
    """A file without parameters that is called with ``inputs``."""
    return _STATELESS.format(inputs=inputs, arguments=arguments, returned=returned)


def with_buffer(value: str) -> str:
    """A file whose model keeps ``value`` as a buffer."""
    keeps = "    def __init__(self):\n        super().__init__()\n" + (
        f'        self.register_buffer("kept", {value})\n\n'
    )
    text = stateless("torch.rand(8, 64)", returned="x + self.kept")
    return text.replace("    def forward", keeps + "    def forward", 1)


def seen(text: str) -> Seen:
    """What the file shows; run in this process, since it is ours."""
    return read_answer(json.dumps({"seen": look(text)}).encode())


def make_checkout(root: Path, files: dict[tuple[int, str], str]) -> Path:
    """Write ``files``, by level and file name, as a checkout and return it."""
    for (level, name), text in files.items():
        path = root / "KernelBench" / f"level{level}" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def real_checkout() -> Path:
    """A checkout of KernelBench, which no package index has; skip the test without one."""
    named = os.environ.get(VARIABLE)
    for place in (Path(named) if named else None, Path(".real/kernelbench")):
        if place is not None and (place / "KernelBench" / "level1").is_dir():
            return place
    pytest.skip(
        f"no checkout of KernelBench: git clone https://github.com/ScalingIntelligence/KernelBench "
        f".real/kernelbench, or name one in {VARIABLE}"
    )
