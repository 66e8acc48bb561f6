"""The demo's inference engine, written out as a git repository of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

_ENGINE = Path(__file__).parent / "engine"
_RENAMED = {"gitignore": ".gitignore"}
_AUTHOR = ("pocketlm", "pocketlm@example.org")


def write_engine(folder: Path) -> Path:
    """Make ``folder`` a repository with one commit of the engine, and return it.

    Raises:
        FileExistsError: there is something at ``folder``.
        OSError: it cannot be written.
    """
    import git

    ignored = shutil.ignore_patterns("__pycache__", ".pytest_cache", "*.pyc")
    shutil.copytree(_ENGINE, folder, ignore=ignored)
    for name, wanted in _RENAMED.items():
        (folder / name).rename(folder / wanted)
    with git.Repo.init(folder, initial_branch="main") as repository:
        author = git.Actor(*_AUTHOR)
        repository.git.add(all=True)
        repository.index.commit(
            "Begin: a small inference engine", author=author, committer=author, skip_hooks=True
        )
    return folder
