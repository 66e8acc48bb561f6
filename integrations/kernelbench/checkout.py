"""A checkout of KernelBench: its files by level and number, and which prove nothing.

``DEGENERATE`` names problems whose outputs (nearly) do not depend on their inputs, or whose
reference does not agree with itself, so that a win on them says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from integrations.kernelbench.errors import CheckoutMissing

REPOSITORY = "ScalingIntelligence/KernelBench"
LICENCE = "MIT"
LEVELS = (1, 2, 3)

_TINY = "its output is smaller than the tolerance (KernelBench issue 165)"
_CONSTANT = "its output is a constant"
_NEARLY_ZERO = "its output is zero within rounding"

DEGENERATE: Mapping[tuple[int, int], str] = {
    **{(1, n): _TINY for n in (23, 37, 39, 53)},
    **{(2, n): _CONSTANT for n in (9, 36, 80, 83)},
    **{(2, n): _NEARLY_ZERO for n in (23, 27, 38)},
    (2, 65): "its output does not depend on its input within 1e-4",
    (2, 66): "dropout in training mode: it does not agree with itself",
}
"""By level and number; issues 108 and 165, and our own scan."""

_FILE = re.compile(r"^(\d+)_(.+)\.py$")


@dataclass(frozen=True)
class KernelBenchFile:
    """One problem's file."""

    level: int
    number: int
    name: str
    path: Path

    @property
    def id(self) -> str:
        """An identifier for problems, runs and rows."""
        return f"kernelbench-{self.level}-{self.number}-{self.name}"[:120]

    @property
    def place(self) -> str:
        """Where it lies in the repository."""
        return f"KernelBench/level{self.level}/{self.path.name}"

    @property
    def degenerate(self) -> str | None:
        """Why a win on it would prove nothing, where that is known."""
        return DEGENERATE.get((self.level, self.number))


def files(root: Path, level: int) -> dict[int, KernelBenchFile]:
    """Return the files of ``level`` by their number.

    Raises:
        CheckoutMissing: ``root`` is no checkout.
    """
    folder = root / "KernelBench" / f"level{level}"
    found = {}
    for path in sorted(folder.glob("*.py")):
        parts = _FILE.match(path.name)
        if parts is not None:
            name = re.sub(r"[^A-Za-z0-9_.-]", "_", parts[2]).strip("_")
            found[int(parts[1])] = KernelBenchFile(level, int(parts[1]), name, path)
    if not found:
        raise CheckoutMissing(
            f"{folder} holds no problems; --root names a checkout of {REPOSITORY} "
            f"(git clone https://github.com/{REPOSITORY})"
        )
    return found


def commit_of(root: Path) -> str | None:
    """The commit that is checked out, or None where nothing tells."""
    import git

    try:
        with git.Repo(root) as repository:
            return repository.head.commit.hexsha
    except (git.InvalidGitRepositoryError, git.NoSuchPathError, ValueError):
        return None
