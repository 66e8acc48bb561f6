"""The rules of C++ and CUDA: names, headers, macros, pragmas, attributes, assembly.

State between calls is judged in ``native_state.py``. What cannot be seen is a call through
an address that is computed; the sandbox contains what passes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from evaluator.source_policy import native_syntax as syntax
from evaluator.source_policy.native_names import rule_of_header, verdict_of_native_name
from evaluator.source_policy.native_state import Add, check_native_state
from evaluator.source_policy.native_syntax import Macro, NativeSource, line_of, text_of
from evaluator.source_policy.rules import UNPARSED, Findings
from evaluator.source_policy.words import words
from policies.model import SourcePolicy

_PRAGMAS = (("omp",), ("unroll",), ("once",), ("GCC", "unroll"), ("GCC", "ivdep"))
_CUDA_PRAGMAS = (*_PRAGMAS, ("nounroll",), ("nv_diag_suppress",), ("nv_exec_check_disable",))
_COMPILER_OPTIONS = re.compile(r'(?:optimize|target)\s*\(((?:\s*"[\w=,.-]*"\s*,?)+)\)')
_DIRECTIVES = frozenset(("#pragma", "#error", "#warning", "#undef", "#line"))
_ATTRIBUTES = words(
    """
    always_inline noinline aligned vector_size ext_vector_type hot cold unused maybe_unused
    may_alias const pure flatten packed fallthrough nodiscard noreturn likely unlikely nonnull
    malloc assume_aligned nothrow leaf artificial visibility no_unique_address deprecated simd
    optimize target gnu returns_nonnull assume
    """
)
_STORAGE = frozenset(("static", "thread_local", "__thread", "extern", "mutable"))
_FUNCTIONS_ONLY = words(
    """
    inline __inline__ __inline __forceinline__ __global__ __host__ __noinline__
    """
)


def check_native(
    text: str, findings: Findings, policy: SourcePolicy, *, cuda: bool, first_line: int
) -> None:
    """Add what the C++ or CUDA ``text`` breaks; ``first_line`` is its first in the file."""
    source = syntax.parse(text.encode("utf-8", "replace"), cuda=cuda)
    _Checker(source, findings, policy, first_line).check()


class _Checker:
    def __init__(
        self, source: NativeSource, findings: Findings, policy: SourcePolicy, first_line: int
    ) -> None:
        self._source = source
        self._findings = findings
        self._first_line = first_line
        self._options = frozenset(policy.cpp_compiler_options)
        cuda_headers = policy.cuda_headers if source.cuda else ()
        self._headers = frozenset((*policy.cpp_headers, *cuda_headers))

    def check(self) -> None:
        self._check_text()
        if not self._source.is_whole:
            broken = next(n for n in self._source.nodes if n.is_error or n.is_missing)
            self._add(UNPARSED, line_of(broken), text_of(broken)[:40] or "a missing token")
        for node in self._source.nodes:
            self._check_node(node)
        for macro in syntax.macros(self._source):
            self._check_macro(macro)
        check_native_state(self._source, self._add)

    def _check_text(self) -> None:
        """What the compiler joins or replaces before it reads names."""
        text = self._source.text
        for cut in re.finditer(rb"\\[ \t\v\f\r]*\n", text):
            before, after = text[cut.start() - 1 : cut.start()], text[cut.end() : cut.end() + 1]
            if len(cut.group()) > 2 or (before.strip() and after.strip()):
                line = text.count(b"\n", 0, cut.start())
                self._add("preprocessor", line, "a word that goes on in the next line")
        code = self._source.code_only()
        for hidden in re.finditer(rb"%:|\?\?[=/'()!<>-]|\\[uU][0-9a-fA-F]", code):
            line = code.count(b"\n", 0, hidden.start())
            self._add("preprocessor", line, hidden.group().decode())

    def _check_node(self, node: Node) -> None:
        match node.type:
            case "preproc_include":
                self._include(node)
            case "preproc_call":
                self._directive(node)
            case "attribute_specifier" | "attribute" | "ms_declspec_modifier":
                self._attribute(node)
            case "gnu_asm_expression" | "asm_statement" | "ms_based_modifier":
                self._assembly(node)
            case kind if kind in syntax.NAMES:
                self._name(node)

    def _include(self, node: Node) -> None:
        path = node.child_by_field_name("path")
        spelled = text_of(path) if path is not None else text_of(node)
        header = spelled.strip('<>"')
        if header == spelled or header not in self._headers:
            self._add(rule_of_header(header), line_of(node), f"#include {spelled}")

    def _directive(self, node: Node) -> None:
        directive = node.child_by_field_name("directive")
        argument = node.child_by_field_name("argument")
        spelled = text_of(directive).replace(" ", "") if directive is not None else ""
        body = " ".join(text_of(argument).replace("\\\n", " ").split()) if argument else ""
        if spelled == "#pragma":
            self._pragma(line_of(node), body)
        elif spelled not in _DIRECTIVES:
            self._add("preprocessor", line_of(node), spelled)

    def _pragma(self, line: int, body: str) -> None:
        words = tuple(re.findall(r"\w+|\S", body))
        known = _CUDA_PRAGMAS if self._source.cuda else _PRAGMAS
        if any(words[: len(allowed)] == allowed for allowed in known):
            return
        asked = _COMPILER_OPTIONS.fullmatch(body.removeprefix("GCC").strip())
        if words[:1] != ("GCC",) or asked is None:
            self._add("pragma", line, f"#pragma {body}")
        else:
            self._compiler_options(line, asked.group(1))

    def _compiler_options(self, line: int, text: str) -> None:
        for option in re.findall(r'[^"\s,]+', text):
            if option not in self._options:
                self._add("pragma", line, f"the compiler option {option!r}")

    def _attribute(self, node: Node) -> None:
        for name in _attribute_names(node):
            if text_of(name).strip("_") not in _ATTRIBUTES:
                self._add("attribute", line_of(name), text_of(name))
        asked = _COMPILER_OPTIONS.search(text_of(node))
        if asked is not None:
            self._compiler_options(line_of(node), asked.group(1))

    def _assembly(self, node: Node) -> None:
        is_label = syntax.enclosing_function(node) is None
        rule = "ptx" if self._source.cuda and not is_label else "inline-asm"
        self._add(rule, line_of(node), " ".join(text_of(node).split())[:60])

    def _name(self, node: Node) -> None:
        name = text_of(node)
        verdict = verdict_of_native_name(name)
        if verdict is None or (self._source.is_whole and self._is_own(node)):
            return
        self._add(verdict[0], line_of(node), name, verdict[1])

    def _is_own(self, node: Node) -> bool:
        inside = (a.type for a in syntax.ancestors(node))
        if any(kind in ("attribute_specifier", "attribute_declaration") for kind in inside):
            return True  # judged as an attribute
        return syntax.is_declared(node) or syntax.is_hidden_by_own(node, self._source)

    def _check_macro(self, macro: Macro) -> None:
        """Names in a macro's body mean whatever they mean where it is used: none is exempt."""
        if b"##" in macro.body.code_only() or b"%:" in macro.body.code_only():
            self._add("preprocessor", macro.line, f"## in {macro.name}")
        words = {text_of(n) for n in macro.body.nodes if not n.children}
        if words & _STORAGE and not words & _FUNCTIONS_ONLY:
            found = f"{sorted(words & _STORAGE)[0]} in the macro {macro.name}"
            self._add("preprocessor", macro.line, found, "it hides where something is kept")
        for word in sorted(words - set(macro.parameters)):
            verdict = verdict_of_native_name(word)
            if verdict is not None:
                self._add(verdict[0], macro.line, f"{word} in the macro {macro.name}", verdict[1])
        if macro.name in self._names_outside_functions:
            check_native_state(macro.body, _AtLine(self._add, macro.line))

    @property
    def _names_outside_functions(self) -> set[str]:
        return {
            text_of(n)
            for n in self._source.nodes
            if n.type in syntax.NAMES
            and syntax.enclosing_function(n) is None
            and not any(a.type.startswith("preproc_def") for a in syntax.ancestors(n))
        }

    def _add(self, rule: str, line: int, found: str, reason: str | None = None) -> None:
        self._findings.add(rule, self._first_line + line, found, reason)


@dataclass(frozen=True)
class _AtLine:
    """Adds what is found in a macro's body at the macro's own line."""

    add: Add
    at: int

    def __call__(self, rule: str, line: int, found: str, reason: str | None = None) -> None:
        self.add(rule, self.at + line, found, reason)


def _attribute_names(node: Node) -> Iterator[Node]:
    """The attributes' own names, without their arguments."""
    name = node.child_by_field_name("name")
    if name is not None:
        yield name
        return
    waiting = list(node.named_children)
    while waiting:
        child = waiting.pop()
        if child.type in syntax.NAMES:
            yield child
        elif child.type == "call_expression":
            waiting += child.children_by_field_name("function")
        else:
            waiting += child.named_children
