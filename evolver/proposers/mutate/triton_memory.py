"""Cache hints of single loads and stores: ``eviction_policy`` or ``cache_modifier``.

PTX takes an eviction priority or a cache operator on one access, not both, so setting one
drops the other. The ways are those of ``tl.load`` and ``tl.store`` on NVIDIA devices.
"""

from __future__ import annotations

import libcst as cst

from evolver.proposers.mutate.operators import Option
from evolver.proposers.mutate.triton_source import (
    TritonSource,
    find_tl_calls,
    names_in,
    parse_triton,
    set_keywords,
)

_EVICTION = "eviction_policy"
_CACHE = "cache_modifier"
_HINTS = {
    "load": (
        (_EVICTION, "evict_first"),
        (_EVICTION, "evict_last"),
        (_CACHE, ".ca"),
        (_CACHE, ".cg"),
    ),
    "store": (
        (_EVICTION, "evict_first"),
        (_EVICTION, "evict_last"),
        (_CACHE, ".cs"),
        (_CACHE, ".wt"),
    ),
}


def cache_hint_options(source: str) -> list[Option]:
    """Give one load or store another hint, or none."""
    parsed = parse_triton(source)
    return [
        option
        for kernel in parsed.kernels.values()
        for kind in _HINTS
        for call in find_tl_calls(kernel.body, kind)
        for option in _hints(parsed, kernel, kind, call)
    ]


def _hints(
    parsed: TritonSource, kernel: cst.FunctionDef, kind: str, call: cst.Call
) -> list[Option]:
    now = {a.keyword.value: parsed.text(a.value).strip("'\"") for a in call.args if a.keyword}
    current = next(((k, now[k]) for k in (_EVICTION, _CACHE) if now.get(k)), None)
    choices = [hint for hint in _HINTS[kind] if hint != current]
    options = [_option(parsed, kernel, kind, call, hint) for hint in choices]
    return options if current is None else [*options, _option(parsed, kernel, kind, call, None)]


def _option(
    parsed: TritonSource,
    kernel: cst.FunctionDef,
    kind: str,
    call: cst.Call,
    hint: tuple[str, str] | None,
) -> Option:
    keywords: dict[str, str | None] = {_EVICTION: None, _CACHE: None}
    if hint is not None:
        keywords[hint[0]] = f'"{hint[1]}"'
    what = "no cache hint" if hint is None else f"{hint[0]} {hint[1]}"
    preposition = "from" if kind == "load" else "to"
    description = (
        f"{what} on a {kind} {preposition} {_pointer(kernel, call)} in {kernel.name.value}"
    )
    return Option(
        description, lambda: parsed.replace({call: lambda c: set_keywords(c, **keywords)})
    )


def _pointer(kernel: cst.FunctionDef, call: cst.Call) -> str:
    """Return the kernel parameter that the access goes through, for the description."""
    mentioned = names_in(call.args[0]) if call.args else set()
    parameters = [p.name.value for p in kernel.params.params]
    return next((p for p in parameters if p in mentioned), "memory")
