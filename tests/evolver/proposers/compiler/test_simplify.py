"""The shortening of kernels: what goes, and what must stay where it is."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from evolver.proposers.compiler.emitter.simplify import simplify

SIGNATURE = {"in_ptr0": "*fp32", "in_ptr1": "*bf16", "out_ptr0": "*fp32", "out_ptr1": "*bf16"}


def simplified(body: str) -> str:
    text = "def kernel(in_ptr0, in_ptr1, out_ptr0, out_ptr1, xnumel, XBLOCK: tl.constexpr):\n"
    function = ast.parse(text + dedent(body).replace("\n", "\n    ")).body[0]
    assert isinstance(function, ast.FunctionDef)
    simplify(function, SIGNATURE)
    return "\n".join(ast.unparse(s) for s in function.body)


def test_a_value_used_once_moves_to_its_use() -> None:
    source = simplified("""
        tmp0 = tl.load(in_ptr0 + x, m)
        tmp1 = tmp0 * tmp0
        tmp2 = tmp1 + tmp0
        tl.store(out_ptr0 + x, tmp2, m)""")
    assert source.splitlines()[-1] == "tl.store(out_ptr0 + x, tmp0 * tmp0 + tmp0, m)"


def test_a_load_never_moves_past_a_store() -> None:
    source = simplified("""
        tmp0 = tl.load(in_ptr0 + x, m)
        tl.store(in_ptr0 + x, 0.0, m)
        tl.store(out_ptr0 + x, tmp0, m)""")
    assert source.splitlines()[0] == "tmp0 = tl.load(in_ptr0 + x, m)"


def test_a_widened_load_is_not_read_again_at_its_store() -> None:
    source = simplified("""
        tmp0 = tl.load(in_ptr1 + x, m).to(tl.float32)
        tl.store(in_ptr1 + x, 0.0, m)
        tl.store(out_ptr1 + x, tmp0, m)""")
    assert source.count("tl.load") == 1
    assert "tl.load" in source.splitlines()[0]


def test_a_constant_of_the_other_operands_type_becomes_a_literal() -> None:
    source = simplified("""
        tmp0 = tl.load(in_ptr0 + x, m)
        tmp1 = tl.full([1], 0.5, tl.float32)
        tmp2 = tmp0 * tmp1
        tl.store(out_ptr0 + x, tmp2, m)""")
    assert "tmp0 * 0.5" in source
    assert "tl.full" not in source


def test_a_constant_that_would_change_the_type_of_the_result_stays() -> None:
    source = simplified("""
        tmp0 = tl.load(in_ptr1 + x, m)
        tmp1 = tl.full([1], 0.1, tl.float32)
        tmp2 = tmp0 * tmp1
        tl.store(out_ptr0 + x, tmp2, m)""")
    assert "tl.full([1], 0.1, tl.float32)" in source


def test_rounding_a_value_that_was_loaded_as_bfloat16_goes() -> None:
    source = simplified("""
        tmp0 = tl.load(in_ptr1 + x, m).to(tl.float32)
        tmp1 = tmp0.to(tl.bfloat16)
        tmp2 = tmp1.to(tl.float32)
        tmp3 = tmp2 * tmp2
        tl.store(out_ptr0 + x, tmp3, m)""")
    assert "tl.bfloat16" not in source


def test_rounding_between_two_operations_stays() -> None:
    source = simplified("""
        tmp0 = tl.load(in_ptr1 + x, m).to(tl.float32)
        tmp1 = tmp0 * tmp0
        tmp2 = tmp1.to(tl.bfloat16).to(tl.float32)
        tmp3 = tmp2 + tmp0
        tl.store(out_ptr0 + x, tmp3, m)""")
    assert ".to(tl.bfloat16).to(tl.float32)" in source


def test_unread_values_go_and_atomics_stay() -> None:
    source = simplified("""
        rnumel = xnumel
        tmp0 = tl.load(in_ptr0 + x, m)
        tmp1 = tl.atomic_add(out_ptr0 + x, 1.0, m)""")
    assert source == "tmp1 = tl.atomic_add(out_ptr0 + x, 1.0, m)"


@pytest.mark.parametrize(
    ("use", "function"), [("tmp0 - tmp1", "tl.max"), ("tmp0 / tmp1", "triton_helpers.max2")]
)
def test_only_a_maximum_that_is_subtracted_may_lose_its_own_nan(use: str, function: str) -> None:
    source = simplified(f"""
        tmp0 = tl.load(in_ptr0 + x, m)
        tmp1 = triton_helpers.max2(tmp0, 1)[:, None]
        tmp2 = {use}
        tl.store(out_ptr0 + x, tmp2, m)""")
    assert f"{function}(tmp0, 1)" in source


def test_an_accumulator_is_not_folded_out_of_its_loop() -> None:
    source = simplified("""
        acc = tl.zeros([XBLOCK], tl.float32)
        for r in tl.range(0, xnumel, XBLOCK):
            tmp0 = tl.load(in_ptr0 + r, m)
            acc = acc + tmp0
        tl.store(out_ptr0 + x, acc, m)""")
    assert "acc = acc + tmp0" in source
    assert source.splitlines()[-1] == "tl.store(out_ptr0 + x, acc, m)"
