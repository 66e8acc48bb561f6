from __future__ import annotations

import pytest

from integrations.errors import Refused
from tests.integrations.extraction.conftest import Extract

BASE = """\
    class Base:
        scale = 2

        def widen(self, x):
            return x * self.scale
    """
NORM = """\
    import torch
    from base import Base
    from rotation import rotate

    class Norm(Base):
        def __init__(self, size, eps=1e-6):
            self.size = size
            self.eps = eps
            self.unused = 3
            self.turn = rotate
            self.register_buffer("table", torch.zeros(3))

        def _root(self, x):
            return torch.rsqrt(x + self.eps)

        def forward(self, x):
            if hasattr(self, "never_set"):
                return self.never_set
            return self.widen(self._root(self.turn(x))) + self.table + self.size

        def other(self, x):
            return missing(x)
    """
FILES = {"norm.py": NORM, "base.py": BASE, "rotation.py": "def rotate(x):\n    return -x\n"}


def test_only_the_methods_that_are_followed_are_kept(extract_from: Extract) -> None:
    found = extract_from(FILES, "norm.py::Norm")
    assert "def other" not in found.source
    assert "__init__" not in found.source
    assert "class Norm:\n" in found.source
    assert {"base", "method", "attribute", "branch"} <= {a.kind for a in found.assumptions}


def test_attributes_that_are_read_become_state_in_the_order_of_init(
    extract_from: Extract,
) -> None:
    assert extract_from(FILES, "norm.py::Norm").state == ("size", "eps", "table")


def test_the_flattened_class_computes_what_the_original_did(extract_from: Extract) -> None:
    torch = pytest.importorskip("torch")
    found = extract_from(FILES, "norm.py::Norm")
    scope: dict[str, object] = {}
    exec(found.source, scope)
    norm = object.__new__(scope["Norm"])  # type: ignore[call-overload]
    norm.size, norm.eps, norm.table = 1, 1e-6, torch.ones(3)
    x = torch.tensor([-1.0, -4.0, -16.0])
    assert torch.allclose(norm.forward(x), torch.rsqrt(-x + 1e-6) * 2 + 1 + 1)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("self.count = 1; return x", "assigns self.count"),
        ("return helper(self, x)", "hands self on"),
        ("return super().forward(x)", "calls super"),
        ("return self.proj(x)", r"self.proj is a module \(nn.Linear\)"),
        ("return x * self.x", "share the name x"),
    ],
)
def test_what_cannot_be_state_is_refused(extract_from: Extract, body: str, reason: str) -> None:
    source = f"""\
        from torch import nn
        def helper(m, x):
            return x
        class Layer(nn.Module):
            def __init__(self):
                self.proj = nn.Linear(3, 3)
            def forward(self, x):
                {body}
        """
    with pytest.raises(Refused, match=reason):
        extract_from({"a.py": source}, "a.py::Layer")
