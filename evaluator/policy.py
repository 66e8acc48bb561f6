"""The source policy: what a candidate may name, judged on its syntax tree, before it runs.

It keeps honest candidates honest and refuses the plain ways of cheating with a line and a
reason; the sandbox is what contains a hostile one. Allowed imports and headers come from
``policies/default.yml``. The C++ inside a candidate is read by ``evaluator/cpp_policy.py``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from evaluator.backends import Language, language_of
from evaluator.candidate import Candidate
from evaluator.cpp_policy import check_cpp
from policies.model import SourcePolicy

_BUILTINS: Mapping[str, str] = {
    "exec": "it runs text as code",
    "eval": "it runs text as code",
    "compile": "it makes code from text",
    "__import__": "it imports past the list of allowed modules",
    "open": "a kernel reads and writes no files",
    "input": "a kernel reads no terminal",
    "breakpoint": "a kernel starts no debugger",
    "globals": "it reaches names by text",
    "locals": "it reaches names by text",
    "vars": "it reaches attributes by text",
    "getattr": "it reaches attributes by text",
    "setattr": "it changes attributes by text",
    "delattr": "it changes attributes by text",
}

_FORBIDDEN_NAMES: Mapping[str, str] = {
    "torch.compile": "a candidate is the kernel, not the compiler's",
    "torch.jit": "a candidate is the kernel, not the compiler's",
    "torch.fx": "a candidate is the kernel, not the compiler's",
    "torch.utils": "builds and loads code",
    "torch.ops": "reaches kernels that are not the candidate's",
    "torch.classes": "loads code",
    "torch.library": "registers kernels for the whole process",
    "torch.hub": "loads code",
    "torch.load": "reads files and can run what it reads",
    "torch.save": "writes files",
    "torch.from_file": "reads files",
    "torch.multiprocessing": "starts processes",
    "torch.distributed": "opens connections",
    "torch.overrides": "changes what torch functions do",
    "torch.backends": "changes settings that the reference would also be measured under",
    "torch.profiler": "observes the measurement",
    "torch.cuda.Stream": "work on another stream can end after the clock has stopped",
    "torch.cuda.ExternalStream": "work on another stream can end after the clock has stopped",
    "torch.cuda.stream": "work on another stream can end after the clock has stopped",
    "torch.cuda.set_stream": "work on another stream can end after the clock has stopped",
    "torch.cuda.Event": "the clock belongs to the evaluator",
    "torch.cuda.CUDAGraph": "replays work that was done before",
    "torch.cuda.graph": "replays work that was done before",
    "torch.cuda.synchronize": "waits on the host within the measured call",
    "triton.testing": "the clock belongs to the evaluator",
    "triton.runtime": "reaches into the compiler's run time",
    "triton.compiler": "reaches into the compiler",
    "triton.backends": "reaches into the compiler",
    "triton.knobs": "changes settings of the compiler",
}

_FRAME_ATTRIBUTES = ("f_globals", "f_locals", "f_back", "gi_frame", "tb_frame", "func_globals")


@dataclass(frozen=True)
class Violation:
    """One rule broken at one line."""

    rule: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason} [{self.rule}]"


def check_source(
    candidate: Candidate, *, entry_function: str, policy: SourcePolicy
) -> list[Violation]:
    """Return every violation in ``candidate``, by line; an empty list allows it to run."""
    if not policy.enforced:
        return []
    tree = ast.parse(candidate.source)
    language = language_of(candidate.backend)
    visitor = _Visitor(frozenset(policy.python_imports.get(language.value, ())))
    visitor.visit(tree)
    found = list(visitor.violations)
    functions = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
    if entry_function not in functions:
        reason = f"the module does not define the function {entry_function!r}"
        found.append(Violation("entry", 1, reason))
    if language.native:
        headers = policy.cpp_headers
        headers += policy.cuda_headers if language is Language.CUDA else ()
        found += _check_embedded_cpp(tree, policy, headers)
    return sorted(found, key=lambda v: v.line)


def _check_embedded_cpp(
    tree: ast.Module, policy: SourcePolicy, headers: Sequence[str]
) -> Iterator[Violation]:
    """Check the module constant SOURCE; lines are counted in the candidate's file."""
    for node in tree.body:
        if not isinstance(node, ast.Assign) or not _assigns(node, "SOURCE"):
            continue
        if not isinstance(node.value, ast.Constant) or not isinstance(node.value.value, str):
            yield Violation("source", node.lineno, "SOURCE must be one string constant")
            continue
        for rule, line, reason in check_cpp(
            node.value.value, headers=headers, options=policy.cpp_compiler_options
        ):
            yield Violation(rule, node.value.lineno + line - 1, reason)


def _assigns(node: ast.Assign, name: str) -> bool:
    return any(isinstance(t, ast.Name) and t.id == name for t in node.targets)


class _Visitor(ast.NodeVisitor):
    """Collects violations; ``_modules`` maps local names to the modules that they are."""

    def __init__(self, allowed: frozenset[str]) -> None:
        self.violations: list[Violation] = []
        self._allowed = allowed
        self._modules: dict[str, str] = {}

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._import(node, alias.name)
            bound = alias.asname or alias.name.partition(".")[0]
            self._modules[bound] = alias.name if alias.asname else bound

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if node.level:
            self._add("import", node, "relative imports lead outside the candidate")
            return
        self._import(node, module)
        for alias in node.names:
            full = f"{module}.{alias.name}"
            if alias.name == "*":
                self._add("import", node, f"import * hides what is taken from {module}")
            self._check_name(node, full)
            self._modules[alias.asname or alias.name] = full

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in _BUILTINS and isinstance(node.ctx, ast.Load):
            self._add("builtin", node, f"{node.id}() is not allowed: {_BUILTINS[node.id]}")
        if _is_dunder(node.id) and node.id != "__name__":
            self._add("dunder", node, f"{node.id} reaches into the interpreter")

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if _is_dunder(node.attr) or node.attr in _FRAME_ATTRIBUTES:
            self._add("dunder", node, f".{node.attr} reaches into the interpreter")
        full = self._full_name(node)
        if full is not None:
            self._check_name(node, full)
        if full is not None and not isinstance(node.ctx, ast.Load):
            self._add("monkey-patch", node, f"{full} is changed for the whole process")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if isinstance(node.value, ast.Name) and node.value.id in self._modules:
            self._add("alias", node, f"the module {node.value.id} is given another name")
        self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> None:
        self._add("state", node, "global keeps state between calls")

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for base in node.bases:
            full = self._full_name(base)
            if full is not None and full.startswith("torch"):
                self._add("subclass", node, f"a subclass of {full} can compute when it is read")
        self.generic_visit(node)

    def _import(self, node: ast.AST, module: str) -> None:
        if module not in self._allowed:
            known = ", ".join(sorted(self._allowed - {"__future__"}))
            self._add("import", node, f"import of {module!r} is not allowed (allowed: {known})")

    def _check_name(self, node: ast.AST, full: str) -> None:
        reason = _FORBIDDEN_NAMES.get(full)
        if reason is not None:
            self._add("forbidden-name", node, f"{full} is not allowed: {reason}")
        last = full.rpartition(".")[2]
        if full.startswith(("torch.", "triton.")) and last.startswith("_") and not _is_dunder(last):
            self._add("private-name", node, f"{full} is private")

    def _full_name(self, node: ast.AST) -> str | None:
        """``torch.cuda.Event`` for an attribute chain that starts at an imported module."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self._modules:
            return None
        return ".".join((self._modules[node.id], *reversed(parts)))

    def _add(self, rule: str, node: ast.AST, reason: str) -> None:
        self.violations.append(Violation(rule, getattr(node, "lineno", 1), reason))


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")
