"""Which generator a tensor came from."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.workload import TensorSpec, ValueKind, Values
from integrations.kernelbench.adapter import describe
from integrations.kernelbench.errors import NotCarried
from integrations.kernelbench.values import TensorFacts, fit_input
from integrations.probe.facts import tensor_facts
from tests.kernelbench_files import seen, stateless, with_buffer


def facts(tensor: torch.Tensor) -> TensorFacts:
    return TensorFacts.model_validate(tensor_facts(tensor))


def values_of(inputs: str) -> Values:
    spec = describe(seen(stateless(inputs))).workload.arguments["x"]
    assert isinstance(spec, TensorSpec)
    return spec.values


@settings(max_examples=30)
@given(
    low=st.floats(-5, 5),
    width=st.floats(0.1, 10),
    rows=st.integers(16, 80),
    seed=st.integers(0, 2**31),
)
def test_uniform_numbers_are_known_again_with_their_ends(
    low: float, width: float, rows: int, seed: int
) -> None:
    chance = torch.Generator().manual_seed(seed)
    found = fit_input(facts(torch.rand(rows, 64, generator=chance) * width + low))
    assert found.kind is ValueKind.UNIFORM
    assert abs(found.low - low) < 0.1 * width
    assert abs(found.high - low - width) < 0.1 * width


@settings(max_examples=30)
@given(
    mean=st.floats(-5, 5),
    std=st.floats(0.1, 10),
    rows=st.integers(16, 80),
    seed=st.integers(0, 2**31),
)
def test_normal_numbers_are_known_again_with_their_moments(
    mean: float, std: float, rows: int, seed: int
) -> None:
    chance = torch.Generator().manual_seed(seed)
    found = fit_input(facts(torch.randn(rows, 64, generator=chance) * std + mean))
    assert found.kind is ValueKind.NORMAL
    assert abs(found.mean - mean) < 0.2 * std
    assert abs(found.std - std) < 0.2 * std


@given(low=st.integers(-9, 9), count=st.integers(2, 50), seed=st.integers(0, 2**31))
@settings(max_examples=30)
def test_integers_are_never_taken_from_beyond_those_seen(low: int, count: int, seed: int) -> None:
    chance = torch.Generator().manual_seed(seed)
    drawn = torch.randint(low, low + count, (512,), generator=chance)
    found = fit_input(facts(drawn))
    if found.kind is ValueKind.INTEGERS:
        assert (found.low, found.high) == (int(drawn.min()), int(drawn.max()) + 1)
    else:
        assert drawn.min() == drawn.max()


def test_what_kernelbench_draws_is_rounded_to_what_it_wrote() -> None:
    assert values_of("torch.rand(64, 64)") == Values(kind=ValueKind.UNIFORM, low=0.0, high=1.0)
    assert values_of("torch.randn(64, 64)").kind is ValueKind.NORMAL
    assert values_of("torch.randint(0, 10, (4096,))").high == 10
    assert values_of("torch.randint(0, 2, (64, 64)).bool()").kind is ValueKind.INTEGERS
    assert values_of("torch.full((8, 8), 3.0)") == Values(kind=ValueKind.CONSTANT, low=3.0)
    assert values_of("torch.arange(5, 105)") == Values(kind=ValueKind.ARANGE, low=5)


@pytest.mark.parametrize(
    ("inputs", "why"),
    [
        ("torch.triu(torch.rand(64, 64))", "of them zero"),
        ("torch.tril(torch.ones(1024, 1024))", "triangle"),
        ("torch.rand(64, 64).softmax(dim=-1)", "rows that all have one sum"),
        ("(lambda a: (a + a.T) / 2)(torch.rand(256, 256))", "neither uniform nor normal"),
        ("torch.randint(0, 2, (4096,)).float() * 2 - 1", "not equally likely"),
        ("torch.linspace(0, 1, 4096)", "ascends"),
        ("torch.rand(64, 64) > 0.9", "a mask that is true for"),
        ("torch.full((8, 64), float('inf'))", "infinities"),
        ("[torch.rand(4), torch.rand(4)]", "is a list"),
        ("{'x': torch.rand(4)}", "is a dict"),
        ("torch.rand(8, 8, dtype=torch.complex64)", "complex64"),
    ],
)
def test_inputs_with_a_structure_are_refused_with_what_they_look_like(
    inputs: str, why: str
) -> None:
    with pytest.raises(NotCarried, match=why):
        describe(seen(stateless(inputs)))


@pytest.mark.parametrize(
    "value",
    [
        "torch.tril(torch.ones(64, 64))[:8]",
        "torch.randint(0, 5, (8, 64))",
        "torch.rand(8, 64) > 0.5",
    ],
)
def test_buffers_that_mean_something_are_not_drawn_anew(value: str) -> None:
    with pytest.raises(NotCarried, match="buffer kept"):
        describe(seen(with_buffer(value)))


def test_an_empty_tensor_has_no_distribution() -> None:
    assert fit_input(facts(torch.rand(0, 4))).kind is ValueKind.CONSTANT


def test_scalars_pass_as_they_are() -> None:
    text = stateless("torch.rand(8, 8), 0.5, 'mean'", arguments="x, weight, reduction")
    described = describe(seen(text))
    assert described.workload.scalars == {"weight": 0.5, "reduction": "mean"}
