"""The table of rules, and what is said when one is broken.

A rule has a name, a reason that teaches, and how it is handled unless the policy says
otherwise: ``forbidden`` refuses the candidate, ``warning`` becomes a flag of its evaluation,
``allowed`` says nothing. Every rule that the checkers may name is in ``RULES``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evaluator.evaluation import Flag, Severity
from policies.model import Handling, SourcePolicy


@dataclass(frozen=True)
class Rule:
    """Why something may not be written, and what follows if it is."""

    name: str
    reason: str
    handling: Handling = Handling.FORBIDDEN


@dataclass(frozen=True)
class Violation:
    """One rule broken at one line of the candidate's file."""

    rule: str
    line: int
    found: str
    """What was written, as short as it can be shown."""
    reason: str
    severity: Severity = Severity.VIOLATION

    @property
    def refuses(self) -> bool:
        """Whether the candidate may not run; otherwise it is a warning."""
        return self.severity is Severity.VIOLATION

    def __str__(self) -> str:
        return f"line {self.line}: {self.found}: {self.reason} [{self.rule}]"


_WARNING = Handling.WARNING
UNPARSED = "unparsed"
"""The rule of native text that the parser cannot follow."""

_RULES = (
    Rule("entry", "the problem's entry function must be defined at the top of the module"),
    Rule("source", "SOURCE must be one string constant, so that it can be read before it runs"),
    Rule("encoding", "a declared encoding can turn a comment into code; write UTF-8"),
    Rule("import", "only the modules that the policy lists may be imported"),
    Rule("builtin", "it reaches code, files or names that cannot be read from the source"),
    Rule("dunder", "it reaches into the interpreter"),
    Rule("forbidden-name", "a kernel has no use for it"),
    Rule("private-name", "private parts of a library may change what is measured"),
    Rule("alias", "a module is handed on to where its use cannot be followed; use its own name"),
    Rule("monkey-patch", "an object that is not the candidate's own is changed"),
    Rule("subclass", "such a class can compute when its instance is read, after the clock stops"),
    Rule("decorator", "what it returns in place of the function cannot be followed"),
    Rule("stream", "work on another stream, or replayed, can end after the clock has stopped"),
    Rule("thread", "work in a thread of its own can end after the clock has stopped"),
    Rule("clock", "clocks and profilers belong to the evaluator"),
    Rule("lazy", "a tensor without memory defers or skips the work"),
    Rule("cache", "what is kept between calls can return an earlier call's result"),
    Rule("buffer", "memory made at import may carry one call's result into the next", _WARNING),
    Rule("address", "what depends on an object's address can recognise a repeated input"),
    Rule("fallback", "if the kernel fails, this hides it and something else is measured", _WARNING),
    Rule("fallback-compute", "if the kernel fails, the library computes the result in its place"),
    Rule(
        "library-compute",
        "the library computes here, not the candidate; write it as a kernel",
        _WARNING,
    ),
    Rule("vendor-library", "cuBLAS, cuDNN and their like compute in the candidate's place"),
    Rule("host-sync", "the host waits for the device within the call", _WARNING),
    Rule("precision", "it lowers the precision of the arithmetic", _WARNING),
    Rule("autotune", "it measures when it is first called; fix the best configuration", _WARNING),
    Rule("decoy", "this kernel cannot be reached from the entry function", _WARNING),
    Rule("no-kernel", "the entry function must reach a @triton.jit kernel"),
    Rule("inline-asm", "inline assembly cannot be checked"),
    Rule("ptx", "inline PTX cannot be checked", _WARNING),
    Rule("foreign-code", "it loads or calls code that is not in the source"),
    Rule("header", "only the headers that the policy lists may be included"),
    Rule("pragma", "only pragmas that the policy lists may be used"),
    Rule("preprocessor", "the preprocessor may not make names or directives that cannot be read"),
    Rule("system", "it leaves the computation: processes, files, network or raw system calls"),
    Rule("control-flow", "it changes the flow of control beyond functions and loops"),
    Rule("attribute", "the attribute is not on the list of harmless ones"),
    Rule("global-constructor", "it runs when the library is loaded, beside the measured call"),
    Rule("device-setting", "settings of the device and its caches belong to the evaluator"),
    Rule(UNPARSED, "the parser cannot read this; every name in the source is held suspect"),
)
RULES: Mapping[str, Rule] = {rule.name: rule for rule in _RULES}


class Findings:
    """Collects violations as one policy handles them; each is told once."""

    def __init__(self, policy: SourcePolicy) -> None:
        self._policy = policy
        self._found: dict[Violation, None] = {}

    def add(self, rule: str, line: int, found: str, reason: str | None = None) -> None:
        """Note that ``rule`` is broken, unless the policy allows it.

        Args:
            rule: a name in ``RULES``.
            line: in the candidate's file.
            found: what was written.
            reason: by default the rule's own.
        """
        handling = self.handling(rule)
        if handling is Handling.ALLOWED:
            return
        severity = Severity.VIOLATION if handling is Handling.FORBIDDEN else Severity.WARNING
        self._found[Violation(rule, line, found, reason or RULES[rule].reason, severity)] = None

    def handling(self, rule: str) -> Handling:
        """How the policy handles ``rule``."""
        return self._policy.chosen.handling.get(rule, RULES[rule].handling)

    def in_order(self) -> list[Violation]:
        """Return what was found, refusals first, then by line."""
        return sorted(self._found, key=lambda v: (not v.refuses, v.line, v.rule, v.found))


def as_flags(found: Sequence[Violation]) -> list[Flag]:
    """Return one flag for each rule in ``found``: its first place, and the lines of the others."""
    by_rule: dict[str, list[Violation]] = {}
    for violation in found:
        by_rule.setdefault(violation.rule, []).append(violation)
    return [
        Flag(rule=f"source-{rule}", severity=first.severity, evidence=f"{first}{_others(others)}")
        for rule, (first, *others) in by_rule.items()
    ]


def _others(others: Sequence[Violation]) -> str:
    if not others:
        return ""
    lines = ", ".join(dict.fromkeys(str(v.line) for v in others))
    return f" (also on line {lines})"
