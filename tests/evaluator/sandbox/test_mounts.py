"""Which of the host's folders a sandbox would see."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from evaluator.errors import SandboxUnavailable
from evaluator.sandbox import mounts
from evaluator.sandbox.memory import tree_memory_bytes


def test_a_python_whose_prefix_holds_the_home_folder_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with pytest.raises(SandboxUnavailable, match="python3 -m venv"):
        mounts.interpreter_binds()


def test_every_link_on_the_way_to_the_interpreter_is_bound(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = tmp_path / "pythons/3.11.7/bin/python3.11"
    real.parent.mkdir(parents=True)
    real.touch()
    (tmp_path / "pythons/3.11").symlink_to("3.11.7")
    link = tmp_path / "project/.venv/bin/python"
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "pythons/3.11/bin/python3.11")
    monkeypatch.setattr(sys, "executable", str(link))
    monkeypatch.setenv("HOME", "/nonexistent")
    inside = set(mounts.interpreter_binds().values())
    assert {
        str(tmp_path / "project/.venv"),
        str(tmp_path / "pythons/3.11"),
        str(tmp_path / "pythons/3.11.7"),
    } <= inside


def test_folders_under_usr_and_within_others_are_bound_once() -> None:
    inside = [Path(path) for path in mounts.interpreter_binds().values()]
    assert not any(path.is_relative_to("/usr") for path in inside)
    assert not any(a != b and a.is_relative_to(b) for a in inside for b in inside)


def test_the_parents_of_a_bind_can_be_passed_by_any_user() -> None:
    arguments = mounts.bind_arguments({Path("/a/b"): "/x/y/z"})
    assert arguments == [
        *("--perms", "0755", "--dir", "/x"),
        *("--perms", "0755", "--dir", "/x/y"),
        *("--ro-bind", "/a/b", "/x/y/z"),
    ]


def test_the_memory_of_a_tree_that_ended_is_none() -> None:
    assert tree_memory_bytes(2**22 + 1) == 0


@pytest.mark.parametrize(
    ("present", "bound"),
    [
        (["nvidiactl", "nvidia0", "dri"], ["nvidia0", "nvidiactl"]),
        (["mxcd", "dri", "null"], ["mxcd", "dri"]),
        (["nvidiactl", "dri"], []),
        ([], []),
    ],
)
def test_of_dev_a_gpu_shows_its_own_nodes_and_no_other(
    tmp_path: Path, present: list[str], bound: list[str]
) -> None:
    for name in present:
        (tmp_path / name).touch()
    assert [node.name for node in mounts.gpu_nodes(tmp_path)] == bound
