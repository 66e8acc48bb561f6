"""Hints on the loops inside kernels: pipelining, unrolling and flattening by ``tl.range``.

``tl.static_range`` is left alone (it is unrolled by definition), and so is a loop over
anything but a range. Flattening is offered only for a loop that holds another one.
"""

from __future__ import annotations

import libcst as cst
import libcst.matchers as m

from evolver.proposers.mutate.operators import Option
from evolver.proposers.mutate.triton_source import (
    TritonSource,
    is_tl_call,
    parse_triton,
    set_keywords,
)

_HINTS = ("num_stages", "loop_unroll_factor", "flatten")
_CHOICES = (
    ("num_stages", "1"),
    ("num_stages", "2"),
    ("num_stages", "3"),
    ("num_stages", "4"),
    ("loop_unroll_factor", "2"),
    ("loop_unroll_factor", "4"),
    ("flatten", "True"),
)


def loop_hint_options(source: str) -> list[Option]:
    """Give one loop another hint, or none."""
    parsed = parse_triton(source)
    return [
        option
        for name, kernel in parsed.kernels.items()
        for loop in m.findall(kernel.body, m.For(iter=m.Call()))
        if isinstance(loop, cst.For)
        for option in _loop_options(parsed, name, loop)
    ]


def _loop_options(parsed: TritonSource, kernel: str, loop: cst.For) -> list[Option]:
    call = cst.ensure_type(loop.iter, cst.Call)
    if not (is_tl_call(call, "range") or m.matches(call.func, m.Name("range"))):
        return []
    now = {a.keyword.value: parsed.text(a.value) for a in call.args if a.keyword}
    current = {k: now[k] for k in _HINTS if k in now}
    nested = bool(m.findall(loop.body, m.For()))
    choices: list[dict[str, str]] = [
        {key: value} for key, value in _CHOICES if key != "flatten" or nested
    ]
    if current:
        choices.append({})
    return [_option(parsed, kernel, loop, c) for c in choices if c != current]


def _option(parsed: TritonSource, kernel: str, loop: cst.For, hint: dict[str, str]) -> Option:
    keywords: dict[str, str | None] = {name: hint.get(name) for name in _HINTS}

    def rewrite(node: cst.CSTNode) -> cst.Call:
        call = cst.ensure_type(node, cst.Call)
        return set_keywords(call.with_changes(func=cst.parse_expression("tl.range")), **keywords)

    what = ", ".join(f"{k}={v}" for k, v in hint.items()) or "no hint"
    description = f"{what} on the loop over {parsed.text(loop.target)} in {kernel}"
    return Option(description, lambda: parsed.replace({loop.iter: rewrite}))
