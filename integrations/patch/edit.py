"""The edit of the target file: one import and one dispatch; every other byte stays.

The file is spliced at line boundaries and never re-printed, so comments, tabs, CRLF, odd
encodings and a missing last newline survive. What was inserted is checked by taking it out
again and by parsing the result.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from integrations.patch.errors import PatchError
from integrations.patch.site import FunctionSite

_LINE_LIMIT = 88


@dataclass(frozen=True)
class KernelImport:
    """How the target file reaches the kernel file."""

    package: str
    """``.`` or ``.kernels``, ``pkg.sub``; '' where the file belongs to no package."""
    module: str
    """The kernel module's own name."""
    optional: bool
    """Whether the import may fail (a compiler or library that not every machine has)."""

    def lines(self, indent: str) -> list[str]:
        """The import as lines without newlines."""
        if self.package:
            statement = f"from {self.package} import {self.module}"
        else:
            statement = f"import {self.module}"
        if not self.optional:
            return [statement]
        return [
            "try:",
            f"{indent}{statement}",
            "except ImportError:  # the kernel's compiler is not installed: keep the path below",
            f"{indent}{self.module} = None",
        ]


def insert_dispatch(
    source: bytes,
    site: FunctionSite,
    kernel: KernelImport,
    *,
    entry: str,
    arguments: tuple[str, ...],
    state: tuple[str, ...],
) -> bytes:
    """Return ``source`` with the import and the dispatch put in.

    Raises:
        PatchError: the result does not parse, or the name of the kernel module is taken.
    """
    if kernel.module in site.names:
        raise PatchError(
            f"the name {kernel.module!r} is used in the target file already; "
            "the branch that added it may be merged: extract the target again"
        )
    lines = source.splitlines(keepends=True)
    guard_lines = _dispatch(site, kernel, entry, (*arguments, *_state_values(site, state)))
    edited = _put_in_function(lines, site, guard_lines)
    line, set_off = _place_import(site, kernel)
    block = (
        ["", *kernel.lines(site.default_indent)] if set_off else kernel.lines(site.default_indent)
    )
    at = line - 1
    edited[at:at] = [_encode(line, site) for line in block]
    result = b"".join(edited)
    try:
        ast.parse(result)
    except (SyntaxError, ValueError) as error:
        raise PatchError(f"the edited file would not parse ({error}); nothing was done") from error
    return result


def _encode(line: str, site: FunctionSite) -> bytes:
    return (line + site.newline).encode(site.encoding)


def _state_values(site: FunctionSite, state: tuple[str, ...]) -> tuple[str, ...]:
    """``self.x`` where every instance has it, else a reading that cannot raise."""
    if state and site.receiver is None:
        raise PatchError("the problem has state but the target is not a method; extract it again")
    return tuple(
        f"{site.receiver}.{name}"
        if name in site.stable_attributes
        else f'getattr({site.receiver}, "{name}", None)'
        for name in state
    )


def _dispatch(
    site: FunctionSite, kernel: KernelImport, entry: str, values: tuple[str, ...]
) -> list[str]:
    present = f"{kernel.module} is not None and " if kernel.optional else ""
    condition = _call(f"if {present}{kernel.module}.can_use", values, ":", site.indent, site)
    inner = site.indent + site.default_indent
    return condition + _call(f"return {kernel.module}.{entry}", values, "", inner, site)


def _call(
    head: str, values: tuple[str, ...], tail: str, indent: str, site: FunctionSite
) -> list[str]:
    """``head(values)tail`` on one line, or folded as black folds it."""
    whole = f"{indent}{head}({', '.join(values)}){tail}"
    if len(whole) <= _LINE_LIMIT:
        return [whole]
    deeper = indent + site.default_indent
    packed = f"{deeper}{', '.join(values)}"
    middle = [packed] if len(packed) <= _LINE_LIMIT else [f"{deeper}{v}," for v in values]
    return [f"{indent}{head}(", *middle, f"{indent}){tail}"]


def _put_in_function(lines: list[bytes], site: FunctionSite, block: list[str]) -> list[bytes]:
    at = site.insert_line - 1
    encoded = [_encode(line, site) for line in block]
    if site.same_line_column is not None:
        return [*lines[:at], *_opened(lines[at], site, encoded), *lines[at + 1 :]]
    if at == len(lines) and not lines[-1].endswith((b"\n", b"\r")):
        return [*lines[:-1], lines[-1] + site.newline.encode(), *encoded]
    return [*lines[:at], *encoded, *lines[at:]]


def _opened(line: bytes, site: FunctionSite, block: list[bytes]) -> list[bytes]:
    """``def f(x): return x`` with its body moved to a line of its own, below the dispatch."""
    text = line.decode(site.encoding)
    header, body = text[: site.same_line_column].rstrip(), text[site.same_line_column :]
    return [_encode(header, site), *block, (site.indent + body).encode(site.encoding)]


def _place_import(site: FunctionSite, kernel: KernelImport) -> tuple[int, bool]:
    """The line before which the import goes, and whether a blank line sets it off.

    In order among imports of its own package, else after the last import. Imports below the
    target do not count.
    """
    opening = [i for i in site.imports if i.next_line <= site.insert_line]
    if not opening:
        return site.first_statement_line, False
    top = kernel.package.split(".")[0]
    kin = [i for i in opening if kernel.package and i.module.split(".")[0] == top and i.module]
    if kernel.optional or not kin:
        return opening[-1].next_line, True
    later = next((i for i in kin if top and i.module > kernel.package), None)
    return (later.first_line if later else kin[-1].next_line), False
