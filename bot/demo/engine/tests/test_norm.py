"""The norm: unit scale, residual kept, rows independent."""

import pytest
import torch

from pocketlm.norm import add_rms_norm


@pytest.mark.parametrize("rows", [1, 7, 16, 33])
def test_the_normed_rows_have_unit_scale(rows):
    generator = torch.Generator().manual_seed(rows)
    x, residual = torch.randn(2, rows, 256, generator=generator)
    normed, total = add_rms_norm(x, residual, torch.ones(256), 1e-6)
    torch.testing.assert_close(normed.pow(2).mean(dim=-1), torch.ones(rows), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(total, x + residual)


def test_the_weight_scales_each_column():
    x, residual = torch.ones(2, 4, 256)
    weight = torch.arange(256.0)
    normed, _ = add_rms_norm(x, residual, weight, 0.0)
    torch.testing.assert_close(normed, weight.expand(4, 256))


def test_arguments_are_not_written():
    x, residual = torch.randn(2, 16, 256)
    kept = x.clone(), residual.clone()
    add_rms_norm(x, residual, torch.ones(256), 1e-6)
    assert torch.equal(x, kept[0])
    assert torch.equal(residual, kept[1])


def test_gradients_flow():
    x = torch.randn(16, 256, requires_grad=True)
    add_rms_norm(x, torch.zeros(16, 256), torch.ones(256), 1e-6)[0].sum().backward()
    assert x.grad is not None
