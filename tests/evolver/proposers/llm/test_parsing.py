"""Which program a reply means, and which replies mean none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolver.proposers.llm.parsing import Proposal, ReplyFault, parse_reply
from tests.evolver.proposers.llm.server import BODY, full, program


def parse(text: str, *, finish: str | None = "stop", parent: str | None = None) -> Proposal:
    return parse_reply(text, finish, entry="rms_norm", parent_source=parent)


def edit(search: str, replacement: str) -> str:
    return f"<<<<<<< SEARCH\n{search}=======\n{replacement}>>>>>>> REPLACE\n"


@pytest.mark.parametrize(
    "text",
    [
        full(program()),
        f"Plan.\n~~~~\n{program()}~~~~",
        f"```py\r\n{program()}```\n\nRun it like this:\n```bash\npython x.py\n```\n",
        f"{full(program(1.1))}\nNo, better:\n{full(program())}\nUsage:\n```\nrms_norm(a)\n```",
        f"Let me think.</think>\n{full(program())}",
        program(),
        f"```python\n# EVOLVE-BLOCK-START\n{program()}# EVOLVE-BLOCK-END\n```",
    ],
    ids=["plain", "tildes", "other languages", "sketches", "thought", "bare", "markers"],
)
def test_the_last_complete_block_that_defines_the_entry_is_the_program(text: str) -> None:
    assert parse(text).source == program()


def test_a_fence_within_a_docstring_does_not_end_the_program() -> None:
    source = f'{BODY}\n\ndef helper():\n    """Use.\n\n    ```\n    helper()\n    ```\n    """\n'
    assert parse(full(source)).source == source


def test_the_plan_is_what_stands_before_the_program() -> None:
    text = f"<think>secret</think>Tile it.\x00\n{full(program(), plan='Then fuse.')}"
    assert parse(text).plan == "Tile it.?\n\nThen fuse."


def test_edits_apply_in_order_and_markers_in_them_do_not_count() -> None:
    text = edit("# EVOLVE-BLOCK-START\nSPEED = 1.0\n", "SPEED = 2.0\n") + edit(
        "SPEED = 2.0\n", "SPEED = 3.0\n"
    )
    assert parse(text, parent=program(1.0)).source == program(3.0)


@pytest.mark.parametrize(
    ("search", "times"), [("SPEED = 9\n", 0), ("EED = 1.0\n", 0), ("a = 1\n", 2), ("\n", 0)]
)
def test_an_edit_must_name_one_place(search: str, times: int) -> None:
    with pytest.raises(ReplyFault, match=f"edit 1 occurs {times} times"):
        parse(edit(search, "x\n"), parent=f"{program(1.0)}a = 1\nb = 2\na = 1\n")


def test_an_edit_that_removes_the_entry_is_refused() -> None:
    with pytest.raises(ReplyFault, match="does not define rms_norm"):
        parse(
            edit("def rms_norm(x, residual, weight, eps):\n", "def other(x):\n"), parent=program()
        )


@pytest.mark.parametrize("finish", ["stop", None])
def test_a_cut_reply_is_a_failure_even_with_a_complete_block(finish: str | None) -> None:
    with pytest.raises(ReplyFault, match="was cut"):
        parse(f"{full(program(1.1))}```python\nSPEED = 1.9\n", finish=finish)
    with pytest.raises(ReplyFault, match="limit of tokens"):
        parse(full(program()), finish="length")


PIECES = st.sampled_from(
    ["```python\n", "```\n", "~~~\n", program(), "<think>", "</think>", "<<<<<<< SEARCH\n",
     "=======\n", ">>>>>>> REPLACE\n", "SPEED = 1.0\n", "\0", "\ud800", "# EVOLVE-BLOCK-END\n"]
)  # fmt: skip


@given(st.lists(st.one_of(PIECES, st.text(max_size=20)), max_size=12).map("".join))
def test_whatever_comes_is_a_program_with_the_entry_or_a_fault(text: str) -> None:
    try:
        proposal = parse(text, parent=program(1.0))
    except ReplyFault:
        return
    assert "def rms_norm" in proposal.source
    compile(proposal.source, "candidate", "exec", dont_inherit=True)
