"""Which program a reply means, and which replies mean none."""

from __future__ import annotations

import textwrap

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
        full(program()).replace("\n", "\r\n"),
        "1. Here:\n" + textwrap.indent(f"```python\n{program()}```\n", "     "),
        f"[THINK]So.[/THINK]{full(program())}",
        f"<|channel|>analysis<|message|>So.<|end|><|channel|>final<|message|>"
        f"```python\n{program()}```<|return|>",
    ],
    ids=[
        "plain",
        "tildes",
        "other languages",
        "sketches",
        "thought",
        "bare",
        "markers",
        "CRLF",
        "a list",
        "Mistral",
        "gpt-oss",
    ],
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
    ("search", "times"),
    [
        ("SPEED = 9\n", "not once"),
        ("EED = 1.0\n", "not once"),
        ("a = 1\n", "more than once"),
        ("\n", "not once"),
        ("", "not once"),
    ],
)
def test_an_edit_must_name_one_place(search: str, times: str) -> None:
    with pytest.raises(ReplyFault, match=f"edit 1 occurs {times}"):
        parse(edit(search, "x\n"), parent=f"{program(1.0)}a = 1\nb = 2\na = 1\n")


@pytest.mark.parametrize(
    "search",
    ["return native.fused(x), residual\n", "    return native.fused(x), residual  \n"],
    ids=["indentation", "blanks at the end"],
)
def test_an_edit_is_forgiven_its_blanks(search: str) -> None:
    indent = " " * (len(search) - len(search.lstrip()))
    text = edit(search, f"{indent}y = x\n\n{indent}return native.fused(y), residual\n")
    assert parse(text, parent=program()).source == program().replace(
        "    return native.fused(x)", "    y = x\n\n    return native.fused(y)"
    )


def test_edits_in_a_fence_and_with_foreign_line_ends_are_found() -> None:
    text = "Double it.\n```\n" + edit("SPEED = 1.0\n", "SPEED = 2.0\n") + "```\n"
    proposal = parse(text.replace("\n", "\r\n"), parent=program(1.0))
    assert (proposal.plan, proposal.source) == ("Double it.", program(2.0))


def test_a_comment_that_looks_like_the_divider_does_not_divide() -> None:
    parent = f"# =======\n{program()}"
    assert parse(edit("# =======\n", "# -----\n"), parent=parent).source.startswith("# -----\n")


def test_an_edit_that_is_never_closed_undoes_the_others() -> None:
    text = edit("SPEED = 1.0\n", "SPEED = 2.0\n") + "<<<<<<< SEARCH\ndef"
    with pytest.raises(ReplyFault, match="never closed"):
        parse(text, parent=program(1.0))


HUGE = {
    "openings": "<<<<<<< SEARCH\n" * 20_000,
    "fences": "```\n" * 50_000,
    "edits": edit("a\n", "b\n") * 5_000,
    "a search": edit("x\n" * 50_000, "b\n"),
    "reasoning": "<think>" * 50_000,
}


@pytest.mark.parametrize("text", HUGE.values(), ids=HUGE.keys())
def test_a_huge_reply_is_refused_before_the_tests_time_out(text: str) -> None:
    """Where it took the square of its length, it would be many minutes."""
    with pytest.raises(ReplyFault):
        parse(text[:390_000], parent="x\n" * 30_000 + program())


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
