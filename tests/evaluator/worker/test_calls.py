from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from evaluator.worker.calls import BrokenContract, Target, load_state  # noqa: E402 (needs torch)


class Model(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(channels)

    def forward(self, x: Any) -> Any:
        return self.norm(x)


class Renamed(torch.nn.Module):  # type: ignore[misc]
    """As an optimiser writes it: the same tensors under other names."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.bn = torch.nn.BatchNorm1d(channels)

    def forward(self, x: Any) -> Any:
        return self.bn(x)


def state(channels: int = 3, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    return {
        "norm__weight": torch.randn(channels, dtype=dtype),
        "norm__bias": torch.randn(channels, dtype=dtype),
        "norm__running_mean": torch.randn(channels, dtype=dtype),
        "norm__running_var": torch.rand(channels, dtype=dtype) + 0.5,
        "norm__num_batches_tracked": torch.tensor(7),
    }


@pytest.mark.parametrize("owner", [Model, Renamed])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_constructed_module_computes_with_the_state_that_it_is_given(
    owner: type[Any], dtype: torch.dtype
) -> None:
    names = tuple(state())
    values = {"x": torch.randn(8, 3, dtype=dtype), **state(dtype=dtype)}
    target = Target("forward", "Model", ("x",), names, constructor=[3])
    expected = torch.nn.functional.batch_norm(
        values["x"],
        values["norm__running_mean"].clone(),
        values["norm__running_var"].clone(),
        values["norm__weight"],
        values["norm__bias"],
        training=True,
    )
    mean = values["norm__running_mean"].clone()
    with torch.no_grad():
        got = target.bind({"Model": owner}, values)()
    torch.testing.assert_close(got, expected)
    assert got.dtype is dtype
    assert not torch.equal(values["norm__running_mean"], mean), "what is written must be seen"


@pytest.mark.parametrize("channels", [2, 4])
def test_a_module_of_other_shapes_breaks_the_contract(channels: int) -> None:
    with pytest.raises(BrokenContract, match="shapes"):
        load_state(Renamed(channels), state())
    with pytest.raises(BrokenContract, match="shapes"):
        load_state(torch.nn.Linear(3, 3), state())
