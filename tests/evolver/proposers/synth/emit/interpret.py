"""Run in a process of its own: Triton sources in the interpreter, from and to a file.

The interpreter is chosen when triton is imported, so that a test cannot do it in its process.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import torch


def main(folder: Path) -> None:
    """Call ``f`` of each ``*.py`` in ``folder`` with the inputs beside it; write what it gives."""
    from evaluator.worker import interpreter

    interpreter.install()
    for path in sorted(folder.glob("case_*.py")):
        inputs = torch.load(path.with_suffix(".in"))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        returned = module.f(*inputs.values())
        torch.save((returned, inputs), path.with_suffix(".out"))


if __name__ == "__main__":
    os.environ["TRITON_INTERPRET"] = "1"
    main(Path(sys.argv[1]))
