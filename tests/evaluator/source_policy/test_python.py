"""What Python a candidate may not write, whatever it calls it."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.candidate import BackendName
from tests import samples
from tests.evaluator.source_policy.checking import (
    BODY_LINE,
    check,
    check_parts,
    refusals,
    rules,
)


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ("exec('x = 1')", "builtin"),
        ("eval('1')", "builtin"),
        ("compile('1', '', 'eval')", "builtin"),
        ("open('/etc/passwd')", "builtin"),
        ("__import__('os')", "dunder"),
        ("getattr(torch, 'comp' + 'ile')", "builtin"),
        ("setattr(torch, 'add', entry)", "builtin"),
        ("delattr(torch, 'add')", "builtin"),
        ("globals()['x']", "builtin"),
        ("vars(torch)['add']", "builtin"),
        ("(e := exec)('x = 1')", "builtin"),
        ("f = eval; f('1')", "builtin"),
        ("[e('1') for e in [eval]]", "builtin"),
        ("type('T', (), {})", "builtin"),
        ("x.__class__.__mro__", "dunder"),
        ("__builtins__", "dunder"),
        ("x.__dict__['a'] = 1", "dunder"),
        ("f'{x.__class__}'", "dunder"),
        ("(i for i in []).gi_frame.f_back", "dunder"),
        ("torch.compile(entry)", "forbidden-name"),
        ("torch.jit.script(entry)", "forbidden-name"),
        ("torch.utils.cpp_extension.load_inline('a', 'b')", "foreign-code"),
        ("torch.ops.load_library('a')", "foreign-code"),
        ("torch.os.system('ls')", "forbidden-name"),
        ("torch.builtins.exec('1')", "forbidden-name"),
        ("torch.sys.modules", "forbidden-name"),
        ("torch.set_num_threads(64)", "forbidden-name"),
        ("torch.backends.cudnn.benchmark", "forbidden-name"),
        ("torch.cuda.memory.empty_cache()", "forbidden-name"),
        ("torch.load('x')", "builtin"),
        ("s = torch.cuda.Stream()", "stream"),
        ("torch.cuda.ExternalStream(3)", "stream"),
        ("torch.cuda.set_stream(x)", "stream"),
        ("torch.cuda.CUDAGraph()", "stream"),
        ("x.record_stream(x)", "stream"),
        ("torch.cuda.synchronize()", "stream"),
        ("torch.cuda.Event(enable_timing=True)", "clock"),
        ("torch.profiler.profile()", "clock"),
        ("torch._C", "private-name"),
        ("x._base", "private-name"),
        ("torch.add = torch.sub", "monkey-patch"),
        ("torch.cuda.synchronize = entry", "monkey-patch"),
        ("torch.Tensor.add = entry", "monkey-patch"),
        ("torch.Tensor.n += 1", "monkey-patch"),
        ("del torch.add", "monkey-patch"),
        ("for torch.add in [entry]: pass", "monkey-patch"),
        ("type(x).add = entry", "monkey-patch"),
        ("x.data = x", "monkey-patch"),
        ("T = torch.Tensor; T.add = entry", "monkey-patch"),
        ("x.register_hook(entry)", "monkey-patch"),
        ("torch.library.Library('a', 'DEF')", "monkey-patch"),
        ("x.as_subclass(x)", "subclass"),
        ("torch.empty(3, device='meta')", "lazy"),
        ("print(torch)", "alias"),
        ("modules = [torch]", "alias"),
        ("modules = {'t': torch.cuda}", "alias"),
        ("f = lambda: torch", "alias"),
        ("return torch", "alias"),
        ("torch.manual_seed(1)", "cache"),
        ("match x:\n        case object(__class__=c): pass", "dunder"),
    ],
)
def test_reaching_out_of_the_computation_is_refused_at_its_line(body: str, rule: str) -> None:
    found = refusals(check_parts(body=body))
    assert rule in rules(found)
    assert all(v.line - BODY_LINE in range(body.count("\n") + 1) for v in found)


@pytest.mark.parametrize(
    "line",
    [
        "import os",
        "import socket as s",
        "from os import system",
        "import ctypes",
        "import threading",
        "import _thread",
        "import importlib",
        "import gc",
        "import triton",
        "from torch import compile",
        "from torch.cuda import Stream",
        "import torch.utils.cpp_extension",
        "from . import helper",
        "from math import *",
        "from torch import *",
        "import torch.cuda as c\nc.synchronize = print",
    ],
)
def test_imports_beyond_the_list_are_refused(line: str) -> None:
    assert refusals(check_parts(top=line))


@pytest.mark.parametrize(
    "top",
    [
        "class T(torch.Tensor): pass",
        "from torch import Tensor\nclass T(Tensor): pass",
        "class T(metaclass=type): pass",
        "class T:\n    def __torch_function__(self): pass",
        "class T:\n    def __getattr__(self, name): pass",
        "async def f(): pass",
        "def f(x): return x\n@f\ndef g(x): return x",
        "@(lambda f: f)\ndef g(x): return x",
    ],
)
def test_classes_and_decorators_that_work_unseen_are_refused(top: str) -> None:
    assert refusals(check_parts(top=top))


@pytest.mark.parametrize(
    "body",
    [
        "c = torch.cuda; c.Stream()",
        "a, c = 1, torch.cuda; c.Stream()",
        "(c := torch.cuda).Stream()",
        "c = torch.cuda if x else torch.nn; c.Stream()",
        "c = x or torch.cuda; c.Stream()",
        "f = lambda c=torch.cuda: c.Stream()",
        "from torch import cuda as c; c.Stream()",
        "d = c = torch.cuda; d.Stream()",
        "c: object = torch.cuda; c.Stream()",
    ],
)
def test_an_alias_of_a_module_is_followed(body: str) -> None:
    assert "stream" in rules(check_parts(body=body))


def test_a_name_that_is_another_only_in_one_branch_is_both() -> None:
    top = "if math.pi > 3:\n    where = torch.cuda\nelse:\n    where = torch.nn"
    assert "stream" in rules(check_parts(top=top, body="where.Stream()"))


def test_a_builtin_that_is_hidden_for_a_while_is_still_seen() -> None:
    top = "open = 1\ndel open"
    assert "builtin" in rules(check_parts(top=top, body="open('x')"))


def test_attributes_and_results_of_the_modules_own_are_followed() -> None:
    top = "class N:\n    c = torch.cuda\ndef g():\n    return torch.cuda.Stream"
    assert "stream" in rules(check_parts(top=top, body="N.c.Stream()"))
    assert "stream" in rules(check_parts(top=top, body="N().c.Stream()"))


@settings(max_examples=25)
@given(st.lists(st.sampled_from(["{b} = {a}", "{b}, _ = {a}, 1", "({b} := {a})"]), max_size=30))
def test_an_alias_chain_of_any_depth_is_resolved(links: list[str]) -> None:
    lines = [t.format(a=f"n{i}", b=f"n{i + 1}") for i, t in enumerate(links)]
    top = "\n".join(["n0 = torch.cuda", *lines])
    found = check_parts(top=top, body=f"n{len(links)}.Stream()")
    assert rules(found) == {"stream"}
    assert len(found) == 1


@settings(max_examples=25)
@given(st.permutations(range(8)))
def test_the_order_of_an_alias_chain_does_not_matter(order: list[int]) -> None:
    lines = ["n0 = torch.cuda", *(f"n{i + 1} = n{i}" for i in range(7))]
    top = "\n".join(lines[i] for i in order)
    assert rules(check_parts(top=top, body="n7.Stream()")) == {"stream"}


CHEAT = """\
import torch
cache = {}
def entry(x, scale=[1]):
    stream = torch.cuda.Stream
    key = x.data_ptr()
    if key in cache:
        return cache[key]
    try:
        y = torch.matmul(x, x)
    except Exception:
        y = x @ x
    cache[key] = y
    torch.add = entry
    return y
"""


@settings(max_examples=25)
@given(st.text("abcxyz", min_size=1, max_size=6), st.integers(0, 3))
def test_names_and_formatting_change_nothing_that_is_found(suffix: str, blank_lines: int) -> None:
    renamed = CHEAT
    for name in ("cache", "stream", "key", "scale"):
        renamed = renamed.replace(name, f"{name}_{suffix}")
    spaced = renamed.replace("\n", "\n" * (blank_lines + 1), 2)
    commented = spaced.replace("\n    ", "  # exec('1')\n    ")
    plain = sorted(v.rule for v in check(CHEAT))
    assert sorted(v.rule for v in check(commented)) == plain
    assert sorted(v.rule for v in check(ast.unparse(ast.parse(commented)))) == plain


def test_a_message_names_the_line_what_was_found_and_why() -> None:
    (found,) = check_parts(body="f = torch.cuda.Stream")
    assert str(found) == (
        "line 12: torch.cuda.Stream: work on another stream, or replayed, can end after the "
        "clock has stopped [stream]"
    )


def test_a_module_without_the_entry_is_refused() -> None:
    assert rules(check(samples.RMS_NORM_CPP, entry="other")) == {"entry"}


def test_a_source_that_is_computed_is_refused() -> None:
    source = "import torch\nSOURCE = 'a' + 'b'\nSIGNATURES = {}\ndef entry(x):\n    return x\n"
    assert rules(check(source)) == {"source"}
    late = source.replace("'a' + 'b'", "''") + "if entry:\n    SOURCE = 'int x;'\n"
    assert rules(check(late)) == {"source"}


@pytest.mark.parametrize("encoding", ["unicode_escape", "utf-7", "no-such"])
def test_an_encoding_that_reads_other_text_is_refused(encoding: str) -> None:
    source = f"# coding: {encoding}\n{samples.RMS_NORM_CPP}"
    assert rules(check(source, entry="rms_norm")) == {"encoding"}
    assert check(f"# coding: utf-8\n{samples.RMS_NORM_CPP}", entry="rms_norm") == []


def test_inline_assembly_and_foreign_libraries_of_triton_are_refused() -> None:
    for call in ("tl.inline_asm_elementwise('nop')", "tl.extern_elementwise('a', '/b')"):
        source = samples.RMS_NORM_TRITON.replace("at = tl.arange(0, BLOCK)", f"at = {call}")
        found = check(source, backend=BackendName.TRITON, entry="rms_norm")
        assert refusals(found), call


def test_a_native_function_named_like_an_operation_is_the_candidates_own() -> None:
    assert not [v for v in check_parts(body="native.relu(x)") if v.rule == "library-compute"]


@pytest.mark.parametrize(
    "top", ["native = torch.zeros(3)", "def helper(native):\n    return native"]
)
def test_another_object_called_native_computes_with_the_library(top: str) -> None:
    found = check_parts(top=top, body="native.relu(x)")
    assert "library-compute" in {v.rule for v in found}
