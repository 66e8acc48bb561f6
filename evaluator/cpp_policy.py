"""The source policy for C++, on tokens: headers, and names that leave the computation.

A tokenizer, not a parser: it blanks comments, strings and characters, joins continued
lines, and looks at identifiers and preprocessor lines. It does not resolve macros (so token
pasting and includes by macro are refused), it does not know what a name refers to, and it
cannot see calls through computed addresses. The sandbox contains what passes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

_LEAVES_THE_PROCESS = "leaves the computation (processes, files, network or raw system calls)"
_FORBIDDEN: Mapping[str, str] = {
    **dict.fromkeys(("asm", "__asm", "__asm__"), "inline assembly cannot be checked"),
    **dict.fromkeys(("dlopen", "dlsym", "dlmopen"), "loads code"),
    **dict.fromkeys(
        (
            *("system", "popen", "fork", "vfork", "clone", "execl", "execle", "execlp", "execv"),
            *("execve", "execvp", "execvpe", "posix_spawn", "syscall", "socket", "ptrace", "kill"),
            *("fopen", "freopen", "creat", "mmap", "mprotect", "shm_open", "memfd_create"),
            *("process_vm_readv", "process_vm_writev", "getenv", "setenv", "putenv", "environ"),
        ),
        _LEAVES_THE_PROCESS,
    ),
    **dict.fromkeys(
        ("signal", "sigaction", "setitimer", "longjmp", "setjmp"), "changes the flow of control"
    ),
    **dict.fromkeys(
        ("thread", "jthread", "async", "pthread_create"),
        "work in a thread of its own can end after the clock has stopped; use OpenMP",
    ),
    **dict.fromkeys(("constructor", "destructor", "ifunc"), "runs before or beside the call"),
}
_PRAGMAS = ("omp", "GCC unroll", "GCC ivdep", "unroll", "once")
_COMPILER_OPTIONS = re.compile(r'^GCC (?:optimize|target)\s*\(((?:"[\w=,.-]*"[\s,]*)+)\)$')

_BLANKED = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<d>[^()\\\s]{0,16})\(.*?\)(?P=d)"'
    r'|"(?:\\.|[^"\\\n])*"|' + r"(?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])*'",
    re.DOTALL,
)
_INCLUDE = re.compile(r"^\s*#\s*include\b(.*)$")
_DIRECTIVE = re.compile(r"^\s*#\s*(\w*)(.*)$")
_HEADER = re.compile(r'^\s*(?:<([^>]+)>|"([^"]+)")')
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")


def check_cpp(
    source: str, *, headers: Sequence[str], options: Sequence[str]
) -> Iterator[tuple[str, int, str]]:
    """Yield (rule, line, reason) for everything in ``source`` that is not allowed.

    Args:
        source: the C++ text.
        headers: names that may be included.
        options: what ``#pragma GCC optimize`` and ``target`` may ask of the compiler.
    """
    joined = _join_continued_lines(source)
    with_strings = _blank(joined, keep_strings=True)
    yield from _check_includes(with_strings, headers)
    yield from _check_pragmas(with_strings, options)
    for number, line in enumerate(_blank(joined, keep_strings=False).split("\n"), start=1):
        yield from ((rule, number, reason) for rule, reason in _check_line(line))


def _check_includes(text: str, headers: Sequence[str]) -> Iterator[tuple[str, int, str]]:
    for number, line in enumerate(text.split("\n"), start=1):
        directive = _INCLUDE.match(line)
        if directive is None:
            continue
        header = _HEADER.match(directive.group(1))
        name = (header.group(1) or header.group(2)) if header else directive.group(1).strip()
        if name not in headers:
            yield "header", number, f"#include of {name!r} is not allowed"


def _check_pragmas(text: str, options: Sequence[str]) -> Iterator[tuple[str, int, str]]:
    for number, line in enumerate(text.split("\n"), start=1):
        directive = _DIRECTIVE.match(line)
        if directive is None or directive.group(1) != "pragma":
            continue
        pragma = " ".join(directive.group(2).split())
        asked = _COMPILER_OPTIONS.match(pragma)
        if asked is None and not pragma.startswith(_PRAGMAS):
            yield "pragma", number, f"#pragma {pragma} is not allowed"
        for option in re.findall(r'[^"\s,]+', asked.group(1)) if asked else ():
            if option not in options:
                yield "pragma", number, f"the compiler option {option!r} is not allowed"


def _check_line(line: str) -> Iterator[tuple[str, str]]:
    directive = _DIRECTIVE.match(line)
    if "##" in line or "%:" in line or "??" in line:
        yield "token-pasting", "names may not be put together by the preprocessor"
    if re.search(r"\b_Pragma\b|\binclude_next\b|\b__has_include\b", line):
        yield "pragma", "hidden preprocessor directives are not allowed"
    if directive is not None and directive.group(1) == "include":
        return
    for name in _IDENTIFIER.findall(line):
        if name in _FORBIDDEN:
            yield "cpp-name", f"{name} is not allowed: {_FORBIDDEN[name]}"


def _join_continued_lines(source: str) -> str:
    """Join lines that end in a backslash, and keep the count of lines."""
    joined: list[str] = []
    pending, held = "", 0
    for line in source.split("\n"):
        if line.rstrip().endswith("\\"):
            pending += line.rstrip()[:-1]
            held += 1
            continue
        joined += [pending + line, *([""] * held)]
        pending, held = "", 0
    return "\n".join([*joined, pending] if held else joined)


def _blank(text: str, *, keep_strings: bool) -> str:
    """Replace comments, and strings unless kept, by blanks; newlines stay."""

    def replace(match: re.Match[str]) -> str:
        if keep_strings and not match.group().startswith("/"):
            return match.group()
        return "".join(c if c == "\n" else " " for c in match.group())

    return _BLANKED.sub(replace, text)
