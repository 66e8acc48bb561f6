"""Which sources are one program: only what certainly changes nothing is left out."""

from __future__ import annotations

import pytest

from evaluator.candidate import BackendName, candidate_id
from evaluator.normal_form import cpp_normal_form
from tests import samples

TRITON, CPP = samples.RMS_NORM_TRITON, samples.RMS_NORM_CPP


def is_same(one: str, other: str) -> bool:
    assert one != other
    return candidate_id(one, BackendName.TRITON) == candidate_id(other, BackendName.TRITON)


def replaced(source: str, *pairs: tuple[str, str]) -> str:
    for old, new in pairs:
        assert old in source
        source = source.replace(old, new)
    return source


@pytest.mark.parametrize(
    "pairs",
    [
        [("    row = tl", "    # the row\n    row  =  tl")],
        [("value", "v"), ("wide", "w32"), ("normed", "scaled")],
        [("rms_norm_kernel", "kernel_of_the_norm")],
        [("block = ", "size = "), ("BLOCK=block", "BLOCK=size")],
        [("BLOCK=block, num_warps=4", "num_warps=4, BLOCK=block")],
        [("@triton.jit\ndef rms_norm_kernel", "@triton.jit\n\ndef rms_norm_kernel")],
    ],
)
def test_what_changes_nothing_makes_no_new_candidate(pairs: list[tuple[str, str]]) -> None:
    assert is_same(TRITON, replaced(TRITON, *pairs))


@pytest.mark.parametrize(
    "pairs",
    [
        [("num_warps=4", "num_warps=8")],
        [("wide * wide", "wide * scale")],
        [("tl.load(x + row", "tl.load(r + row")],
        [("def rms_norm(x, residual, weight, eps)", "def rms_norm(x, weight, residual, eps)")],
        [("def rms_norm(", "def norm(")],
        [("BLOCK=block, num_warps=4", "num_warps=f(), BLOCK=g()")],
    ],
)
def test_what_may_change_something_makes_a_new_one(pairs: list[tuple[str, str]]) -> None:
    assert not is_same(TRITON, replaced(TRITON, *pairs))


def test_calls_in_arguments_keep_their_order() -> None:
    one = replaced(TRITON, ("BLOCK=block, num_warps=4", "num_warps=f(), BLOCK=g()"))
    assert not is_same(one, replaced(one, ("num_warps=f(), BLOCK=g()", "BLOCK=g(), num_warps=f()")))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("def f(x):\n    y = x\n    return y", "def f(x):\n    x = x\n    return x"),
        ("def f(x):\n    a = b = x\n    return a", "def f(x):\n    a = b = x\n    return b"),
        ("def f(x):\n    y = x\n    return z", "def f(x):\n    z = x\n    return y"),
        ("def f():\n    y = 1\n    return locals()", "def f():\n    z = 1\n    return locals()"),
        ("def f():\n    global y\n    y = 1", "def f():\n    global z\n    z = 1"),
        (
            "def f(x):\n    y = 1\n    def g():\n        return y\n    return g",
            "def f(x):\n    z = 1\n    def g():\n        return y\n    return g",
        ),
    ],
)
def test_names_that_mean_something_keep_their_meaning(one: str, other: str) -> None:
    assert not is_same(one, other)


def test_a_kernel_and_a_local_are_never_taken_for_each_other() -> None:
    kernel = "@triton.jit\ndef k(x):\n    pass\ndef f(x):\n    y = x\n    return "
    assert not is_same(kernel + "y", kernel + "k")


def test_a_kernel_whose_name_is_looked_up_keeps_it() -> None:
    listed = TRITON + "\n__all__ = ['rms_norm_kernel', 'k']\n"
    renamed = listed.replace("def rms_norm_kernel", "def k").replace(" rms_norm_kernel[", " k[")
    assert not is_same(listed, renamed)


def test_comments_and_formatting_of_the_cpp_do_not_count() -> None:
    assert is_same(
        CPP,
        replaced(
            CPP,
            ("float total = 0.0f;", "float total=0.0f;  // sums /* the */ squares"),
            (
                "    for (int64_t j = 0; j < cols; ++j) {\n      out",
                "for(int64_t j=0;j<cols;++j){out",
            ),
        ),
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a - -b", "a -- b"),
        ("x = a; // b", "x = a; b"),
        ('s = "a // b";', 's = "a // c";'),
        ('s = "a  b";', 's = "a b";'),
        ("#pragma omp simd\nfor (;;) a();\nb();", "for (;;) a();\n#pragma omp simd\nb();"),
        ("#define F(x) x", "#define F (x) x"),
        ("#define F \\\n  a", "#define F\n  a"),
        ("a b", "ab"),
        ('R"(// a)"', 'R"(// b)"'),
        ("f(1'000, \"a'//b\");", "f(1'000, \"a'//c\");"),
    ],
)
def test_cpp_that_may_differ_differs(one: str, other: str) -> None:
    assert cpp_normal_form(one) != cpp_normal_form(other)


def test_a_quote_in_a_character_opens_no_string() -> None:
    assert cpp_normal_form("c = '\"'; // x\ny") == cpp_normal_form("c = '\"'; y // x")
