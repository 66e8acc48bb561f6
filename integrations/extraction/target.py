"""Finding what ``path::qualname`` names, or saying precisely why it names nothing."""

from __future__ import annotations

import ast
import difflib
from dataclasses import dataclass
from pathlib import Path

from integrations.errors import TargetError
from integrations.extraction.bindings import Binding
from integrations.extraction.machines import last_name
from integrations.extraction.resolution import Resolver
from integrations.extraction.source import SourceModule, SourceTree

FORWARD = "forward"
_TRITON = frozenset({"jit", "autotune", "heuristics"})
_COMPILED = {".pyx": "Cython", ".pxd": "Cython", ".cu": "CUDA", ".cpp": "C++", ".so": "compiled"}
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Target:
    """A function, or a method with its class."""

    spelled: str
    """``path::qualname`` with the path as the repository writes it."""
    module: SourceModule
    function: _Function
    owner: ast.ClassDef | None


def find_target(tree: SourceTree, resolver: Resolver, target: str) -> Target:
    """Return the definition that ``target`` names in the repository.

    Raises:
        TargetError: the target is malformed, lies outside the repository, does not exist,
            is ambiguous, or its file is not valid Python.
    """
    path_text, separator, qualname = target.partition("::")
    if not separator or not path_text or not qualname:
        raise TargetError(f"{target!r} is not a target; write path/to/file.py::function")
    module = tree.load(_file(tree.root, path_text))
    spelled = f"{module.name}::{qualname}"
    parts = qualname.split(".")
    if len(parts) > 2:
        raise TargetError(
            f"{spelled}: only functions, classes and methods can be extracted; "
            "a nested function depends on the variables around it"
        )
    found = _only_definition(resolver, module, parts[0])
    if isinstance(found, _Function):
        if len(parts) == 2:
            raise TargetError(f"{spelled}: {parts[0]} is a function; it has no method {parts[1]}")
        return Target(spelled, module, found, None)
    method = _method(module, found, parts[1] if len(parts) == 2 else FORWARD)
    return Target(f"{module.name}::{found.name}.{method.name}", module, method, found)


def _file(root: Path, text: str) -> Path:
    path = Path(text)
    if path.is_absolute() or ".." in path.parts:
        raise TargetError(f"{text} must be a path inside the repository, without '..'")
    full = root / path
    if full.is_symlink() and not full.exists():
        raise TargetError(f"{text} is a link that leads nowhere in {root}; name the file itself")
    if not full.exists():
        raise TargetError(
            f"no file {text} in {root}{_hint(text, _python_files(full.parent, root))}"
        )
    if not full.resolve().is_relative_to(root):
        raise TargetError(f"{text} is a link that leaves the repository {root}")
    if full.suffix in _COMPILED:
        raise TargetError(
            f"{text} is {_COMPILED[full.suffix]} code, which ksmith does not extract; "
            "name the Python function that it stands for"
        )
    if full.suffix != ".py" or not full.is_file():
        raise TargetError(f"{text} is not a Python file")
    return full


def _python_files(folder: Path, root: Path) -> list[str]:
    if not folder.is_dir() or not folder.resolve().is_relative_to(root):
        return []
    return [p.relative_to(root).as_posix() for p in folder.glob("*.py")]


def _hint(wanted: str, known: list[str]) -> str:
    near = difflib.get_close_matches(wanted, known, n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _only_definition(
    resolver: Resolver, module: SourceModule, name: str
) -> _Function | ast.ClassDef:
    bindings = resolver.bindings(module)
    found = bindings.definitions(name)
    if not found:
        known = [n for n in bindings.by_name if bindings.definitions(n)]
        imported = bindings.by_name.get(name)
        where = f"; {name} is bound at line {imported[0].line}" if imported else ""
        raise TargetError(
            f"no function or class {name} in {module.name}{where}{_hint(name, known)}"
        )
    statement = _single(module, name, found).statement
    assert isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    return statement


def _single(module: SourceModule, name: str, found: list[Binding]) -> Binding:
    if len(found) > 1:
        lines = ", ".join(str(b.line) for b in found)
        raise TargetError(
            f"{module.name}::{name} is ambiguous: it is defined at lines {lines}, and which one "
            "holds depends on what cannot be decided here; name a definition that is alone, "
            "or try --machine cpu or --machine cuda"
        )
    return found[0]


def _method(module: SourceModule, owner: ast.ClassDef, name: str) -> _Function:
    methods = [s for s in owner.body if isinstance(s, _Function)]
    found = [m for m in methods if m.name == name and not _is_stub(m)]
    if not found:
        names = [m.name for m in methods]
        hint = _hint(name, names) or (f"; it has {', '.join(names)}" if names else "")
        raise TargetError(f"no method {name} in {module.name}::{owner.name}{hint}")
    if len(found) > 1:
        lines = ", ".join(str(m.lineno) for m in found)
        raise TargetError(
            f"{module.name}::{owner.name}.{name} is ambiguous: it is defined at lines {lines}"
        )
    decorators = {ast.unparse(d) for d in found[0].decorator_list}
    if "property" in decorators:
        raise TargetError(f"{module.name}::{owner.name}.{name} is a property, not a method")
    return found[0]


def triton_decorator(statement: ast.stmt) -> str | None:
    """Return the decorator that makes a definition a kernel in Triton, or None."""
    for decorator in getattr(statement, "decorator_list", []):
        text = ast.unparse(decorator)
        name = last_name(decorator.func if isinstance(decorator, ast.Call) else decorator)
        if text.startswith("triton.") and name in _TRITON:
            return text
    return None


def _is_stub(method: _Function) -> bool:
    names = {ast.unparse(d).split(".")[-1] for d in method.decorator_list}
    return bool(names & {"overload", "setter", "deleter"})
