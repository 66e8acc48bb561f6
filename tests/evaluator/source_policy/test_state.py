"""Caches between calls, recognising an input by address, and fallbacks that hide a failure."""

from __future__ import annotations

import pytest

from tests.evaluator.source_policy.checking import check_parts, refusals, rules


@pytest.mark.parametrize(
    ("top", "body"),
    [
        ("C = {}", "C[x.shape] = x"),
        ("C = {}", "C.setdefault(1, x)"),
        ("C = {}", "c = C; c[1] = x"),
        ("C = {}", "a, c = 1, C; c.update(a=x)"),
        ("C = []", "C.append(x)"),
        ("C = []", "c = C; c += [x]"),
        ("C = [{}]", "C[0][1] = x"),
        ("C = {}", "put = C.update; put(a=x)"),
        ("C = {}", "dict.update(C, a=x)"),
        ("C = {}\ndef put(c, v): c[1] = v", "put(C, x)"),
        ("C = {}\ndef get(): return C", "get()[1] = x"),
        ("C = iter(range(9))", "next(C)"),
        (
            "def make():\n    c = {}\n    return lambda x: c.setdefault(1, x)\nimpl = make()",
            "impl(x)",
        ),
        ("def put(x, c=[]): c.append(x)", "put(x)"),
        ("n = 0", "global n; n = 1"),
        ("", "n = 0\n    def f():\n        nonlocal n\n        n += 1"),
        ("", "entry.last = x"),
        ("", "entry.last"),
        ("class K: c = {}", "K.c[1] = x"),
        ("class K: pass", "K.c = x"),
        ("class K:\n    c = {}\n    def f(self, x): self.c[1] = x", "pass"),
        (
            "class K:\n    def __init__(self): self.c = {}\n    def f(self, x): self.c[1] = x",
            "pass",
        ),
        ("class K:\n    def f(self, x): self.last = x", "pass"),
        ("B = torch.zeros(9)", "B.copy_(x)"),
        ("B = torch.zeros(9)", "B[0] = x[0]"),
        ("B = torch.zeros(9)", "torch.add(x, x, out=B)"),
        ("import functools\n@functools.lru_cache\ndef f(x): return x", "f(x)"),
    ],
)
def test_what_could_hold_a_result_for_the_next_call_is_refused(top: str, body: str) -> None:
    assert "cache" in rules(refusals(check_parts(top=top, body=body)))


@pytest.mark.parametrize(
    ("top", "body"),
    [
        ("C = {torch.float32: 4}", "n = C[x.dtype]; m = C.get(x.dtype, 2)"),
        ("C = [(64, 4), (128, 8)]", "for b, w in C: pass"),
        ("C = [(64, 4), (128, 8)]", "b = max(C, key=lambda c: c[0])"),
        ("T = (1, 2)\nN = 3\nEPS = 1e-6\nBIG = math.log(2)", "y = T[0] + N + EPS + BIG"),
        ("C = {}\nfor i in range(4):\n    C[i] = i * i", "n = C[3]"),
        ("", "c = {}; c[1] = x; c.setdefault(2, x)"),
        ("", "sizes = [];\n    for s in x.shape: sizes.append(s)"),
        ("def f(x, n=(1, 2), m=None): return x", "f(x)"),
        ("DEVICE = torch.device('cpu')", "torch.empty(3, device=DEVICE)"),
        ("K = frozenset((1, 2))", "y = 1 in K"),
    ],
)
def test_constants_tables_and_locals_are_no_caches(top: str, body: str) -> None:
    assert check_parts(top=top, body=body) == []


@pytest.mark.parametrize(
    ("top", "body"),
    [
        ("", "if x.data_ptr() == 3: pass"),
        ("", "p = x.data_ptr()\n    if p != 3: pass"),
        ("", "if id(x) == 3: pass"),
        ("C = {}", "y = C.get(x.data_ptr())"),
        ("C = {}", "if x.data_ptr() in C: pass"),
        ("C = {}", "y = C[x.data_ptr() % 1009]"),
        ("C = [None]", "if C[0] is x: pass"),
        ("class K:\n    def f(self, x):\n        if self.last is x: pass", "pass"),
        ("", "p = str(x.data_ptr())\n    if p == '3': pass"),
        ("def f(p): return p == 3", "f(x.data_ptr())"),
        ("", "x.untyped_storage()"),
    ],
)
def test_recognising_an_input_by_its_address_is_refused(top: str, body: str) -> None:
    assert "address" in rules(refusals(check_parts(top=top, body=body)))


@pytest.mark.parametrize(
    "body",
    [
        "if x.data_ptr() % 16 == 0: pass",
        "aligned = (x.data_ptr() | x.data_ptr()) % 16 == 0",
        "native.f(x.data_ptr())",
        "pointers = torch.tensor([t.data_ptr() for t in (x, x)])",
        "if x.data_ptr() == x.t().data_ptr(): pass",
        "groups = {}; groups[x.data_ptr()] = x",
        "y = x\n    if y is x: pass",
        "if x is None: pass",
        "if x.dtype is torch.float32: pass",
    ],
)
def test_alignment_overlap_and_handing_an_address_to_a_kernel_are_allowed(body: str) -> None:
    assert check_parts(body=body) == []


@pytest.mark.parametrize(
    ("body", "rule", "refused"),
    [
        ("try: native.f(x)\n    except Exception: return x", "fallback", False),
        ("try: native.f(x)\n    except Exception: return torch.relu(x)", "fallback-compute", True),
        ("try: native.f(x)\n    except Exception: x = x @ x", "fallback-compute", True),
        (
            "try: return native.f(x)\n    except Exception: pass\n    x = x.softmax(-1)",
            "fallback-compute",
            True,
        ),
        ("try: return native.f(x)\n    except Exception: return slow(x)", "fallback-compute", True),
        ("try: native.f(x)\n    finally: return x", "fallback", False),
    ],
)
def test_a_handler_that_goes_on_is_told_and_refused_where_the_library_computes(
    body: str, rule: str, refused: bool
) -> None:
    found = check_parts(top="def slow(x): return torch.relu(x)", body=body)
    assert [v.refuses for v in found if v.rule == rule] == [refused]


@pytest.mark.parametrize(
    ("top", "body"),
    [
        ("", "try: native.f(x)\n    except Exception as e: raise ValueError('no') from e"),
        ("try:\n    import math as m\nexcept ImportError:\n    m = None", "pass"),
        ("", "try: native.f(x)\n    finally: n = 1"),
    ],
)
def test_a_handler_that_raises_again_hides_nothing(top: str, body: str) -> None:
    assert check_parts(top=top, body=body) == []
