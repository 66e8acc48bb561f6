"""Where a target comes from: repository, commit, licence."""

from __future__ import annotations

import re
from pathlib import Path

from evaluator.problem import Origin
from integrations.extraction.target import Target

_SPDX = re.compile(r"SPDX-License-Identifier:\s*([\w.+-]+)")
_KNOWN = (
    ("Apache License", "Apache-2.0"),
    ("MIT License", "MIT"),
    ("BSD 3-Clause", "BSD-3-Clause"),
    ("Redistribution and use in source and binary forms", "BSD-3-Clause"),
    ("GNU LESSER GENERAL PUBLIC LICENSE", "LGPL"),
    ("GNU GENERAL PUBLIC LICENSE", "GPL"),
    ("Mozilla Public License", "MPL-2.0"),
)
_NAMES = ("LICENSE", "LICENSE.txt", "LICENSE.md", "LICENCE", "COPYING")
_HEADER_LINES = 30


def find_origin(root: Path, target: Target) -> Origin:
    """Return the target's provenance; commit and licence are None where they cannot be had."""
    repository, commit = _git_facts(root)
    header = "".join(target.module.lines[:_HEADER_LINES])
    return Origin(
        repository=repository,
        commit=commit,
        target=target.spelled,
        licence=_licence(header) or _licence_file(root),
    )


def _git_facts(root: Path) -> tuple[str, str | None]:
    from git import Repo
    from git.exc import GitError

    try:
        repository = Repo(root)
        commit = repository.head.commit.hexsha
    except (GitError, ValueError):
        return root.name, None
    try:
        url = next(iter(repository.remotes)).url
    except (StopIteration, GitError, ValueError):
        return root.name, commit
    return _public_name(url), commit


def _public_name(url: str) -> str:
    """Return the remote without a password or token."""
    return re.sub(r"^(\w+://)[^/@]*@", r"\1", url)


def _licence(text: str) -> str | None:
    spdx = _SPDX.search(text)
    if spdx:
        return spdx.group(1)
    return next((name for phrase, name in _KNOWN if phrase.lower() in text.lower()), None)


def _licence_file(root: Path) -> str | None:
    for name in _NAMES:
        path = root / name
        if path.is_file():
            return _licence(path.read_text(encoding="utf-8", errors="replace")[:4000])
    return None
