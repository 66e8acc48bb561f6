"""The normal form of a candidate's source: what is left when nothing that matters is left out.

Two sources with the same normal form are the same program, so only one of them is worth an
evaluation. Left out are comments, formatting and docstrings, in Python and in the C++ of
``SOURCE``; the names of Triton functions and of what functions assign to; and the order of
keyword arguments in launches. Each is left out only where that is certain: a function with
scopes inside it, say, keeps its names. Programs that are equal for deeper reasons differ.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

# What binds names in ways that are not followed here, or looks names up by their text.
_KEEPS_NAMES = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.Lambda,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
    ast.Global,
    ast.Nonlocal,
    ast.Import,
    ast.ImportFrom,
    ast.ExceptHandler,
    ast.Match,
)
_LOOKS_NAMES_UP = frozenset({"locals", "vars", "eval", "exec", "globals", "getattr", "dir"})


def normal_form(tree: ast.Module) -> str:
    """Return the normal form of a parsed source as text; changes ``tree``."""
    for node in nodes_in(tree):
        _tidy(node)
    nodes = list(nodes_in(tree))
    if not any(isinstance(n, ast.Name) and n.id in _LOOKS_NAMES_UP for n in nodes):
        _rename_triton_functions(tree, nodes)
        for node in nodes:
            if isinstance(node, ast.FunctionDef):
                _rename_locals(node)
    return ast.dump(tree, include_attributes=False)


def nodes_in(root: ast.AST) -> Iterator[ast.AST]:
    """Yield ``root`` and all below it, contexts left out; twice as fast as ``ast.walk``."""
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        for name, value in node.__dict__.items():
            if isinstance(value, ast.AST):
                if name != "ctx":
                    stack.append(value)
            elif isinstance(value, list):
                stack += [item for item in value if isinstance(item, ast.AST)]


def _tidy(node: ast.AST) -> None:
    """Drop docstrings, C++ comments and trailing blanks; sort the keywords of a launch."""
    for name in ("body", "orelse", "finalbody"):
        block = node.__dict__.get(name)
        if isinstance(block, list):
            block[:] = [statement for statement in block if not _is_text(statement)]
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
        target, text = node.targets[0], node.value.value
        if isinstance(target, ast.Name) and target.id == "SOURCE" and isinstance(text, str):
            node.value = ast.Constant(value=cpp_normal_form(text))
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" in node.value:
        node.value = "\n".join(line.rstrip() for line in node.value.splitlines())
    elif (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Subscript)
        and all(k.arg is not None and _is_plain(k.value) for k in node.keywords)
    ):
        node.keywords.sort(key=lambda keyword: str(keyword.arg))


def _is_text(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _is_plain(node: ast.AST) -> bool:
    """Whether it makes no difference when an expression is computed."""
    moving = (ast.Call, ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)
    return not any(isinstance(n, moving) for n in nodes_in(node))


def _rename_triton_functions(tree: ast.Module, nodes: Sequence[ast.AST]) -> None:
    """Number the module's Triton functions, where no other thing has the same name."""
    found = [n for n in tree.body if isinstance(n, ast.FunctionDef) and _is_triton(n)]
    bound = Counter(_bound_names(nodes))
    quoted = {n.value for n in nodes if isinstance(n, ast.Constant)}
    renamed = {
        function.name: f"%kernel {number}"
        for number, function in enumerate(found)
        if bound[function.name] == 1 and function.name not in quoted
    }
    for function in found:
        function.name = renamed.get(function.name, function.name)
    _rename(nodes, renamed)


def _is_triton(function: ast.FunctionDef) -> bool:
    return any(ast.unparse(d).split("(")[0] == "triton.jit" for d in function.decorator_list)


def _bound_names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield each name once for every place that gives it a meaning."""
    for node in nodes:
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).split(".")[0]
        elif isinstance(node, ast.Global | ast.Nonlocal):
            yield from node.names
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name


def _rename_locals(function: ast.FunctionDef) -> None:
    """Number what a function assigns to; any order will do that depends on structure alone."""
    inside = [node for statement in function.body for node in nodes_in(statement)]
    if any(isinstance(node, _KEEPS_NAMES) for node in inside):
        return
    arguments = {a.arg for a in nodes_in(function.args) if isinstance(a, ast.arg)}
    stored = [n.id for n in inside if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)]
    own = dict.fromkeys(name for name in stored if name not in arguments)
    _rename(inside, {name: f"%local {number}" for number, name in enumerate(own)})


def _rename(nodes: Iterable[ast.AST], renamed: dict[str, str]) -> None:
    for node in nodes:
        if isinstance(node, ast.Name):
            node.id = renamed.get(node.id, node.id)


# Raw strings, strings, characters; what follows a digit separates digits (1'000).
_CPP_LITERAL = (
    r'R"(?P<mark>[^\s()\\]{0,16})\((?:.|\n)*?\)(?P=mark)"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'"
)
_CPP_COMMENT = r"//(?:\\\n|[^\n])*|/\*(?:.|\n)*?\*/"
_CPP_PIECE = re.compile(rf"(?P<literal>{_CPP_LITERAL})|(?P<comment>{_CPP_COMMENT})")
_CPP_DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.MULTILINE)
_CPP_WORD = re.compile(r"\w+|[(){}\[\];,]|[^\w\s(){}\[\];,]+")


def cpp_normal_form(source: str) -> str:
    """Return C++ without comments and formatting; literals and directives stay as they are."""
    literals: list[str] = []

    def without_comments(match: re.Match[str]) -> str:
        if match["comment"] is not None:
            return "\n" if match["comment"].startswith("//") else " "
        literals.append(match[0])
        return f" \0{len(literals) - 1}\0 "

    code = _CPP_PIECE.sub(without_comments, source)
    parts: list[str] = []
    end = 0
    for directive in _CPP_DIRECTIVE.finditer(code):
        parts += [_spaced(code[end : directive.start()]), " ".join(directive[0].split())]
        end = directive.end()
    parts.append(_spaced(code[end:]))
    return repr((parts, literals))


def _spaced(code: str) -> str:
    return " ".join(_CPP_WORD.findall(code))
