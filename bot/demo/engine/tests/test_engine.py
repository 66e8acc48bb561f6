"""The engine: the same tokens each time, whatever the batch."""

import pytest
import torch

from pocketlm import Config, Engine


@pytest.fixture(scope="module")
def engine():
    return Engine(Config(layers=2))


def test_generation_is_repeatable(engine):
    prompts = torch.tensor([[1, 2, 3], [4, 5, 6]])
    assert torch.equal(engine.generate(prompts, 8), engine.generate(prompts, 8))


def test_sequences_of_a_batch_do_not_see_each_other(engine):
    prompts = torch.tensor([[1, 2, 3], [4, 5, 6]])
    together = engine.generate(prompts, 8)
    alone = torch.cat([engine.generate(row.unsqueeze(0), 8) for row in prompts])
    assert torch.equal(together, alone)


def test_too_long_a_generation_is_refused(engine):
    with pytest.raises(ValueError, match="exceed"):
        engine.generate(torch.tensor([[1]]), 1000)
