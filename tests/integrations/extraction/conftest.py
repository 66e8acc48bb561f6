"""Small synthetic repositories, written by the test that needs them."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from integrations.extraction.pipeline import Extracted, extract_source

WriteRepo = Callable[[Mapping[str, str]], Path]
Extract = Callable[..., Extracted]


@pytest.fixture
def write_repo(tmp_path: Path) -> WriteRepo:
    def write(files: Mapping[str, str]) -> Path:
        root = tmp_path / "engine_repo"
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text), encoding="utf-8")
        return root

    return write


@pytest.fixture
def extract_from(write_repo: WriteRepo) -> Extract:
    """Write a repository and do the static part of extraction on one of its functions."""

    def run(files: Mapping[str, str], target: str, **options: object) -> Extracted:
        return extract_source(target, write_repo(files), **options)  # type: ignore[arg-type]

    return run
