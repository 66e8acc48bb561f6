"""``python -m benchmarks.maca45 FOLDER``: write the problems."""

import sys
from pathlib import Path

from benchmarks.maca45 import write_problems

if len(sys.argv) != 2:
    sys.exit("usage: python -m benchmarks.maca45 FOLDER")
print(f"wrote {len(write_problems(Path(sys.argv[1])))} problems to {sys.argv[1]}")
