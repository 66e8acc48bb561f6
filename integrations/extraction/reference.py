"""The text of ``reference.py``: header, imports, definitions."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass

from evaluator.problem import Origin
from integrations.extraction.closure import Closure
from integrations.extraction.rewriting import class_code, piece_code

TAKES_MEMBERS = "_of_tensors"
"""How the name of a function ends that takes the members of lists one by one."""


@dataclass(frozen=True)
class Adapter:
    """A last function that takes the members of lists one by one, as problems need it."""

    arguments: tuple[str, ...]
    """As the target names them."""
    lists: Mapping[str, int]
    """Arguments that are lists of tensors, and how long they are."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """The arguments, with ``scores_0`` and ``scores_1`` in the place of the list ``scores``."""
        return tuple(p for name in self.arguments for p in self._members(name))

    def name(self, function: str) -> str:
        """What to call for ``function``."""
        return function + TAKES_MEMBERS if self.lists else function

    def code(self, function: str, *, is_method: bool) -> str:
        """The function's text."""
        given = ", ".join(
            f"[{', '.join(self._members(n))}]" if n in self.lists else n for n in self.arguments
        )
        called = f"{'self.' if is_method else ''}{function}({given})"
        taken = ", ".join([*(["self"] if is_method else []), *self.parameters])
        return (
            f"def {self.name(function)}({taken}):\n"
            f'    """Call {function} with its lists put together from single tensors."""\n'
            f"    return {called}\n"
        )

    def _members(self, name: str) -> list[str]:
        return [f"{name}_{i}" for i in range(self.lists[name])] if name in self.lists else [name]


def reference_source(closure: Closure, origin: Origin, adapter: Adapter | None = None) -> str:
    """Return a module that runs with torch and the standard library alone."""
    parts = [_header(closure, origin)]
    code = [piece_code(piece) for piece in closure.pieces]
    if closure.owner is not None:
        code.append(class_code(closure.owner))
    if adapter is not None and adapter.lists:
        is_method = closure.owner is not None or closure.constructed is not None
        text = adapter.code(closure.entry.name, is_method=is_method)
        if is_method:
            code[-1] += "\n" + textwrap.indent(text, "    ")
        else:
            code.append(text)
    previous_is_block = True
    for text in code:
        is_block = text.lstrip().startswith(("def ", "class ", "@", "#"))
        parts.append("\n\n" if is_block or previous_is_block else "")
        parts.append(text)
        previous_is_block = is_block
    source = "".join(parts)
    compile(source, "reference.py", "exec")
    return source


def _header(closure: Closure, origin: Origin) -> str:
    commit = f" at {origin.commit}" if origin.commit else ""
    licence = (
        f"Licence of the original: {origin.licence}."
        if origin.licence
        else ("No licence was found beside the original: ask before you publish this file.")
    )
    lines = [
        f'"""{origin.target}, extracted by ksmith.',
        "",
        f"From {origin.repository}{commit}.",
        licence,
        "What was dropped, folded or assumed is listed in problem.yaml beside this file.",
        '"""',
        "",
    ]
    if closure.lazy_annotations:
        lines += ["from __future__ import annotations", ""]
    return "\n".join([*lines, *_imports(closure)]) + "\n"


def _imports(closure: Closure) -> list[str]:
    """Return the import statements, the standard library first, one line per module."""
    members: dict[str, set[str]] = {}
    statements: set[str] = set()
    for external, name in closure.imports.items():
        statement = external.statement(name)
        if external.member is None:
            statements.add(statement)
        else:
            members.setdefault(external.module, set()).add(statement.partition(" import ")[2])
    statements |= {f"from {m} import {', '.join(sorted(n))}" for m, n in members.items()}
    ordered = sorted(statements, key=_import_order)
    own = next((i for i, s in enumerate(ordered) if _is_torch(s)), 0)
    return [*ordered[:own], *([""] if own else []), *ordered[own:]]


def _is_torch(statement: str) -> bool:
    return statement.split()[1].partition(".")[0] == "torch"


def _import_order(statement: str) -> tuple[bool, bool, str]:
    return _is_torch(statement), statement.startswith("from"), statement
