from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evolver.proposers.synth.extents import Extent, ExtentError, product
from evolver.proposers.synth.interpreter import run
from evolver.proposers.synth.ir import (
    Builder,
    Cast,
    Concat,
    Constant,
    ElementType,
    Expand,
    Gather,
    Input,
    IrError,
    Pointwise,
    Reduce,
    Reshape,
    Returned,
    Scatter,
    Select,
    Slice,
    Symbol,
    TopK,
    Update,
    tensor,
)

FLOAT, WHOLE = ElementType.FLOAT32, ElementType.INT64
extents = st.recursive(
    st.integers(-9, 9).map(Extent.of) | st.sampled_from(["s0", "s1"]).map(Extent.of),
    lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(
        lambda t: t[0] + t[2] if t[1] == "+" else t[0] - t[2] if t[1] == "-" else t[0] * t[2]
    ),
    max_leaves=5,
)
sizes = st.fixed_dictionaries({"s0": st.integers(0, 50), "s1": st.integers(0, 50)})


@given(extents, extents, sizes)
def test_extents_calculate_as_numbers_do(a: Extent, b: Extent, at: dict[str, int]) -> None:
    assert (a + b).at(at) == a.at(at) + b.at(at)
    assert (a * b - b).at(at) == a.at(at) * b.at(at) - b.at(at)
    assert Extent.of(str(a)) == a
    quotient = a.divided_by(b)
    if quotient is not None:
        assert quotient * b == a


@pytest.mark.parametrize(
    "text", ["s0//2", "max(s0, 1)", "1.5", "s0 +", "__import__('os')", "s0**9"]
)
def test_an_extent_that_is_no_polynomial_is_refused(text: str) -> None:
    with pytest.raises(ExtentError, match="no sum of products"):
        Extent.of(text)


def test_operands_of_different_types_are_refused() -> None:
    build = Builder()
    x = build.add(Input("x", tensor(FLOAT, 4, 8)))
    i = build.add(Input("i", tensor(WHOLE, 4, 2)))
    one = build.add(Constant(1.0, FLOAT))
    refused = [
        lambda: build.add(Pointwise("add"), x, one),
        lambda: build.add(Pointwise("add"), x, build.add(Cast(WHOLE), x)),
        lambda: build.add(Pointwise("exp"), i),
        lambda: build.add(Pointwise("frobnicate"), x),
        lambda: build.add(Select(), x, x, x),
        lambda: build.add(Reduce("sum", (2,)), x),
        lambda: build.add(Reduce("any", (1,)), x),
        lambda: build.add(TopK(9, 1), x),
        lambda: build.add(Gather(0), x, i),
        lambda: build.add(Gather(1), x, x),
        lambda: build.add(Scatter(1), x, i, x),
        lambda: build.add(Reshape(tensor(FLOAT, 5, 7).shape), x),
        lambda: build.add(Expand(tensor(FLOAT, 4, 9).shape), x),
        lambda: build.add(Slice(1, Extent.of(5), Extent.of(4)), x),
        lambda: build.add(Concat(0), x, i),
        lambda: build.add(Update(1, Extent.of(7)), x, x),
    ]  # fmt: skip
    for add in refused:
        with pytest.raises(IrError):
            add()
    assert build.type(x) == tensor(FLOAT, 4, 8)


def test_a_slice_must_fit_every_workload() -> None:
    build = Builder([Symbol("s0", (8, 3))])
    x = build.add(Input("x", tensor(FLOAT, "s0")))
    build.add(Slice(0, Extent.of(0), Extent.of(3)), x)
    with pytest.raises(IrError, match="s0 = 3"):
        build.add(Slice(0, Extent.of(0), Extent.of(4)), x)


def test_equal_nodes_are_one_and_unused_ones_are_dropped() -> None:
    build = Builder()
    x = build.add(Input("x", tensor(FLOAT, 4)))
    y = build.add(Pointwise("exp"), x)
    assert build.add(Pointwise("exp"), x) == y
    build.add(Pointwise("sin"), x)
    program = build.finish([Returned(node=y)])
    assert [str(node.op) for node in program.nodes] == ["input x", "exp"]
    assert program.text().splitlines()[-1] == "return %1"


_UNARY = ("exp", "sigmoid", "neg", "abs", "tanh", "floor")
_BINARY = ("add", "mul", "maximum", "sub")


@given(st.data())
def test_random_programs_compute_what_eager_does(data: st.DataObject) -> None:
    rows, cols = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 6))
    build = Builder()
    x = torch.randn(rows, cols, generator=torch.Generator().manual_seed(0))
    shape = tensor(FLOAT, rows, cols).shape
    numbers, values = [build.add(Input("x", tensor(FLOAT, rows, cols)))], [x]
    for _ in range(data.draw(st.integers(1, 8))):
        i, j = (data.draw(st.integers(0, len(values) - 1)) for _ in range(2))
        a, b = values[i], values[j]
        kind = data.draw(st.sampled_from(("unary", "binary", "sum", "max", "sort", "flip", "mask")))
        if kind == "unary":
            name = data.draw(st.sampled_from(_UNARY))
            number, value = build.add(Pointwise(name), numbers[i]), getattr(torch, name)(a)
        elif kind == "binary":
            name = data.draw(st.sampled_from(_BINARY))
            number = build.add(Pointwise(name), numbers[i], numbers[j])
            value = getattr(torch, name)(a, b)
        elif kind in ("sum", "max"):
            reduced = build.add(Reduce(kind, (1,)), numbers[i])  # type: ignore[arg-type]
            kept = build.add(Reshape(tensor(FLOAT, rows, 1).shape), reduced)
            number = build.add(Expand(shape), kept)
            value = (
                a.sum(1, keepdim=True) if kind == "sum" else a.amax(1, keepdim=True)
            ).expand_as(a)
        elif kind == "sort":
            number = build.add(Gather(1), numbers[i], build.add(TopK(cols, 1), numbers[i]))
            value = a.sort(1, descending=True).values
        elif kind == "flip":
            number = build.add(Slice(1, Extent.of(cols - 1), Extent.of(cols), -1), numbers[i])
            value = a.flip(1)
        else:
            condition = build.add(Pointwise("lt"), numbers[i], numbers[j])
            number, value = build.add(Select(), condition, numbers[i], numbers[j]), a.minimum(b)
        numbers.append(number)
        values.append(value)
    outcome = run(build.finish([Returned(node=numbers[-1])]), {"x": x})
    torch.testing.assert_close(outcome.returned[0], values[-1], equal_nan=True)


def test_the_product_of_no_extents_is_one() -> None:
    assert product([]) == Extent.of(1)
