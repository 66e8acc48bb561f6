"""The whole change as git sees it: one commit, one branch, nothing else touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from evaluator.evaluation import Status
from integrations.patch import (
    BranchExists,
    IntegrationResult,
    PatchError,
    RepositoryUnfit,
    TargetMoved,
    integrate,
)
from tests.builders import make_evaluation, make_problem
from tests.integrations.patch.repositories import (
    ENGINE,
    NORM_FILE,
    git,
    make_repository,
    triton_winner,
    winner_for,
)
from tests.samples import RMS_NORM_TRITON

pytestmark = pytest.mark.real

BRANCH = "ksmith/rms-norm"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "an engine \u00fc")


def state_of(repository: Path) -> tuple[str, ...]:
    """All that a user would notice."""
    questions = (
        ("status", "--porcelain"), ("rev-parse", "HEAD"), ("symbolic-ref", "-q", "HEAD"),
        ("for-each-ref",), ("worktree", "list"), ("diff", "HEAD"),
    )  # fmt: skip
    return tuple(git(repository, *q) for q in questions)


def test_the_change_is_one_commit_on_a_new_branch(repository: Path) -> None:
    head = git(repository, "rev-parse", "HEAD")
    result = integrate(*winner_for(), repository)

    assert result.branch == BRANCH
    assert git(repository, "rev-parse", BRANCH) == result.commit
    assert git(repository, "rev-parse", f"{BRANCH}^") == result.base == head
    changed = git(repository, "diff", "--name-status", "HEAD", BRANCH).splitlines()
    assert changed == [
        "M\tengine/ops.py",
        "A\tengine/ops_rms_norm_kernel.py",
        "A\ttests/test_ops_rms_norm_kernel.py",
    ]


def test_the_users_checkout_and_branch_are_not_touched(repository: Path) -> None:
    (repository / "notes.txt").write_text("untracked")
    before = state_of(repository)
    integrate(*winner_for(), repository)
    git(repository, "branch", "-D", BRANCH)

    assert state_of(repository) == before


def test_the_target_loses_no_line(repository: Path) -> None:
    integrate(*winner_for(), repository)

    numbers = git(repository, "diff", "--numstat", "HEAD", BRANCH, "--", "engine/ops.py")
    assert numbers.split()[:2] == ["3", "0"]


def test_windows_newlines_are_kept_in_all_three_files(tmp_path: Path) -> None:
    files = {**ENGINE, "engine/ops.py": NORM_FILE.replace("\n", "\r\n")}
    repository = make_repository(tmp_path / "r", files)
    result = integrate(*winner_for(), repository)

    for path in result.files:
        content = subprocess.run(
            ["git", "show", f"{BRANCH}:{path}"], cwd=repository, capture_output=True, check=True
        ).stdout
        assert content.count(b"\n") == content.count(b"\r\n") > 0


def test_the_diff_applies_to_the_base(repository: Path, tmp_path: Path) -> None:
    result = integrate(*winner_for(), repository)
    patch = tmp_path / "p.diff"
    patch.write_bytes(result.diff.encode())

    git(repository, "apply", "--check", str(patch))


def test_the_licence_header_is_copied(repository: Path) -> None:
    integrate(*winner_for(), repository)
    kernel = git(repository, "show", f"{BRANCH}:engine/ops_rms_norm_kernel.py")

    assert kernel.startswith("# Copyright (c) Somebody.\n")
    assert "test-machine" in kernel
    assert "1.50x as fast as eager PyTorch" in kernel


def test_a_kernels_folder_beside_the_target_is_used(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "r", {**ENGINE, "engine/kernels/__init__.py": ""})
    result = integrate(*winner_for(), repository)

    assert result.kernel_file == "engine/kernels/ops_rms_norm_kernel.py"
    assert "from .kernels import ops_rms_norm_kernel\n" in result.diff


def test_the_test_goes_where_the_tests_of_that_folder_are(tmp_path: Path) -> None:
    files = {
        "python/pkg/srt/layers/norm.py": "from pkg.srt import util\n"
        + NORM_FILE.split("shapes")[1],
        "python/tests/srt/layers/test_x.py": "",
    }
    repository = make_repository(tmp_path / "r", files)
    result = integrate(*winner_for("python/pkg/srt/layers/norm.py::rms_norm"), repository)

    assert result.test_file == "python/tests/srt/layers/test_norm_rms_norm_kernel.py"
    assert "from pkg.srt.layers import norm_rms_norm_kernel\n" in result.diff
    assert result.import_root == "python"


def test_a_folder_inside_the_repository_can_be_named(repository: Path) -> None:
    result = integrate(*winner_for("ops.py::rms_norm"), repository / "engine")

    assert result.kernel_file == "engine/ops_rms_norm_kernel.py"


def test_a_triton_kernel_does_not_break_machines_without_triton(repository: Path) -> None:
    result = integrate(*triton_winner(RMS_NORM_TRITON), repository)

    assert "except ImportError" in result.diff
    assert "x.get_device() == torch.cuda.current_device()" in result.diff


def test_a_dirty_target_is_refused_with_the_remedy(repository: Path) -> None:
    (repository / "engine/ops.py").write_text(NORM_FILE + "\n# edited\n")
    with pytest.raises(RepositoryUnfit, match=r"not clean.*engine/ops\.py.*commit or stash"):
        integrate(*winner_for(), repository)


def test_a_staged_change_is_refused(repository: Path) -> None:
    (repository / "engine/shapes.py").write_text("x = 1\n")
    git(repository, "add", "-A")
    with pytest.raises(RepositoryUnfit, match="not clean"):
        integrate(*winner_for(), repository)


def test_a_folder_without_git_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RepositoryUnfit, match="not a git repository"):
        integrate(*winner_for(), tmp_path)


def test_a_repository_without_a_commit_is_refused(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    with pytest.raises(RepositoryUnfit, match="no commit yet"):
        integrate(*winner_for(), tmp_path)


def test_a_branch_that_exists_is_replaced_only_when_asked(repository: Path) -> None:
    first = integrate(*winner_for(), repository)
    with pytest.raises(BranchExists, match="--force"):
        integrate(*winner_for(), repository)
    assert git(repository, "rev-parse", BRANCH) == first.commit

    integrate(*winner_for(), repository, replace=True)
    integrate(*winner_for(), repository, branch="other/name")
    assert git(repository, "rev-parse", "other/name^") == first.base


def test_a_branch_that_is_checked_out_is_never_replaced(repository: Path) -> None:
    integrate(*winner_for(), repository)
    git(repository, "checkout", "-q", BRANCH)
    with pytest.raises(BranchExists, match="checked out"):
        integrate(*winner_for(), repository, replace=True)


def test_a_detached_head_is_a_base_like_any_other(repository: Path) -> None:
    git(repository, "checkout", "-q", "--detach")

    assert integrate(*winner_for(), repository).base == git(repository, "rev-parse", "HEAD")


def test_a_target_that_changed_since_extraction_is_refused(repository: Path) -> None:
    with pytest.raises(TargetMoved, match="extract and optimise it again"):
        integrate(*winner_for(), repository, reextract=lambda *_: "something_else = 1\n")


def test_another_commit_of_the_same_code_is_no_change(repository: Path) -> None:
    loaded, candidate, evaluation = winner_for()
    moved = f'"""Extracted from another folder at another commit."""\n{loaded.reference_source}'
    result = integrate(loaded, candidate, evaluation, repository, reextract=lambda *_: moved)
    assert result.branch.startswith("ksmith/")


def test_a_parameter_that_was_added_since_is_refused(tmp_path: Path) -> None:
    files = {**ENGINE, "engine/ops.py": NORM_FILE.replace("eps=1e-6", "eps=1e-6, scale=1.0")}
    repository = make_repository(tmp_path / "r", files)
    with pytest.raises(TargetMoved, match="scale"):
        integrate(*winner_for(), repository)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"constructor": (8,), "class_name": "Norm"}, "class that is constructed"),
        ({"function": "rms_norm_of_tensors"}, "takes lists of tensors"),
    ],
)
def test_what_no_dispatch_could_hand_on_is_refused(
    repository: Path, change: dict[str, object], message: str
) -> None:
    loaded, candidate, evaluation = winner_for()
    entry = loaded.problem.entry.model_copy(update=change)
    problem = loaded.problem.model_copy(update={"entry": entry})
    odd = loaded.model_copy(update={"problem": problem})
    with pytest.raises(PatchError, match=message):
        integrate(odd, candidate, evaluation, repository)
    assert git(repository, "branch", "--list", "ksmith/*") == ""


def test_no_branch_without_a_confirmed_win(repository: Path) -> None:
    loaded, candidate, _ = winner_for()
    for evaluation in (
        make_evaluation(candidate, problem=loaded.problem, confirmed=False),
        make_evaluation(candidate, problem=loaded.problem, confirmed=True, speedup=1.0),
        make_evaluation(candidate, problem=loaded.problem, status=Status.NOT_MEASURED),
        make_evaluation(candidate, problem=make_problem("rotary").problem, confirmed=True),
    ):
        with pytest.raises(PatchError):
            integrate(loaded, candidate, evaluation, repository)
    assert git(repository, "branch", "--list", "ksmith/*") == ""


def test_no_hook_of_the_repository_runs(repository: Path) -> None:
    hooks = repository / ".git/hooks"
    for name in (
        "pre-commit",
        "commit-msg",
        "post-commit",
        "post-checkout",
        "reference-transaction",
    ):
        hook = hooks / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text("#!/bin/sh\ntouch ../hook-ran\ntouch hook-ran\nexit 0\n")
        hook.chmod(0o755)
    integrate(*winner_for(), repository)

    assert not list(repository.rglob("hook-ran"))
    assert not (repository.parent / "hook-ran").exists()


def test_a_result_can_be_read_back(repository: Path, tmp_path: Path) -> None:
    result = integrate(*winner_for(), repository)
    result.save(tmp_path)

    assert IntegrationResult.load(tmp_path) == result


KILLED = """
import os, signal, sys
from pathlib import Path
from integrations.patch import integrate, repository
from tests.integrations.patch.repositories import winner_for

calls = [0]
execute = repository.TargetRepository._git


def dying(self, *arguments, **options):
    calls[0] += 1
    if calls[0] == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return execute(self, *arguments, **options)


repository.TargetRepository._git = dying
integrate(*winner_for(), Path(sys.argv[1]))
"""


def test_a_kill_at_any_moment_leaves_all_or_nothing(repository: Path) -> None:
    before = state_of(repository)
    root = Path(__file__).resolve().parents[3]
    for moment in range(4, 40, 5):
        done = subprocess.run(
            [sys.executable, "-c", KILLED, str(repository), str(moment)],
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root), "TMPDIR": str(repository.parent)},
            check=False,
        )
        if git(repository, "branch", "--list", BRANCH):
            assert git(repository, "log", "--oneline", f"main..{BRANCH}").count("\n") == 0
            assert len(git(repository, "diff", "--name-only", "main", BRANCH).split("\n")) == 3
            return
        assert state_of(repository) == before
        assert done.returncode == -signal.SIGKILL
    raise AssertionError("the branch was never made")
