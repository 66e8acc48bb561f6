"""The workloads file, with what was seen beside it as comments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from integrations.capture.choosing import Chosen

_MOST_COMMENTS = 12


def workloads_text(
    head: Sequence[str],
    chosen: Sequence[Chosen],
    arguments: Sequence[Mapping[str, Any]],
    writes: Sequence[str],
    notes: Sequence[str],
) -> str:
    """Return the file: what all workloads share under ``arguments``, the rest with each.

    Args:
        head: lines of the comment at the top.
        chosen: the workloads, at least one, all made with one constructor.
        arguments: of each, as the file spells them.
        writes: tensors that some call was seen to write.
        notes: what of the elements could not be told again.
    """
    lines = [f"# {line}".rstrip() for line in head]
    lines += [f"# note: {note}" for note in dict.fromkeys(notes)][:_MOST_COMMENTS]
    made = chosen[0].form.constructor
    if made is not None:
        lines += ["constructor:", *_entries({n: a.value for n, a in made.items()}, "  ")]
    names = arguments[0]
    shared = {n: v for n, v in names.items() if all(a.get(n, _NONE) == v for a in arguments)}
    if shared:
        lines += ["arguments:", *_entries(shared, "  ")]
    lines += ["workloads:"]
    for number, (one, given) in enumerate(zip(chosen, arguments, strict=True), 1):
        lines += [f"  - name: captured-{number}", f"    weight: {one.calls}"]
        own = {n: v for n, v in given.items() if n not in shared}
        if own:
            lines += ["    arguments:", *_entries(own, "      ")]
    if writes:
        lines += ["contract:", f"  seen_writes: {_flow(list(writes))}"]
    return "\n".join(lines) + "\n"


_NONE = object()


def _entries(values: Mapping[str, Any], indent: str) -> list[str]:
    if not values:
        return [f"{indent}{{}}"]
    return [f"{indent}{_flow(name)}: {_flow(value)}" for name, value in values.items()]


def _flow(value: object) -> str:
    """One line of YAML."""
    text: str = yaml.safe_dump(
        [value], default_flow_style=True, sort_keys=False, width=float("inf"), allow_unicode=True
    )
    return text.strip()[1:-1]
