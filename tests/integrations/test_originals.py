"""Importing a repository's own function although packages that it asks for are not here."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

from integrations import probe

PROBES = Path(probe.__file__).parent

ENGINE = {
    "engine/__init__.py": "",
    "engine/broken.py": "FIRST = 2\nraise RuntimeError('no driver')\n",
    "engine/ops.py": """\
        from __future__ import annotations

        import importlib.util

        import torch
        from absent_kernels import autotune, Config
        from absent_kernels.versions import VERSION
        from engine.broken import FIRST, SECOND

        HAS_FLASH = importlib.util.find_spec("absent_flash") is not None
        NEW = VERSION >= "2.0"

        class Scale(Config, extra=1):
            def __init__(self, by: Config | None = None):
                raise RuntimeError("no configuration here")

            @autotune(configs=[Config(block=64)])
            def forward(self, x):
                assert not HAS_FLASH and not NEW
                return self.by * FIRST * x

        def fill(parts, out):
            out.copy_(torch.cat(parts))

        def uses_what_is_missing(x):
            return x + SECOND
        """,
}
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import torch, originals

def take(name, **how):
    given = dict(state=(), lists={}, constructor=None, bound={}, attributes={}, module_values={})
    return originals.original(sys.argv[2], "engine.ops", name, **{**given, **how})

x = torch.arange(3.0)
scale = take("Scale.forward", arguments=("x",), state=("by",))
assert torch.equal(scale(x, 3), 6 * x)
fill = take("fill", arguments=("parts_0", "parts_1", "out"), lists={"parts": 2})
fill(x, x, out := torch.zeros(6))
assert torch.equal(out, torch.cat([x, x]))
try:
    take("uses_what_is_missing", arguments=("x",))(x)
except TypeError:
    print("refuses to compute")
"""


def test_what_is_missing_takes_part_in_definitions_and_in_no_computation(tmp_path: Path) -> None:
    for name, text in ENGINE.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-I", "-c", PROGRAM, str(PROBES), str(tmp_path)],
        capture_output=True,
        text=True,
    )
    assert done.stdout == "refuses to compute\n", done.stderr
