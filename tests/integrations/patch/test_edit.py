"""The edit of the target file: what it adds, and that it changes nothing else."""

from __future__ import annotations

import ast
import difflib

import pytest

from integrations.patch.edit import KernelImport, insert_dispatch
from integrations.patch.errors import PatchError, TargetMoved
from integrations.patch.site import find_site

KERNEL = KernelImport(package=".", module="ops_f_kernel", optional=False)


def dispatched(
    source: str | bytes,
    qualname: str = "f",
    *,
    arguments: tuple[str, ...] = ("x",),
    state: tuple[str, ...] = (),
    kernel: KernelImport = KERNEL,
) -> bytes:
    raw = source if isinstance(source, bytes) else source.encode()
    site = find_site(raw, qualname)
    return insert_dispatch(raw, site, kernel, entry="g", arguments=arguments, state=state)


def removed_lines(before: bytes, after: bytes) -> list[bytes]:
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    matcher = difflib.SequenceMatcher(a=old, b=new, autojunk=False)
    return [line for tag, i, j, *_ in matcher.get_opcodes() if tag != "insert" and tag != "equal"
            for line in old[i:j]]  # fmt: skip


SHAPES = {
    "plain": "def f(x):\n    return x\n",
    "docstring and comment": 'import torch\n\n\ndef f(x):\n    """Doc."""\n    # why\n    return x\n',  # noqa: E501
    "docstring of several lines": 'def f(x):\n    """Doc.\n\n    More.\n    """  # odd\n\n    return x\n',  # noqa: E501
    "docstring alone": 'def f(x):\n    """Nothing."""\n\n\ny = 1\n',
    "comment before the first statement": "def f(x):\n\n    # why\n    return x\n",
    "decorated": "import functools\n\n\n@functools.cache\n@functools.cache\ndef f(x):\n    return x\n",  # noqa: E501
    "decorated first statement": "def f(x):\n    @staticmethod\n    def g(): ...\n    return g\n",
    "header on many lines": "def f(\n    x,  # the input\n) -> int:  # odd\n    return x\n",
    "asynchronous": "async def f(x):\n    await x\n",
    "tabs": "import torch\nif True:\n\tdef f(x):\n\t\treturn x\n",
    "trailing blanks and form feed": "import torch  \n\x0c\ndef f(x):   \n    return x   \n",
    "unicode": "# \u00e9\u4e16\u754c\nimport torch\ndef f(x):\n    '''\u4e16'''\n    return '\u00fc' or x\n",  # noqa: E501
    "try around the imports": "try:\n    import torch\nexcept ImportError:\n    torch = None\n\n\n"
    "def f(x):\n    return x\n",
    "future import": "from __future__ import annotations\n\n\ndef f(x):\n    return x\n",
    "module docstring alone": '"""Doc."""\n\n\ndef f(x):\n    return x\n',
}


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_other_line_stays_as_it_was_to_the_byte(shape: str, newline: str) -> None:
    source = SHAPES[shape].replace("\n", newline).encode()

    result = dispatched(source)

    assert removed_lines(source, result) == []
    assert b"ops_f_kernel.can_use(x)" in result
    assert (b"\r\n" in result) == (newline == "\r\n")
    assert result.count(b"\n") == result.count(newline.encode())


def test_the_dispatch_comes_after_the_docstring_and_before_the_body() -> None:
    result = dispatched(SHAPES["docstring and comment"]).decode()

    assert result == (
        "import torch\n\nfrom . import ops_f_kernel\n\n\n"
        'def f(x):\n    """Doc."""\n'
        "    if ops_f_kernel.can_use(x):\n        return ops_f_kernel.g(x)\n"
        "    # why\n    return x\n"
    )
    assert ast.get_docstring(ast.parse(result).body[-1]) == "Doc."


def test_a_file_without_its_last_newline_gains_no_broken_line() -> None:
    result = dispatched("def f(x):\n    return x")

    assert result.endswith(b"        return ops_f_kernel.g(x)\n    return x")


def test_a_function_on_one_line_is_opened() -> None:
    result = dispatched("def f(x): return x + 1  # quick\n").decode()

    assert "def f(x):\n    if ops_f_kernel.can_use(x):\n" in result
    assert result.endswith("    return x + 1  # quick\n")


def test_a_byte_order_mark_stays_first_and_alone() -> None:
    result = dispatched(b"\xef\xbb\xbfimport torch\n\n\ndef f(x):\n    return x\n")

    assert result.startswith(b"\xef\xbb\xbfimport torch\n")
    assert result.count(b"\xef\xbb\xbf") == 1


def test_another_encoding_is_kept() -> None:
    source = b"# -*- coding: latin-1 -*-\n# \xe9\ndef f(x):\n    return '\xfc', x\n"

    assert removed_lines(source, dispatched(source)) == []


CLASSES = """\
class Outer:
    class Inner:
        table = 1

        def __init__(self, a):
            self.a = a
            self.register_buffer("b", None)
            if a:
                self.c = 1

        def f(self, x):
            return x
"""


def test_a_method_of_a_nested_class_hands_its_state_over() -> None:
    result = dispatched(CLASSES, "Outer.Inner.f", state=("a", "b", "table")).decode()

    assert "            if ops_f_kernel.can_use(x, self.a, self.b, self.table):\n" in result
    assert "                return ops_f_kernel.g(x, self.a, self.b, self.table)\n" in result


def test_state_that_an_instance_may_lack_is_read_without_raising() -> None:
    result = dispatched(CLASSES, "Outer.Inner.f", state=("c",)).decode()

    assert 'can_use(x, getattr(self, "c", None))' in result


def test_a_long_call_is_folded() -> None:
    names = tuple(f"argument_number_{n}" for n in range(6))
    result = dispatched(f"def f({', '.join(names)}):\n    pass\n", arguments=names).decode()

    assert max(len(line) for line in result.splitlines()[3:]) < 89 + 30
    assert "    if ops_f_kernel.can_use(\n" in result


def test_an_absolute_import_is_put_in_order_among_its_kin() -> None:
    imports = "import torch\n\nfrom pkg.alpha import a\nfrom pkg.zeta import z\n"
    source = imports + "\n\ndef f(x):\n    return x\n"
    result = dispatched(source, kernel=KernelImport("pkg.ops", "k", False)).decode()

    assert "from pkg.alpha import a\nfrom pkg.ops import k\nfrom pkg.zeta import z\n" in result


def test_a_kernel_that_needs_what_not_every_machine_has_is_imported_with_care() -> None:
    kernel = KernelImport(".", "k", optional=True)
    result = dispatched("import torch\n\n\ndef f(x):\n    return x\n", kernel=kernel).decode()

    assert "try:\n    from . import k\nexcept ImportError:" in result
    assert "    if k is not None and k.can_use(x):\n" in result


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("def f(x):\n    yield x\n", "generator"),
        ("@torch.jit.script\ndef f(x):\n    return x\n", "scripted"),
        ("def f(*x):\n    return x\n", r"\*args"),
        ("def f(x, **k):\n    return x\n", r"\*\*kwargs"),
        ("def f(x):\n    'doc'; return x\n", "docstring"),
        ("def f(x:\n", "parsed"),
        ("ops_f_kernel = 1\ndef f(x):\n    return x\n", "used in the target file already"),
    ],
)
def test_what_cannot_hold_a_dispatch_is_refused_with_the_reason(source: str, reason: str) -> None:
    with pytest.raises(PatchError, match=reason):
        dispatched(source)


@pytest.mark.parametrize("source", ["def g(x): pass\n", "def f(x): pass\ndef f(x): pass\n"])
def test_a_target_that_is_gone_or_ambiguous_is_not_guessed(source: str) -> None:
    with pytest.raises(TargetMoved):
        dispatched(source)


def test_a_generator_inside_the_function_does_not_make_it_one() -> None:
    assert dispatched("def f(x):\n    def g():\n        yield x\n    return list(g())\n")
