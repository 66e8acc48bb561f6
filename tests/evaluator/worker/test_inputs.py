from __future__ import annotations

from typing import Any

import pytest

from evaluator.tensors import plain_arguments
from evaluator.workload import DType, TensorSpec, ValueKind, Values, Workload

torch = pytest.importorskip("torch")

from evaluator.worker.inputs import generate  # noqa: E402 (needs torch)


def draw(seed: int = 1, **arguments: Any) -> dict[str, Any]:
    return generate(plain_arguments(Workload(name="w", arguments=arguments)), seed=seed)


def test_the_same_seed_gives_the_same_bytes_and_another_does_not() -> None:
    spec = TensorSpec(shape=(33, 7))
    assert torch.equal(draw(x=spec)["x"], draw(x=spec)["x"])
    assert not torch.equal(draw(x=spec)["x"], draw(seed=2, x=spec)["x"])


def test_another_argument_does_not_change_this_one() -> None:
    spec = TensorSpec(shape=(33, 7))
    assert torch.equal(draw(x=spec)["x"], draw(a=spec, x=spec)["x"])


@pytest.mark.parametrize("strides", [(16, 1), (1, 8), (0, 1), (24, 3)])
def test_strides_are_honoured(strides: tuple[int, int]) -> None:
    x = draw(x=TensorSpec(shape=(8, 8), strides=strides))["x"]
    assert x.stride() == strides
    assert x.shape == (8, 8)
    assert float(x.std()) > 0.1


def test_an_alias_is_the_very_tensor() -> None:
    spec = TensorSpec(shape=(8, 8))
    values = draw(x=spec, y=TensorSpec(shape=(8, 8), alias_of="x"))
    assert values["y"] is values["x"]


@pytest.mark.parametrize("kind", list(ValueKind))
@pytest.mark.parametrize("dtype", list(DType))
def test_every_kind_of_values_has_its_dtype_and_range(kind: ValueKind, dtype: DType) -> None:
    if kind in (ValueKind.NORMAL, ValueKind.UNIFORM) and not dtype.is_floating:
        pytest.skip("refused by the model")
    data = (3, 0, 2) if kind is ValueKind.CAPTURED else ()
    values = Values(kind=kind, low=0, high=4, data=data)
    x = draw(x=TensorSpec(shape=(4, 16), dtype=dtype, values=values))["x"]
    assert str(x.dtype) == f"torch.{dtype.value}"
    if kind is ValueKind.INTEGERS:
        assert float(x.to(torch.float64).min()) >= 0
        assert float(x.to(torch.float64).max()) < 4
    if kind is ValueKind.CAPTURED and dtype is not DType.BOOL:
        assert x.flatten().tolist() == (list(data) * 22)[:64]
    if kind is ValueKind.PERMUTATION and dtype is not DType.BOOL:
        assert sorted(x[0].tolist()) == list(range(16))
