"""Carrying out edits with libcst: everything that is kept stays as it was written.

A definition's own lines are parsed (with the comments directly above it), each edit finds
its node by position, and the nodes come back without the indentation of where they stood.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from integrations.extraction.closure import ClassPiece, Piece
from integrations.extraction.edits import Drop, Edit, Replace, TakeBranch
from integrations.extraction.source import SourceModule

_Position = tuple[int, int]
_Statements = Sequence[cst.BaseStatement]


def piece_code(piece: Piece) -> str:
    """Return the edited text of a piece at the top level of a module."""
    nodes = rewrite(piece)
    return cst.Module(body=list(nodes)).code.strip("\n") + "\n"


def class_code(owner: ClassPiece) -> str:
    """Return the text of the flattened class: constants first, then methods."""
    body: list[cst.BaseStatement] = []
    for piece in owner.members:
        nodes = list(rewrite(piece))
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


def rewrite(piece: Piece) -> _Statements:
    """Return the libcst nodes of a piece after its edits."""
    first, text = _lines_of(piece.module, piece.statement)
    # One line before the piece keeps its leading comments attached to it.
    prefix = "pass\n" if piece.statement.col_offset == 0 else "if True:\n"
    wrapper = MetadataWrapper(cst.parse_module(prefix + text))
    positions = wrapper.resolve(PositionProvider)
    edits = {
        _position(piece.module, node, first): _Edit(type(node), edit)
        for node, edit in piece.edits.by_node.items()
    }
    rename = piece.name if isinstance(piece.statement, (ast.FunctionDef, ast.ClassDef)) else None
    rewriter = _Rewriter(edits, {n: (p.start.line, p.start.column) for n, p in positions.items()})
    module = wrapper.module.visit(rewriter)
    body = module.body[1:] if prefix == "pass\n" else _block_of(module.body[0])
    return [_renamed(body[0], rename), *body[1:]]


@dataclass(frozen=True)
class _Edit:
    kind: type[ast.AST]
    edit: Edit


class _Rewriter(cst.CSTTransformer):
    def __init__(
        self, edits: dict[_Position, _Edit], positions: dict[cst.CSTNode, _Position]
    ) -> None:
        super().__init__()
        self.edits = edits
        self.positions = positions

    def _edit(self, node: cst.CSTNode, *kinds: type[ast.AST]) -> Edit | None:
        found = self.edits.get(self.positions.get(node, (0, 0)))
        return found.edit if found is not None and issubclass(found.kind, kinds) else None

    # --- statements

    def leave_If(
        self, original_node: cst.If, updated_node: cst.If
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement] | cst.RemovalSentinel:
        updated = updated_node.with_changes(
            orelse=self._settled(original_node.orelse, updated_node.orelse)
        )
        edit = self._edit(original_node, ast.If)
        if isinstance(edit, Drop):
            return cst.RemoveFromParent()
        if not isinstance(edit, TakeBranch) or self._is_elif(original_node):
            return updated
        kept = _block_of(updated) if edit.taken else _else_body(updated.orelse)
        return cst.FlattenSentinel(_with_comments(kept, updated.leading_lines))

    def visit_If(self, node: cst.If) -> None:
        if isinstance(node.orelse, cst.If):
            self._elifs = getattr(self, "_elifs", set()) | {node.orelse}

    def _is_elif(self, node: cst.If) -> bool:
        return node in getattr(self, "_elifs", set())

    def _settled(
        self, original: cst.If | cst.Else | None, updated: cst.If | cst.Else | None
    ) -> cst.If | cst.Else | None:
        """Carry out the edit of an ``elif``, which cannot give way to several statements."""
        if not isinstance(original, cst.If) or not isinstance(updated, cst.If):
            return updated
        edit = self._edit(original, ast.If)
        if not isinstance(edit, TakeBranch):
            return updated
        return cst.Else(body=updated.body) if edit.taken else updated.orelse

    def on_leave(
        self, original_node: cst.CSTNode, updated_node: cst.CSTNode
    ) -> cst.CSTNode | cst.RemovalSentinel | cst.FlattenSentinel[cst.CSTNode]:
        result: object = super().on_leave(original_node, updated_node)
        if isinstance(original_node, cst.If):
            return result  # type: ignore[return-value]
        if isinstance(original_node, (cst.BaseSmallStatement, cst.BaseCompoundStatement)):
            if isinstance(self._edit(original_node, ast.stmt), Drop):
                return cst.RemoveFromParent()
        if isinstance(original_node, cst.BaseExpression):
            return self._expression(original_node, result)
        if isinstance(original_node, cst.IndentedBlock) and isinstance(result, cst.IndentedBlock):
            return _never_empty(result)
        return result  # type: ignore[return-value]

    def _expression(self, original: cst.BaseExpression, updated: object) -> cst.CSTNode:
        edit = self._edit(original, ast.expr)
        if isinstance(edit, Replace) and self._is_outermost(original):
            return cst.parse_expression(edit.text)
        if isinstance(edit, TakeBranch) and isinstance(updated, cst.IfExp):
            side = updated.body if edit.taken else updated.orelse
            return side.with_changes(lpar=updated.lpar or side.lpar, rpar=updated.rpar or side.rpar)
        assert isinstance(updated, cst.CSTNode)
        return updated

    def _is_outermost(self, node: cst.BaseExpression) -> bool:
        """Whether ``node`` is of the edited kind: ``a`` and ``a.b`` begin at the same place."""
        found = self.edits[self.positions[node]]
        return _CST_KINDS.get(found.kind, type(node)) is type(node)

    # --- decorators and annotations

    def leave_Decorator(
        self, original_node: cst.Decorator, updated_node: cst.Decorator
    ) -> cst.Decorator | cst.RemovalSentinel:
        dropped = isinstance(self._edit(original_node.decorator, ast.expr), Drop)
        return cst.RemoveFromParent() if dropped else updated_node

    def leave_Param(self, original_node: cst.Param, updated_node: cst.Param) -> cst.Param:
        annotation = original_node.annotation
        if annotation and isinstance(self._edit(annotation.annotation, ast.expr), Drop):
            return updated_node.with_changes(annotation=None)
        return updated_node

    def leave_FunctionDef(
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef | cst.RemovalSentinel:
        returns = original_node.returns
        if returns and isinstance(self._edit(returns.annotation, ast.expr), Drop):
            return updated_node.with_changes(returns=None)
        return updated_node


_CST_KINDS: dict[type[ast.AST], type[cst.CSTNode]] = {
    ast.Name: cst.Name,
    ast.Attribute: cst.Attribute,
    ast.Call: cst.Call,
    ast.IfExp: cst.IfExp,
    ast.Subscript: cst.Subscript,
    ast.Compare: cst.Comparison,
}


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


def _position(module: SourceModule, node: ast.AST, first: int) -> _Position:
    """Return where libcst sees the node: its line in the piece's text, its column in characters."""
    line, offset = node.lineno, node.col_offset  # type: ignore[attr-defined]
    column = len(module.lines[line - 1].encode("utf-8")[:offset].decode("utf-8"))
    return line - first + 2, column


def _block_of(node: cst.CSTNode) -> list[cst.BaseStatement]:
    body = getattr(node, "body", None)
    if isinstance(body, cst.IndentedBlock):
        return list(body.body)
    assert isinstance(body, cst.SimpleStatementSuite)
    return [cst.SimpleStatementLine(body=body.body)]


def _else_body(orelse: cst.If | cst.Else | None) -> list[cst.BaseStatement]:
    if orelse is None:
        return []
    return [orelse] if isinstance(orelse, cst.If) else _block_of(orelse)


def _with_comments(
    body: list[cst.BaseStatement], comments: Sequence[cst.EmptyLine]
) -> list[cst.BaseStatement]:
    """Keep the comments above a folded ``if`` above what it left."""
    if not body or not hasattr(body[0], "leading_lines"):
        return body
    first = body[0]
    return [first.with_changes(leading_lines=[*comments, *first.leading_lines]), *body[1:]]


def _never_empty(block: cst.IndentedBlock) -> cst.IndentedBlock:
    if block.body:
        return block
    return block.with_changes(body=[cst.SimpleStatementLine(body=[cst.Pass()])])


def _renamed(statement: cst.BaseStatement, name: str | None) -> cst.BaseStatement:
    if name is None or not isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
        return statement
    return statement.with_changes(name=cst.Name(name))


def _without_blanks(node: cst.FunctionDef) -> list[cst.EmptyLine]:
    return [line for line in node.leading_lines if line.comment is not None]
