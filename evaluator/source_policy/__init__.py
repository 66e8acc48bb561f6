"""The source policy: what a candidate may write, judged on its syntax before it runs.

It keeps honest candidates honest and refuses the plain ways of cheating with a line and a
reason; the sandbox is what contains a hostile one. Python is judged on its syntax tree with
names followed to the library they came from, C++ and CUDA on tree-sitter's. What is refused,
what is a warning and what is allowed comes from a preset in ``policies/default.yml``; the
rules and their reasons are one table, ``rules.RULES``.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator

from evaluator.backends import Language, language_of
from evaluator.candidate import Candidate
from evaluator.source_policy.fallback import check_fallbacks
from evaluator.source_policy.kernels import check_kernels
from evaluator.source_policy.names import Names
from evaluator.source_policy.native_rules import check_native
from evaluator.source_policy.python_rules import check_python
from evaluator.source_policy.rules import RULES, Findings, Rule, Violation, as_flags
from evaluator.source_policy.state import check_state
from policies.model import SourcePolicy

__all__ = ["RULES", "Rule", "Violation", "as_flags", "check_source"]


def check_source(
    candidate: Candidate,
    *,
    entry_function: str,
    policy: SourcePolicy,
    constructed: bool = False,
) -> list[Violation]:
    """Return what ``candidate`` breaks, refusals first; it may run if nothing ``refuses``.

    Args:
        candidate: its source is parsed, never run.
        entry_function: the function, or class where that may be, that will be called.
        policy: with a preset applied.
        constructed: whether the problem asks for a class, as KernelBench's do.
    """
    if not policy.enforced:
        return []
    findings = Findings(policy)
    _check_encoding(candidate.source, findings)
    tree = ast.parse(candidate.source)
    language = language_of(candidate.backend)
    names = Names(tree)
    allowed = (*policy.python_imports.get(language.value, ()), *policy.chosen.python_imports)
    check_python(names, findings, allowed=allowed, gpu=language is not Language.CPP)
    check_state(names, findings)
    check_fallbacks(names, findings)
    entry = _entry(
        tree, entry_function, may_be_class=constructed or policy.chosen.entry_may_be_class
    )
    if entry is None:
        findings.add("entry", 1, f"no function {entry_function!r}")
    if entry is not None and not language.native:
        check_kernels(names, findings, entry)
    for line, text in _sources(tree, findings) if language.native else ():
        check_native(text, findings, policy, cuda=language is Language.CUDA, first_line=line)
    return findings.in_order()


def _check_encoding(source: str, findings: Findings) -> None:
    """Refuse a comment by which the interpreter would read other text than we do."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source.encode("utf-8")).readline)
    except (SyntaxError, UnicodeEncodeError):
        encoding = "an encoding that is not known"
    if encoding not in ("utf-8", "utf-8-sig"):
        findings.add("encoding", 1, encoding)


def _entry(tree: ast.Module, name: str, *, may_be_class: bool) -> ast.AST | None:
    kinds = (ast.FunctionDef, ast.ClassDef) if may_be_class else (ast.FunctionDef,)
    return next((n for n in tree.body if isinstance(n, kinds) and n.name == name), None)


def _sources(tree: ast.Module, findings: Findings) -> Iterator[tuple[int, str]]:
    """The constant SOURCE with the line in the candidate's file that it begins on."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Name) or node.id != "SOURCE" or isinstance(node.ctx, ast.Load):
            continue
        value = _plain_value(tree, node)
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield value.lineno, value.value
        else:
            findings.add("source", node.lineno, "SOURCE is computed")


def _plain_value(tree: ast.Module, name: ast.Name) -> ast.expr | None:
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and statement.targets == [name]:
            return statement.value
        if isinstance(statement, ast.AnnAssign) and statement.target is name:
            return statement.value
    return None
