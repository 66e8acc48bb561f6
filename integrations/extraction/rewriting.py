"""Carrying out edits with libcst: everything that is kept stays as it was written.

A definition's own lines are parsed (with the comments directly above it), each edit finds
its node by position, and the nodes come back without the indentation of where they stood.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from integrations.extraction.closure import ClassPiece
from integrations.extraction.edits import Drop, Edit, Replace, TakeBranch
from integrations.extraction.piece import Piece
from integrations.extraction.source import SourceModule

_Position = tuple[int, int]
_Span = tuple[_Position, _Position]
Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement


def piece_code(piece: Piece) -> str:
    """Return the edited text of a piece at the top level of a module."""
    nodes = rewrite(piece)
    return cst.Module(body=nodes).code.strip("\n") + "\n"


def class_code(owner: ClassPiece) -> str:
    """Return the text of the flattened class: constants first, then methods."""
    body: list[Statement] = []
    for piece in owner.members:
        nodes = rewrite(piece)
        blank = cst.EmptyLine(indent=False)
        if body and isinstance(piece.statement, ast.FunctionDef):
            first = nodes[0]
            assert isinstance(first, cst.FunctionDef)
            nodes[0] = first.with_changes(leading_lines=[blank, *_without_blanks(first)])
        body += nodes
    definition = cst.ClassDef(
        name=cst.Name(owner.name), lpar=cst.MaybeSentinel.DEFAULT, body=cst.IndentedBlock(body=body)
    )
    return cst.Module(body=[definition]).code.strip("\n") + "\n"


def rewrite(piece: Piece) -> list[Statement]:
    """Return the libcst nodes of a piece after its edits."""
    first, text = _lines_of(piece.module, piece.statement)
    # One line before the piece keeps its leading comments attached to it.
    is_indented = piece.statement.col_offset > 0
    wrapper = MetadataWrapper(cst.parse_module(("if True:\n" if is_indented else "pass\n") + text))
    spans = {
        node: ((p.start.line, p.start.column), (p.end.line, p.end.column))
        for node, p in wrapper.resolve(PositionProvider).items()
    }
    module = wrapper.module.visit(_Rewriter(_Located.of(piece, first), spans))
    body: list[Any] = _block_of(module.body[0]) if is_indented else list(module.body[1:])
    if isinstance(piece.statement, (ast.FunctionDef, ast.ClassDef)):
        body[0] = body[0].with_changes(name=cst.Name(piece.name))
    return body


@dataclass(frozen=True)
class _Located:
    """Edits by place: statements by where they begin, expressions by their whole span."""

    statements: dict[_Position, Edit]
    expressions: dict[_Span, Edit]

    @classmethod
    def of(cls, piece: Piece, first: int) -> _Located:
        located = cls({}, {})
        for node, edit in piece.edits.by_node.items():
            assert isinstance(node, (ast.stmt, ast.expr))
            start = _position(piece.module, node.lineno, node.col_offset, first)
            if isinstance(node, ast.stmt):
                located.statements[start] = edit
                continue
            assert node.end_lineno is not None
            assert node.end_col_offset is not None
            end = _position(piece.module, node.end_lineno, node.end_col_offset, first)
            located.expressions[(start, end)] = edit
        return located


class _Rewriter(cst.CSTTransformer):
    def __init__(self, edits: _Located, spans: dict[cst.CSTNode, _Span]) -> None:
        super().__init__()
        self.edits = edits
        self.spans = spans
        self.elifs: set[cst.CSTNode] = set()

    def on_leave(self, original_node: cst.CSTNode, updated_node: cst.CSTNode) -> Any:
        """Carry out the edit of a node once those below it are done."""
        result: Any = super().on_leave(original_node, updated_node)
        if isinstance(original_node, cst.BaseExpression):
            return self._expression(original_node, result)
        if isinstance(result, cst.IndentedBlock):
            return _never_empty(result)
        if isinstance(original_node, (cst.BaseSmallStatement, cst.BaseCompoundStatement)):
            return self._statement(original_node, result)
        return result

    def _statement(self, original: cst.CSTNode, updated: Any) -> Any:
        edit = self.edits.statements.get(self.spans[original][0])
        if isinstance(edit, Drop):
            return cst.RemoveFromParent()
        if not isinstance(original, cst.If):
            return updated
        updated = updated.with_changes(orelse=self._settled(original.orelse, updated.orelse))
        if not isinstance(edit, TakeBranch) or original in self.elifs:
            return updated
        kept = _block_of(updated) if edit.taken else _else_body(updated.orelse)
        return cst.FlattenSentinel(_with_comments(kept, updated.leading_lines))

    def visit_If(self, node: cst.If) -> None:
        """Remember which nodes are an ``elif``: they cannot give way to several statements."""
        if isinstance(node.orelse, cst.If):
            self.elifs.add(node.orelse)

    def _settled(self, original: cst.CSTNode | None, updated: Any) -> cst.If | cst.Else | None:
        """Carry out the edit of an ``elif`` from the ``if`` that it belongs to."""
        if not isinstance(original, cst.If) or not isinstance(updated, cst.If):
            return cast("cst.Else | None", updated)
        edit = self.edits.statements.get(self.spans[original][0])
        if not isinstance(edit, TakeBranch):
            return updated
        return cst.Else(body=updated.body) if edit.taken else updated.orelse

    def _expression(self, original: cst.CSTNode, updated: Any) -> Any:
        edit = self._edit_of(original)
        if isinstance(edit, Replace):
            new = cst.parse_expression(edit.text)
            return new.with_changes(lpar=updated.lpar, rpar=updated.rpar)
        if isinstance(edit, TakeBranch) and isinstance(updated, cst.IfExp):
            side = updated.body if edit.taken else updated.orelse
            outer = updated if updated.lpar else side
            return side.with_changes(lpar=outer.lpar, rpar=outer.rpar)
        return updated

    def _edit_of(self, node: cst.CSTNode) -> Edit | None:
        span = self.spans.get(node)
        return None if span is None else self.edits.expressions.get(span)

    def leave_Decorator(
        self, original_node: cst.Decorator, updated_node: cst.Decorator
    ) -> cst.Decorator | cst.RemovalSentinel:
        """Take a decorator off."""
        dropped = isinstance(self._edit_of(original_node.decorator), Drop)
        return cst.RemoveFromParent() if dropped else updated_node

    def leave_Param(self, original_node: cst.Param, updated_node: cst.Param) -> cst.Param:
        """Take a parameter's annotation off; its default loses the blanks around ``=``."""
        annotation = original_node.annotation
        if annotation is None or not isinstance(self._edit_of(annotation.annotation), Drop):
            return updated_node
        tight = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
        equal = cst.MaybeSentinel.DEFAULT if updated_node.default is None else tight
        return updated_node.with_changes(annotation=None, equal=equal)

    def leave_FunctionDef(
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef:
        """Take the annotation of the result off."""
        returns = original_node.returns
        if returns is None or not isinstance(self._edit_of(returns.annotation), Drop):
            return updated_node
        return updated_node.with_changes(returns=None)


def _lines_of(module: SourceModule, statement: ast.stmt) -> tuple[int, str]:
    """Return the first line (1-based) and the text of a statement with its own comments."""
    decorators = getattr(statement, "decorator_list", [])
    first = min([statement.lineno, *(d.lineno for d in decorators)])
    indent = " " * statement.col_offset
    while first > 1 and module.lines[first - 2].startswith(f"{indent}#"):
        first -= 1
    assert statement.end_lineno is not None
    text = "".join(module.lines[first - 1 : statement.end_lineno])
    return first, text if text.endswith("\n") else text + "\n"


def _position(module: SourceModule, line: int, offset: int, first: int) -> _Position:
    """Return where libcst sees a place: its line in the piece's text, its column in characters."""
    column = len(module.lines[line - 1].encode("utf-8")[:offset].decode("utf-8"))
    return line - first + 2, column


def _block_of(node: cst.CSTNode) -> list[Any]:
    body = getattr(node, "body", None)
    if isinstance(body, cst.IndentedBlock):
        return list(body.body)
    assert isinstance(body, cst.SimpleStatementSuite)
    return [cst.SimpleStatementLine(body=body.body)]


def _else_body(orelse: cst.If | cst.Else | None) -> list[Any]:
    if orelse is None:
        return []
    return [orelse] if isinstance(orelse, cst.If) else _block_of(orelse)


def _with_comments(body: list[Any], comments: Sequence[cst.EmptyLine]) -> list[Any]:
    """Keep the comments above a folded ``if`` above what it left."""
    if not body or not hasattr(body[0], "leading_lines"):
        return body
    first = body[0]
    return [first.with_changes(leading_lines=[*comments, *first.leading_lines]), *body[1:]]


def _never_empty(block: cst.IndentedBlock) -> cst.IndentedBlock:
    if block.body:
        return block
    return block.with_changes(body=[cst.SimpleStatementLine(body=[cst.Pass()])])


def _without_blanks(node: cst.FunctionDef) -> list[cst.EmptyLine]:
    return [line for line in node.leading_lines if line.comment is not None]
