from __future__ import annotations

from pathlib import Path

import pytest
import torch

from integrations.errors import Refused
from integrations.extraction.machines import Machine
from integrations.extraction.pipeline import Extracted
from integrations.extraction.source import SourceModule, SourceTree
from tests.integrations.extraction.conftest import Extract


def kinds(extracted: Extracted) -> list[str]:
    return [a.kind for a in extracted.assumptions]


def test_helpers_and_constants_are_followed_across_files(extract_from: Extract) -> None:
    found = extract_from(
        {
            "engine/__init__.py": "",
            "engine/ops.py": """\
                import engine.lib.maths as maths
                from engine.lib import rotate as turn
                from .consts import *

                def f(x):
                    return turn(x) * maths.double(x) + EPS
                """,
            "engine/consts.py": "EPS = 1e-6  # keeps the root away from zero\n",
            "engine/lib/__init__.py": "from .geometry import rotate\n",
            "engine/lib/geometry.py": "def rotate(x):\n    return -x\n",
            "engine/lib/maths.py": "def double(x):\n    return _two() * x\n\n\ndef _two():\n"
            "    return 2\n",
        },
        "engine/ops.py::f",
    )
    scope: dict[str, object] = {}
    exec(found.source, scope)
    assert scope["f"](3.0) == -3.0 * 6.0 + 1e-6  # type: ignore[operator]
    assert "# keeps the root away from zero" in found.source


def test_what_is_kept_stays_as_it_was_written(extract_from: Extract) -> None:
    body = """\
def f(x,   y = 2):   # odd spacing
    '''Say why.'''
    # a comment
    return ( x
             * y )
"""
    assert body in extract_from({"a.py": f"import torch\n\n\n{body}"}, "a.py::f").source


def test_two_helpers_of_one_name_do_not_collide(extract_from: Extract) -> None:
    found = extract_from(
        {
            "a.py": """\
                from b import g
                def helper(x):
                    return x + 1
                def f(x):
                    return helper(g(x))
                """,
            "b.py": """\
                def helper(x):
                    return x * 10
                def g(x):
                    return helper(x)
                """,
        },
        "a.py::f",
    )
    scope: dict[str, object] = {}
    exec(found.source, scope)
    assert scope["f"](2) == 21  # type: ignore[operator]


def test_an_import_of_a_submodule_binds_the_package(extract_from: Extract) -> None:
    files = {
        "a.py": """\
            import torch
            from b import helper

            def f(x):
                return helper(torch.relu(x))
            """,
        "b.py": """\
            import torch
            import torch.nn.functional

            def helper(x):
                return torch.nn.functional.silu(x) + torch.ones(1)
            """,
    }
    source = extract_from(files, "a.py::f").source
    assert "\nimport torch\nimport torch.nn.functional\n" in source
    assert "return torch.nn.functional.silu(x) + torch.ones(1)" in source


def test_a_local_name_hides_a_global_one(extract_from: Extract) -> None:
    source = """\
        import unheard_of
        from unheard_of import scale

        def f(x, scale):
            return [scale * x for x in x]
        """
    assert extract_from({"a.py": source}, "a.py::f").arguments == ("x", "scale")


def test_decorators_are_taken_off_and_recorded(extract_from: Extract) -> None:
    source = """\
        import functools
        import torch
        from .compat import get_backend

        @functools.lru_cache
        def offsets(n, device):
            return torch.arange(n, device=device)

        @torch.compile(backend=get_backend())
        def f(x):
            return x + offsets(3, x.device)
        """
    found = extract_from({"p/a.py": source, "p/compat.py": "import missing\n"}, "p/a.py::f")
    assert sorted(kinds(found)) == ["cache", "decorator"]
    assert "@" not in found.source
    assert found.closure.entry.edits.compiled


def test_a_decorator_that_changes_the_result_is_kept_or_refused(extract_from: Extract) -> None:
    source = """\
        import functools
        import torch
        from absent import magic

        def counted(f):
            @functools.wraps(f)
            def inner(*args, **kwargs):
                print("called")
                return f(*args, **kwargs)
            return inner

        def doubled(by):
            def decorate(f):
                def inner(x):
                    return f(x) * by
                return inner
            return decorate

        @counted
        def plain(x):
            return x

        @doubled(by=2)
        @torch.autocast("cpu", enabled=False)
        def changed(x):
            return x

        @magic
        def strange(x):
            return x
        """
    plain = extract_from({"a.py": source}, "a.py::plain")
    assert "@" not in plain.source
    assert kinds(plain) == ["decorator"]
    changed = extract_from({"a.py": source}, "a.py::changed").source
    assert '@doubled(by=2)\n@torch.autocast("cpu", enabled=False)\ndef changed(x)' in changed
    with pytest.raises(Refused, match=r"a\.py:28: @magic is not in the repository"):
        extract_from({"a.py": source}, "a.py::strange")


def test_platform_constants_are_folded(extract_from: Extract) -> None:
    source = """\
        from engine_utils import is_npu, get_bool_env_var
        _is_npu = is_npu()
        _fast = get_bool_env_var("ENGINE_FAST", "true")

        def f(x):
            if _is_npu:
                return npu_only(x)
            elif _fast:
                y = x * 2
            else:
                y = slow(x)
            return y if _fast else slow(y)
        """
    found = extract_from({"a.py": source}, "a.py::f")
    assert kinds(found).count("branch") == 3
    scope: dict[str, object] = {}
    exec(found.source, scope)
    assert scope["f"](4) == 8  # type: ignore[operator]


def test_noise_is_pruned_before_its_names_are_followed(extract_from: Extract) -> None:
    source = """\
        import logging
        from heavy import Pool, maybe_detect_oob
        logger = logging.getLogger(__name__)

        def f(x, pool: Pool = None):
            assert isinstance(pool, Pool)
            logger.debug("called")
            maybe_detect_oob(x, 0)
            if pool is None:
                logger.info("only noise in here")
            return x
        """
    found = extract_from({"a.py": source, "heavy.py": "import cuda_thing\n"}, "a.py::f")
    assert "Pool" not in found.source.partition('"""\n')[2].partition('"""')[2]
    assert sorted(kinds(found)) == ["annotation", "assert", "call", "call", "call"]
    compile(found.source, "reference.py", "exec")


def test_a_dead_branch_is_forgiven_where_the_scalars_rule_it_out(extract_from: Extract) -> None:
    files = {
        "a.py": """\
            import torch
            def f(x, shared: int = 0):
                use = shared > 0
                if use:
                    x = x + torch.rand_like(x)
                return x
            """
    }
    with pytest.raises(Refused, match=r"a\.py:5: random numbers"):
        extract_from(files, "a.py::f")
    found = extract_from(files, "a.py::f", known={"shared": 0})
    assert "rand_like" not in found.source
    assert any(a.kind == "branch" and a.line == 4 for a in found.assumptions)


def test_an_argument_that_is_reassigned_decides_nothing(extract_from: Extract) -> None:
    source = """\
        import torch
        def f(x, n):
            n = x.shape[0]
            if n:
                x = torch.rand_like(x)
            return x
        """
    with pytest.raises(Refused, match="random numbers"):
        extract_from({"a.py": source}, "a.py::f", known={"n": 0})


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("y = torch.rand(3)", "random numbers"),
        ("y = torch.multinomial(x, 1)", "random numbers"),
        ("y = torch.nn.functional.dropout(x)", "random numbers"),
        ("y = x.uniform_()", "random numbers"),
        ("y = x.sum().item()", "host waits"),
        ("y = x.tolist()", "host waits"),
        ("y = x.to('cpu')", "host waits"),
        ("y = x.nonzero()", "shape depends on data"),
        ("y = x[x > 0]", "shape depends on data"),
        ("y = torch.distributed.all_reduce(x)", "communication"),
        ("y = unheard_of(x)", "unresolved name: unheard_of is not defined"),
        ("y = np.asarray(x)", "numpy"),
        ("yield x", "generator"),
        ("global COUNT; COUNT = 1; y = 0", "global"),
    ],
)
def test_a_sin_is_refused_with_its_line(extract_from: Extract, line: str, reason: str) -> None:
    source = f"import numpy as np\nimport torch\ndef f(x):\n    {line}\n    return y\n"
    with pytest.raises(Refused) as refusal:
        extract_from({"a.py": source}, "a.py::f")
    assert any(r.startswith("a.py:4: ") and reason in r for r in refusal.value.reasons)


def test_a_masked_store_and_an_inference_dropout_are_no_sins(extract_from: Extract) -> None:
    source = """\
        import torch.nn.functional as F
        def f(x):
            x[x > 0] = 0.0
            return F.dropout(x, training=False)
        """
    assert "x[x > 0] = 0.0" in extract_from({"a.py": source}, "a.py::f").source


def test_asynchronous_code_and_variable_arguments_are_refused(extract_from: Extract) -> None:
    with pytest.raises(Refused, match="asynchronous"):
        extract_from({"a.py": "async def f(x):\n    return x\n"}, "a.py::f")
    with pytest.raises(Refused, match=r"\*args"):
        extract_from({"a.py": "def f(*xs):\n    return xs\n"}, "a.py::f")


def test_a_try_that_needs_a_missing_package_gives_way_to_its_handler(
    extract_from: Extract,
) -> None:
    source = """\
        try:
            from fast_kernels import scale
        except ImportError:
            def scale(x):
                return x * 2

        def f(x):
            return scale(x)
        """
    assert "def scale" in extract_from({"a.py": source}, "a.py::f").source


def test_an_import_within_a_function_is_followed(extract_from: Extract) -> None:
    files = {
        "a.py": "def f(x):\n    from b import g\n    return g(x)\n",
        "b.py": "def g(x):\n    return x\n",
    }
    found = extract_from(files, "a.py::f")
    assert "from b" not in found.source
    assert "def g" in found.source


def test_a_broken_file_is_named_where_it_is_needed_and_forgiven_where_not(
    extract_from: Extract,
) -> None:
    files = {
        "ops.py": """\
            from .broken import *
            from .broken import helper

            def good(x):
                return abs(x)

            def bad(x):
                return helper(x)
            """,
        "broken.py": "def helper(x:\n",
    }
    assert "return abs(x)" in extract_from(files, "ops.py::good").source
    with pytest.raises(Refused, match=r"ops\.py:8.*broken\.py:1: syntax error"):
        extract_from(files, "ops.py::bad")


def test_only_the_files_on_the_way_are_read(
    extract_from: Extract, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repository of 100,000 files costs no more than the few that the target needs."""
    files = {f"generated/part_{i}.py": f"def f{i}(x):\n    return x\n" for i in range(200)}
    files["ops.py"] = "from generated.part_7 import f7\n\ndef f(x):\n    return f7(x)\n"
    read: list[str] = []
    real = SourceTree._read

    def counted(tree: SourceTree, path: Path) -> SourceModule:
        read.append(path.name)
        return real(tree, path)

    monkeypatch.setattr(SourceTree, "_read", counted)
    extract_from(files, "ops.py::f")
    assert read == ["ops.py", "part_7.py"]


def test_generated_code_that_is_nested_too_deeply_is_refused(extract_from: Extract) -> None:
    source = f"def f(x):\n    return x * ({'+'.join(['1'] * 900)})\n"
    with pytest.raises(Refused, match="nested too deeply"):
        extract_from({"a.py": source}, "a.py::f")


def test_a_kernel_in_triton_is_named_and_not_followed(extract_from: Extract) -> None:
    source = """\
        import triton
        import triton.language as tl

        @triton.jit
        def kernel(x, n: tl.constexpr):
            tl.store(x, n)

        def f(x):
            kernel[(1,)](x, 4)
            return x
        """
    with pytest.raises(Refused) as refusal:
        extract_from({"a.py": source}, "a.py::f")
    assert refusal.value.reasons == ("a.py:9: uses kernel, a kernel in Triton",)
    with pytest.raises(Refused, match="is a Triton kernel already"):
        extract_from({"b.py": source}, "b.py::kernel")


def test_a_compiled_operator_is_refused_and_the_branch_beside_it_taken_on_a_cpu(
    extract_from: Extract,
) -> None:
    source = """\
        import torch

        def f(x):
            if x.is_cuda:
                torch.ops._C.scale_(x)
            else:
                x *= 2
            return x
        """
    with pytest.raises(Refused, match="operator that the repository compiles"):
        extract_from({"a.py": source}, "a.py::f")
    assert "torch.ops" not in extract_from({"a.py": source}, "a.py::f", machine=Machine.CPU).source


def test_values_computed_at_import_find_what_they_need(extract_from: Extract) -> None:
    source = """\
        import torch

        def pick(name):
            return TABLE[name]()

        class Plain:
            def __call__(self, x):
                return x * 2

        class Clipped:
            def __call__(self, x):
                return double(x).clip(0, 1)

        TABLE = {"plain": Plain, "clipped": Clipped}
        double = pick("plain")

        def f(x):
            return TABLE["clipped"]()(x)
        """
    made: dict[str, object] = {}
    exec(extract_from({"a.py": source}, "a.py::f").source, made)
    assert callable(made["f"])
    assert made["f"](torch.tensor([0.2, 3.0])).tolist() == pytest.approx([0.4, 1.0])


@pytest.mark.parametrize(
    ("later", "how"),
    [
        ("SIZES['b'] = 2", "its module changes at line 2"),
        ("SIZES.update(b=2)", "its module changes at line 2"),
        ("SIZES |= {'b': 2}", "its module changes at line 2"),
        ("SIZES = dict(SIZES, b=2)", "is made from its own earlier value at line 2"),
        ("def grow():\n    global SIZES\n    SIZES = {}", r"grow may replace \(line 3\)"),
    ],
)
def test_a_value_that_does_not_stay_is_no_constant(
    extract_from: Extract, later: str, how: str
) -> None:
    source = f"SIZES = {{'a': 1}}\n{later}\ndef f(x):\n    return x * SIZES['a']\n"
    with pytest.raises(Refused, match=f"reads SIZES, which {how}"):
        extract_from({"a.py": source}, "a.py::f")


def test_imports_that_run_in_a_circle_end(extract_from: Extract) -> None:
    files = {"a.py": "from b import g\ndef f(x):\n    return g(x)\n", "b.py": "from a import g\n"}
    with pytest.raises(Refused, match="circle"):
        extract_from(files, "a.py::f")
