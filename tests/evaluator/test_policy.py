from __future__ import annotations

import pytest

from evaluator.candidate import BackendName
from evaluator.policy import Violation, check_source
from policies.model import EvaluatorPolicy
from tests import samples
from tests.builders import make_candidate

POLICY = EvaluatorPolicy.default().source

PLAIN = """\
import torch
import math
{imports}

SOURCE = r'''
{cpp}
'''
SIGNATURES = {{}}


def entry(x):
    {body}
    return x
"""


def violations(
    *, imports: str = "", body: str = "pass", cpp: str = "", enforced: bool = True
) -> list[Violation]:
    candidate = make_candidate(PLAIN.format(imports=imports, body=body, cpp=cpp))
    policy = POLICY.model_copy(update={"enforced": enforced})
    return check_source(candidate, entry_function="entry", policy=policy)


@pytest.mark.parametrize(
    ("source", "entry", "backend"),
    [
        (samples.RMS_NORM_CPP, "rms_norm", BackendName.CPP),
        (samples.ROTARY_CPP, "rotary", BackendName.CPP),
        (samples.RMS_NORM_TRITON, "rms_norm", BackendName.TRITON),
    ],
)
def test_honest_candidates_pass(source: str, entry: str, backend: BackendName) -> None:
    candidate = make_candidate(source, backend=backend)
    assert check_source(candidate, entry_function=entry, policy=POLICY) == []


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ("exec('x = 1')", "builtin"),
        ("eval('1')", "builtin"),
        ("open('/etc/passwd')", "builtin"),
        ("__import__('os')", "builtin"),
        ("getattr(torch, 'comp' + 'ile')", "builtin"),
        ("(e := exec)('x = 1')", "builtin"),
        ("x.__class__.__mro__", "dunder"),
        ("__builtins__", "dunder"),
        ("torch.compile(entry)", "forbidden-name"),
        ("torch.utils.cpp_extension.load_inline('a', 'b')", "forbidden-name"),
        ("s = torch.cuda.Stream()", "forbidden-name"),
        ("torch.ops.aten.mm(x, x)", "forbidden-name"),
        ("torch._C", "private-name"),
        ("torch.add = torch.sub", "monkey-patch"),
        ("torch.cuda.synchronize = entry", "monkey-patch"),
        ("del torch.add", "monkey-patch"),
        ("t = torch", "alias"),
        ("global cache", "state"),
    ],
)
def test_reaching_out_of_the_computation_is_refused_at_its_line(body: str, rule: str) -> None:
    found = violations(body=body)
    assert rule in {v.rule for v in found}
    assert all(v.line == 12 for v in found)


@pytest.mark.parametrize(
    "line",
    [
        "import os",
        "import socket as s",
        "from os import system",
        "import ctypes",
        "import threading",
        "from torch import compile",
        "from torch.cuda import Stream",
        "import torch.utils.cpp_extension",
        "import importlib",
        "from . import helper",
        "from math import *",
    ],
)
def test_imports_beyond_the_list_are_refused(line: str) -> None:
    assert violations(imports=line)


@pytest.mark.parametrize(
    "text",
    [
        '/* system("ls"); asm */ int x;',
        "// #include <unistd.h>",
        'const char* text = "fork()";',
        "int thread_count = 4; int systematic = 1;",
        "#pragma omp parallel for schedule(static)",
        "#pragma GCC unroll 8",
        '#pragma GCC optimize("associative-math", "no-trapping-math")',
        '#pragma GCC target("prefer-vector-width=512")',
        "const int64_t big = 1'000'000;",
    ],
)
def test_comments_strings_and_look_alikes_are_no_violations(text: str) -> None:
    assert violations(cpp=text) == []


@pytest.mark.parametrize(
    "text",
    [
        "#include <unistd.h>",
        "#  include <sys/socket.h>",
        '#include "/etc/passwd"',
        "#include HEADER",
        'extern "C" int system(const char*);',
        'void f() { asm("nop"); }',
        'void f() { __asm__ volatile("nop"); }',
        "int pid = fork();",
        "void* h = dlopen(0, 1);",
        "int s = socket(2, 1, 0);",
        "std::thread t(f);",
        "#define CALL(a, b) a##b",
        "__attribute__((constructor)) void f();",
        '/* a */ as\\\nm("nop");',
        '#pragma GCC optimize("Ofast")',
        '#pragma GCC optimize("unroll-loops", "finite-math-only")',
        '#pragma GCC target("arch=x86-64-v4")',
        "#pragma GCC optimize(FLAGS)",
        "#pragma GCC push_options",
    ],
)
def test_cpp_that_leaves_the_computation_is_refused(text: str) -> None:
    assert violations(cpp=text)


def test_the_line_of_cpp_is_counted_in_the_candidates_file() -> None:
    found = violations(cpp="int a;\nint b;\nint c = fork();")
    assert [v.line for v in found] == [8]


def test_a_source_that_is_computed_is_refused() -> None:
    source = "import torch\nSOURCE = 'a' + 'b'\nSIGNATURES = {}\ndef entry(x):\n    return x\n"
    found = check_source(make_candidate(source), entry_function="entry", policy=POLICY)
    assert [v.rule for v in found] == ["source"]


def test_a_module_without_the_entry_is_refused() -> None:
    found = check_source(make_candidate(), entry_function="other", policy=POLICY)
    assert [v.rule for v in found] == ["entry"]


def test_a_policy_that_is_off_refuses_nothing() -> None:
    assert violations(imports="import os", body="eval('1')", enforced=False) == []
