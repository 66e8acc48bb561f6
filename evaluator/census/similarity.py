"""How alike two programs are, whatever their names, constants and layout.

Each program becomes its sequence of syntax nodes, in which variables and constants are
anonymous while the functions that are called, ``tl.load`` or ``tl.sum``, keep their names. The
similarity is the share of short runs of that sequence that both have (Dice's coefficient over
runs of five, with their counts). Of a Triton program only the kernels count, for the code
around them is alike everywhere; of a C++ one the tokens of ``SOURCE``.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence

_RUN = 5
_CPP_TOKEN = re.compile(r"//[^\n]*|/\*.*?\*/|[A-Za-z_]\w*|\d[\w.]*|\S", re.DOTALL)
_CPP_CALL = re.compile(r"[A-Za-z_]\w*(?=\s*\()")
_CPP_WORDS = frozenset(
    ("for", "if", "else", "while", "return", "const", "float", "double", "int64_t", "int", "auto")
)


def similarity(one: str, other: str) -> float:
    """Return how alike two candidates' sources are, between 0 and 1.

    Raises:
        SyntaxError: one of them is not Python.
    """
    left, right = (Counter(_runs(list(_tokens(source)))) for source in (one, other))
    total = left.total() + right.total()
    return 2 * (left & right).total() / total if total else 1.0


def _runs(tokens: Sequence[str]) -> Iterator[tuple[str, ...]]:
    length = min(_RUN, max(1, len(tokens)))
    return (tuple(tokens[i : i + length]) for i in range(len(tokens) - length + 1))


def _tokens(source: str) -> Iterator[str]:
    tree = ast.parse(source)
    native = _native_source(tree)
    if native is not None:
        yield from _cpp_tokens(native)
        return
    functions = [n for n in tree.body if isinstance(n, ast.FunctionDef)]
    kernels = [f for f in functions if f.decorator_list]
    for function in kernels or functions:
        for statement in function.body:
            yield from _nodes(statement)


def _native_source(tree: ast.Module) -> str | None:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            named = isinstance(node.targets[0], ast.Name) and node.targets[0].id == "SOURCE"
            if named and isinstance(node.value.value, str):
                return node.value.value
    return None


def _nodes(node: ast.AST) -> Iterator[str]:
    """The nodes below and with ``node``, in the order of the text."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return  # a docstring
    if isinstance(node, ast.Attribute):
        yield f".{node.attr}"
    elif isinstance(node, (ast.Name, ast.Constant)):
        yield "value"
        return
    elif not isinstance(node, ast.expr_context):
        yield type(node).__name__
    for child in ast.iter_child_nodes(node):
        yield from _nodes(child)


def _cpp_tokens(source: str) -> Iterator[str]:
    called = set(_CPP_CALL.findall(source))
    for token in _CPP_TOKEN.findall(source):
        if token.startswith(("//", "/*")):
            continue
        is_name = token[0].isalpha() or token[0] == "_"
        anonymous = is_name and token not in _CPP_WORDS and token not in called
        yield "value" if anonymous or token[0].isdigit() else token
