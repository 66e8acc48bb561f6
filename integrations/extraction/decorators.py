"""Which decorators may go: those that leave what a function computes as it is.

Some say so by their name (compilers, recorders, registries); one of the repository's own is read:
where every call comes back as the decorated function gave it, it passes through. Any other is
kept and followed, or, where its package is not here, refused.
"""

from __future__ import annotations

import ast
import re
from enum import Enum, auto

from integrations.extraction.machines import last_name
from integrations.extraction.resolution import Definition, Resolver, Unresolved
from integrations.extraction.source import SourceModule

KEPT = frozenset(
    [
        *("staticmethod", "classmethod", "property", "dataclass", "wraps", "total_ordering"),
        *("unique", "contextmanager"),
    ]
)
CACHES = frozenset({"lru_cache", "cache", "cached_property"})
_HARMLESS = re.compile(
    r"(^|_)(compile|no_grad|enable_grad|inference_mode|record|profil|nvtx|trac|timer|timed|timing"
    r"|log|instrument|jit|script|regist|custom_op|api|deprecat|experimental|override|final|overload"
    r"|allow_in_graph|docstring|add_\w+_docstring|export|support|abstractmethod|runtime_checkable|typecheck|jaxtyped|beartype)"
    r"|^(disable|ignore|set_module)$",
    re.IGNORECASE,
)
"""Names whose words begin so."""


class Fate(Enum):
    """What becomes of a decorator."""

    STAYS = auto()
    GOES = auto()
    UNKNOWN = auto()
    """It comes from a package that is not here, and may change the result."""


def fate_of(decorator: ast.expr, resolver: Resolver, module: SourceModule) -> Fate:
    """Return what becomes of ``decorator``, which stands in ``module``."""
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = last_name(function) or ""
    if name in KEPT:
        return Fate.STAYS
    if name in CACHES or _HARMLESS.search(name):
        return Fate.GOES
    if isinstance(function, ast.Attribute) and function.attr in ("setter", "getter", "deleter"):
        return Fate.STAYS
    found = resolver.resolve_expression(module, function)
    if isinstance(found, Unresolved):
        return Fate.UNKNOWN
    if isinstance(found, Definition) and passes_through(found.statement):
        return Fate.GOES
    return Fate.STAYS


def passes_through(decorator: ast.stmt) -> bool:
    """Whether what a decorator makes returns what the decorated function gave, and no more."""
    if not isinstance(decorator, ast.FunctionDef):
        return False
    taken: set[str] = set()
    returned: list[ast.expr | None] = []
    pending: list[ast.FunctionDef] = [decorator]
    while pending:
        function = pending.pop()
        inner = [n for n in ast.walk(function) if isinstance(n, ast.FunctionDef)][1:]
        if inner:
            taken |= {a.arg for a in function.args.args}
            pending += [f for f in inner if f not in pending]
        else:
            returned += [n.value for n in ast.walk(function) if isinstance(n, ast.Return)]
    return bool(returned) and all(_hands_on(value, taken) for value in returned)


def _hands_on(value: ast.expr | None, functions: set[str]) -> bool:
    """Whether a value is ``f(*args, **kwargs)``."""
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Name):
        return False
    plain = all(isinstance(a, ast.Starred) for a in value.args)
    return value.func.id in functions and plain and all(k.arg is None for k in value.keywords)
