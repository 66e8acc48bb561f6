from __future__ import annotations

from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from evaluator.client import Client
from evaluator.evaluation import Clock
from evaluator.timing.contestant import Contestant

clocks = st.sampled_from(Clock)


def contestant(clock: Clock, buffers: int, steps: int, in_place: bool) -> Contestant:
    made = Contestant(
        cast(Client, None), 0, clock, seeds=min(8, buffers), buffers=buffers, in_place=in_place
    )
    made.calls = min(made.most_calls, steps * made.step)
    return made


@given(clocks, st.integers(1, 40), st.integers(1, 2000), st.booleans())
def test_every_length_of_block_is_of_whole_replays_and_within_its_limit(
    clock: Clock, buffers: int, steps: int, in_place: bool
) -> None:
    made = contestant(clock, buffers, steps, in_place)
    for calls in (made.calls, made.other_calls):
        assert calls % made.step == 0
        assert calls >= made.step
    assert made.calls <= made.most_calls
    assert made.other_calls != made.calls


@given(clocks, st.integers(1, 40), st.integers(1, 2000), st.booleans(), st.data())
def test_an_audited_block_ends_on_the_audited_buffer(
    clock: Clock, buffers: int, steps: int, in_place: bool, data: st.DataObject
) -> None:
    made = contestant(clock, buffers, steps, in_place)
    index = data.draw(st.integers(0, made.seeds - 1))
    calls = made.calls_ending_on(index)
    assert calls >= 1
    if clock is Clock.GRAPH_REPLAY:
        assert calls % made.step == 0
        return
    assert (calls - 1) % buffers == index
    if in_place:
        assert calls <= buffers
