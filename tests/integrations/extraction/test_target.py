from __future__ import annotations

from pathlib import Path

import pytest

from integrations.errors import TargetError
from integrations.extraction.pipeline import extract_source
from tests.integrations.extraction.conftest import Extract, WriteRepo

OPS = {
    "pkg/fast.pyx": "def f(int n): return n\n",
    "pkg/ops.py": """\
        import torch

        def scale(x: torch.Tensor, by: float):
            return x * by

        class Norm(torch.nn.Module):
            def forward(self, x):
                return x * self.weight

            @property
            def size(self):
                return 3
        """,
}


def test_a_function_is_found(extract_from: Extract) -> None:
    found = extract_from(OPS, "pkg/ops.py::scale")
    assert found.arguments == ("x", "by")
    assert found.entry.function == found.entry.candidate_function == "scale"


def test_a_class_means_its_forward(extract_from: Extract) -> None:
    found = extract_from(OPS, "pkg/ops.py::Norm")
    assert found.target.spelled == "pkg/ops.py::Norm.forward"
    assert found.entry.candidate_function == "norm_forward"
    assert found.state == ("weight",)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("pkg/ops.py", "path/to/file.py::function"),
        ("pkg/op.py::scale", "did you mean pkg/ops.py"),
        ("pkg/ops.py::scal", "did you mean scale"),
        ("pkg/ops.py::Norm.forwrd", "did you mean forward"),
        ("pkg/ops.py::scale.inner", "is a function"),
        ("pkg/ops.py::a.b.c", "nested function"),
        ("pkg/ops.py::Norm.size", "is a property"),
        ("../secrets.py::f", "inside the repository"),
        ("/etc/passwd::f", "inside the repository"),
        ("pkg::f", "not a Python file"),
        ("pkg/fast.pyx::f", "is Cython code"),
        ("pkg/ops.py::torch", "is bound at line 1"),
    ],
)
def test_a_wrong_target_says_what_is_wrong(
    extract_from: Extract, target: str, message: str
) -> None:
    with pytest.raises(TargetError, match=message):
        extract_from(OPS, target)


def test_a_link_that_leaves_the_repository_is_refused(
    write_repo: WriteRepo, extract_from: Extract, tmp_path: Path
) -> None:
    outside = tmp_path / "outside.py"
    outside.write_text("def f(x):\n    return x\n")
    (write_repo(OPS) / "pkg" / "link.py").symlink_to(outside)
    with pytest.raises(TargetError, match="leaves the repository"):
        extract_from(OPS, "pkg/link.py::f")


def test_a_syntax_error_is_reported_with_its_line(extract_from: Extract) -> None:
    with pytest.raises(TargetError, match=r"bad\.py:2: syntax error"):
        extract_from({"bad.py": "def f(x):\n    return (x\n"}, "bad.py::f")


def test_an_ambiguous_name_lists_its_lines(extract_from: Extract) -> None:
    source = """\
        import torch
        import random
        if random.random() > 0.5:
            def f(x):
                return x
        else:
            def f(x):
                return x + 1
        """
    with pytest.raises(TargetError, match="lines 4, 7"):
        extract_from({"a.py": source}, "a.py::f")


def test_a_platform_flag_decides_between_two_definitions(extract_from: Extract) -> None:
    source = """\
        from other import is_cuda
        _is_cuda = is_cuda()
        if _is_cuda:
            def f(x):
                return x
        else:
            def f(x):
                return x + 1
        """
    assert "x + 1" not in extract_from({"a.py": source}, "a.py::f").source


def test_overload_stubs_are_not_definitions(extract_from: Extract) -> None:
    source = """\
        from typing import overload
        @overload
        def f(x: int) -> int: ...
        @overload
        def f(x: str) -> str: ...
        def f(x):
            return x
        """
    assert extract_from({"a.py": source}, "a.py::f").arguments == ("x",)


@pytest.mark.parametrize("start", [b"\xef\xbb\xbf", b""])
@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_a_byte_order_mark_and_the_ends_of_lines_change_nothing(
    tmp_path: Path, start: bytes, newline: bytes
) -> None:
    text = newline.join([b"import torch", b"def f(x):", b"    return x * 2", b""])
    (tmp_path / "ops.py").write_bytes(start + text)
    assert extract_source("ops.py::f", tmp_path).source.endswith("def f(x):\n    return x * 2\n")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"# caf\xe9\ndef f(x): ...\n", "ops.py is not text in UTF-8"),
        (b"\x7fELF\xff\xfe", "ops.py is not text in UTF-8"),
        (b"x = 1\0", "ops.py:1: syntax error"),
        (b"", "no function or class f in ops.py"),
        (b"x = " + b"1+" * 9000 + b"1", "ops.py cannot be read"),
    ],
)
def test_a_file_that_is_no_source_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "ops.py").write_bytes(content)
    with pytest.raises(TargetError, match=message):
        extract_source("ops.py::f", tmp_path)


def test_a_link_that_leads_nowhere_is_named_as_one(tmp_path: Path) -> None:
    (tmp_path / "ops.py").symlink_to("ops.py")
    with pytest.raises(TargetError, match="leads nowhere"):
        extract_source("ops.py::f", tmp_path)
