"""Real repositories for ``real`` tests: unpacked wheels below ``KSMITH_REAL_REPOS``.

Nothing is downloaded here. ``pip download --no-deps sglang lmdeploy`` and unpack each into a
folder of its own name; the tests skip where the variable or a repository is missing.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

VARIABLE = "KSMITH_REAL_REPOS"


def real_repo(name: str) -> Path:
    """Return the folder that holds the package ``name``; skip the test where it is not."""
    base = os.environ.get(VARIABLE)
    if not base:
        pytest.skip(f"{VARIABLE} is not set")
    for folder in (Path(base) / name, Path(base)):
        if (folder / name.replace("-", "_")).is_dir():
            return folder
    pytest.skip(f"no {name} below {base}")
