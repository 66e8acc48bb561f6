"""Where in a source file the dispatch goes, found with libcst and told in lines.

``find_site`` parses the file (never imports it) and returns plain numbers and names, so
that the edit itself can be a splice of whole lines that touches no other byte. It refuses
functions in which an early ``return`` would mean something else: generators, nested
functions, scripted functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import libcst as cst
import libcst.matchers as m
from libcst.metadata import (
    CodeRange,
    MetadataWrapper,
    PositionProvider,
    WhitespaceInclusivePositionProvider,
)

from integrations.patch.errors import PatchError, TargetMoved

_SCRIPTING = ("jit.script", "jit.script_method")
_Definition = TypeVar("_Definition", cst.ClassDef, cst.FunctionDef)
_Ranges = Mapping[cst.CSTNode, CodeRange]


@dataclass(frozen=True)
class OwnImport:
    """A top-level ``from module import ...`` of the file, or ``import ...`` (no module)."""

    first_line: int
    next_line: int
    module: str
    """As written: ``..moe_router``, ``sglang.srt.utils``; '' for ``import a, b``."""


@dataclass(frozen=True)
class FunctionSite:
    """The target function as the edit needs to know it. Lines count from 1."""

    insert_line: int
    """The dispatch goes before this line."""
    same_line_column: int | None
    """Column where the body starts when it shares the header's line, else None."""
    indent: str
    """Indentation of the body."""
    default_indent: str
    """One level, as the file has it."""
    newline: str
    encoding: str
    parameters: tuple[str, ...]
    """All parameters but a method's receiver."""
    keyword_only: frozenset[str]
    is_async: bool
    receiver: str | None
    """Name of a method's first parameter (``self``), else None."""
    decorators: tuple[str, ...]
    stable_attributes: frozenset[str]
    """Attributes that every instance surely has: set at the top of ``__init__`` or the class."""
    imports: tuple[OwnImport, ...]
    first_statement_line: int
    """Line of the first statement after the module's docstring and ``__future__`` imports."""
    names: frozenset[str]
    """Every identifier in the file, to choose a name that none of them is."""
    leading_comments: tuple[str, ...]
    """The comment lines that open the file, such as a licence header."""


def find_site(source: bytes, qualname: str) -> FunctionSite:
    """Find ``qualname`` (``function`` or ``Class.method``, classes may nest) in ``source``.

    Raises:
        TargetMoved: there is no such function, or more than one.
        PatchError: the file cannot be parsed, or a dispatch would change what it means.
    """
    try:
        wrapper = MetadataWrapper(cst.parse_module(source))
    except (cst.ParserSyntaxError, UnicodeDecodeError, LookupError) as error:
        raise PatchError(f"the target file cannot be parsed: {error}") from error
    module = wrapper.module
    lines = [line.decode(module.encoding) for line in source.splitlines()]
    function, owners = _locate(module, qualname)
    _refuse_what_cannot_return_early(function, qualname)
    inclusive: _Ranges = wrapper.resolve(WhitespaceInclusivePositionProvider)
    exact: _Ranges = wrapper.resolve(PositionProvider)
    decorators = tuple(module.code_for_node(d.decorator) for d in function.decorators)
    insert_line, column = _body_start(function, inclusive, exact)
    is_method = bool(owners) and "staticmethod" not in decorators
    names = _parameters(function, qualname)
    return FunctionSite(
        insert_line=insert_line,
        same_line_column=column,
        indent=_body_indent(function, module, exact, lines),
        default_indent=module.default_indent,
        newline=module.default_newline,
        encoding="utf-8" if module.encoding == "utf-8-sig" else module.encoding,
        parameters=names[1:] if is_method else names,
        keyword_only=frozenset(p.name.value for p in function.params.kwonly_params),
        is_async=function.asynchronous is not None,
        receiver=names[0] if is_method else None,
        decorators=decorators,
        stable_attributes=_stable_attributes(owners[-1]) if owners else frozenset(),
        imports=_top_level_imports(module, exact, inclusive),
        first_statement_line=_first_statement_line(module, inclusive),
        names=frozenset(n.value for n in m.findall(module, m.Name()) if isinstance(n, cst.Name)),
        leading_comments=_leading_comments(module),
    )


def _locate(module: cst.Module, qualname: str) -> tuple[cst.FunctionDef, list[cst.ClassDef]]:
    if "<locals>" in qualname:
        raise PatchError(f"{qualname} is defined inside a function; a dispatch cannot reach it")
    *class_names, name = qualname.split(".")
    body: Sequence[cst.CSTNode] = module.body
    owners: list[cst.ClassDef] = []
    for class_name in class_names:
        owners.append(_only(body, cst.ClassDef, class_name, qualname))
        body = owners[-1].body.body
    return _only(body, cst.FunctionDef, name, qualname), owners


def _only(
    body: Sequence[cst.CSTNode], kind: type[_Definition], name: str, qualname: str
) -> _Definition:
    found = [n for n in _flatten(body) if isinstance(n, kind) and n.name.value == name]
    if len(found) == 1:
        return found[0]
    how_many = "is not in the file" if not found else f"is defined {len(found)} times"
    raise TargetMoved(f"{name!r} (of {qualname!r}) {how_many}; extract the target again")


def _flatten(body: Sequence[cst.CSTNode]) -> list[cst.CSTNode]:
    """The statements of ``body`` and of the blocks in it that do not make a scope."""
    found: list[cst.CSTNode] = []
    for node in body:
        found.append(node)
        if isinstance(node, cst.ClassDef | cst.FunctionDef):
            continue
        for child in node.children:
            if isinstance(child, cst.IndentedBlock):
                found += _flatten(child.body)
            elif isinstance(child, cst.If | cst.Else | cst.Finally | cst.ExceptHandler):
                found += _flatten([child])
    return found


def _refuse_what_cannot_return_early(function: cst.FunctionDef, qualname: str) -> None:
    decorators = [cst.Module(body=[]).code_for_node(d.decorator) for d in function.decorators]
    if any(d.endswith(_SCRIPTING) for d in decorators):
        raise PatchError(f"{qualname} is scripted by torch.jit, which cannot hold a dispatch")
    if any(d.endswith(("overload", ".setter", ".deleter")) for d in decorators):
        raise PatchError(f"{qualname} is decorated with {decorators}; it is not a plain function")
    finder = _YieldFinder()
    function.body.visit(finder)
    if finder.found:
        raise PatchError(f"{qualname} is a generator; a dispatch cannot return from it")


class _YieldFinder(cst.CSTVisitor):
    """Looks for ``yield`` in a body, but not in functions defined inside it."""

    def __init__(self) -> None:
        super().__init__()
        self.found = False

    def visit_Yield(self, node: cst.Yield) -> None:  # noqa: ARG002
        self.found = True

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:  # noqa: ARG002
        return False

    def visit_Lambda(self, node: cst.Lambda) -> bool:  # noqa: ARG002
        return False


def _body_start(
    function: cst.FunctionDef, inclusive: _Ranges, exact: _Ranges
) -> tuple[int, int | None]:
    """Line before which the dispatch goes, and the column for a body on the header's line."""
    if isinstance(function.body, cst.SimpleStatementSuite):
        start = exact[function.body].start
        return start.line, start.column
    first = function.body.body[0]
    if not _is_docstring(first):
        return inclusive[first].start.line, None
    if isinstance(first, cst.SimpleStatementLine) and len(first.body) > 1:
        raise PatchError(
            "a statement shares the line of the target's docstring; give it a line of its own"
        )
    end = inclusive[first].end
    return (end.line if end.column == 0 else end.line + 1), None


def _is_docstring(statement: cst.CSTNode) -> bool:
    text = m.SimpleString() | m.ConcatenatedString()
    return m.matches(
        statement,
        m.SimpleStatementLine(body=[m.Expr(value=text), m.ZeroOrMore()]),
    )


def _body_indent(
    function: cst.FunctionDef, module: cst.Module, exact: _Ranges, lines: Sequence[str]
) -> str:
    """The white space before the body's first statement, as the file has it."""
    if isinstance(function.body, cst.IndentedBlock):
        return _leading_space(lines[exact[function.body.body[0]].start.line - 1])
    return _leading_space(lines[exact[function].start.line - 1]) + module.default_indent


def _leading_space(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _parameters(function: cst.FunctionDef, qualname: str) -> tuple[str, ...]:
    params = function.params
    if isinstance(params.star_arg, cst.Param) or params.star_kwarg is not None:
        raise PatchError(
            f"{qualname} takes *args or **kwargs, which the tested inputs say nothing about; "
            "name the parameters first"
        )
    listed = (*params.posonly_params, *params.params, *params.kwonly_params)
    return tuple(p.name.value for p in listed)


def _stable_attributes(owner: cst.ClassDef) -> frozenset[str]:
    """Names bound in the class body, or at the top level of its ``__init__``."""
    found: set[str] = set()
    for node in owner.body.body:
        if isinstance(node, cst.SimpleStatementLine):
            found |= {t.value for t in _assigned(node) if isinstance(t, cst.Name)}
        elif isinstance(node, cst.FunctionDef) and node.name.value == "__init__":
            for line in node.body.body:
                found |= _attributes_set_by(line)
    return frozenset(found)


def _assigned(line: cst.CSTNode) -> list[cst.BaseExpression]:
    targets: list[cst.BaseExpression] = []
    for small in line.children:
        if isinstance(small, cst.Assign):
            targets += [t.target for t in small.targets]
        elif isinstance(small, cst.AnnAssign) and small.value is not None:
            targets.append(small.target)
    return targets


def _attributes_set_by(line: cst.CSTNode) -> set[str]:
    attributes = [t for t in _assigned(line) if m.matches(t, m.Attribute(value=m.Name("self")))]
    found = {t.attr.value for t in attributes if isinstance(t, cst.Attribute)}
    registration = m.Call(
        func=m.Attribute(
            value=m.Name("self"), attr=m.Name("register_buffer") | m.Name("register_parameter")
        ),
        args=[m.Arg(value=m.SimpleString()), m.ZeroOrMore()],
    )
    if m.matches(line, m.SimpleStatementLine(body=[m.Expr(value=registration)])):
        text = m.findall(line, m.SimpleString())[0]
        if isinstance(text, cst.SimpleString):
            found.add(str(text.evaluated_value))
    return found


def _top_level_imports(
    module: cst.Module, exact: _Ranges, inclusive: _Ranges
) -> tuple[OwnImport, ...]:
    found = []
    for line in module.body:
        if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
            continue
        statement = line.body[0]
        if isinstance(statement, cst.Import | cst.ImportFrom):
            end = inclusive[line].end
            next_line = end.line if end.column == 0 else end.line + 1
            found.append(OwnImport(exact[line].start.line, next_line, _module_named(statement)))
    return tuple(found)


def _module_named(statement: cst.Import | cst.ImportFrom) -> str:
    if isinstance(statement, cst.Import):
        return ""
    name = cst.Module(body=[]).code_for_node(statement.module) if statement.module else ""
    return "." * len(statement.relative) + name


def _first_statement_line(module: cst.Module, inclusive: _Ranges) -> int:
    for number, statement in enumerate(module.body):
        future = m.SimpleStatementLine(body=[m.ImportFrom(module=m.Name("__future__"))])
        if (number == 0 and _is_docstring(statement)) or m.matches(statement, future):
            continue
        return inclusive[statement].start.line
    return 1


def _leading_comments(module: cst.Module) -> tuple[str, ...]:
    """The first block of comment lines, without a ``#!`` line or an encoding declaration."""
    comments: list[str] = []
    for line in module.header:
        if line.comment is None:
            if comments:
                break
            continue
        text = line.comment.value
        if not text.startswith("#!") and "coding:" not in text:
            comments.append(text)
    return tuple(comments)
