"""From a confirmed candidate to one commit on a new branch of the target's repository.

``integrate`` is the whole of it: it plans the files from the base commit, never from the
checkout, and writes one commit. What differs from one upstream repository to the next is
not here: this is the generic form. It promises that every line of the target file that it
does not add stays as it was to the byte, that the original code stays reachable, and that
the branch is made whole or not at all.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from evaluator.candidate import BackendName, Candidate
from evaluator.evaluation import Baseline, Evaluation, Status, Verdict
from evaluator.problem import LoadedProblem, Problem
from integrations.extraction.reference import TAKES_MEMBERS
from integrations.patch.behaviour import render_behaviour_test
from integrations.patch.edit import KernelImport, insert_dispatch
from integrations.patch.errors import BranchExists, PatchError, RepositoryUnfit, TargetMoved
from integrations.patch.guard import derive_cases
from integrations.patch.kernel_file import render_kernel_file
from integrations.patch.layout import plan_layout
from integrations.patch.provenance import commit_message
from integrations.patch.repository import TargetRepository
from integrations.patch.result import IntegrationResult
from integrations.patch.site import FunctionSite, find_site

__all__ = [
    "BranchExists",
    "IntegrationResult",
    "PatchError",
    "RepositoryUnfit",
    "TargetMoved",
    "branch_name",
    "integrate",
]

Reextract = Callable[[Problem, Path], str]
"""Extracts the target again, statically, and returns the reference's source."""


def branch_name(problem: Problem) -> str:
    """``ksmith/<problem>`` in characters that every git host takes."""
    slug = re.sub(r"[^a-z0-9]+", "-", problem.id.lower()).strip("-")
    return f"ksmith/{slug or 'kernel'}"


def integrate(
    loaded: LoadedProblem,
    candidate: Candidate,
    evaluation: Evaluation,
    repository: Path,
    *,
    branch: str | None = None,
    replace: bool = False,
    reextract: Reextract | None = None,
) -> IntegrationResult:
    """Commit ``candidate`` as a kernel for the problem's target to a new branch.

    ``repository`` is the folder that the target's path is relative to; it may lie inside
    the git repository. ``replace`` lets an existing branch be replaced.

    Raises:
        RepositoryUnfit: not a git repository, not clean, or the target is not in its HEAD.
        TargetMoved: the target is not what was extracted.
        BranchExists: the branch is there.
        PatchError: no confirmed win, or the function cannot hold a dispatch.
    """
    problem = loaded.problem
    _require_confirmed_win(problem, candidate, evaluation)
    path, qualname = _path_and_function(problem)
    _require_called_in_place(problem, qualname)
    git_side = TargetRepository(repository)
    target = git_side.prefix / PurePosixPath(path)
    branch = branch or branch_name(problem)
    current = git_side.require_branch_free(branch, replace=replace)
    git_side.require_clean(target)
    source = git_side.read(target)
    _require_unmoved(loaded, git_side, repository, reextract)
    site = find_site(source, qualname)
    _require_same_parameters(problem, site)
    layout = plan_layout(
        target=target,
        qualname=qualname,
        site=site,
        files=git_side.files(),
        source_roots=tuple(dict.fromkeys((git_side.prefix, PurePosixPath(".")))),
    )
    optional = candidate.backend is BackendName.TRITON and "triton" not in site.names
    kernel_import = KernelImport(layout.kernel_package, layout.kernel.stem, optional)
    cases = derive_cases(problem, problem.workloads)
    edited = insert_dispatch(
        source,
        site,
        kernel_import,
        entry=problem.entry.candidate_function,
        arguments=problem.arguments,
        state=problem.state,
    )
    kernel = render_kernel_file(problem, candidate, evaluation, cases, header=site.leading_comments)
    test = render_behaviour_test(problem, candidate, cases, site, layout, qualname=qualname)
    files = {
        layout.kernel: _as_file(kernel, site),
        target: edited,
        layout.test: _as_file(test, site),
    }
    message = commit_message(problem, candidate, evaluation)
    commit = git_side.commit_to_branch(branch, files, message, replaces=current)
    return IntegrationResult(
        branch=branch,
        commit=commit,
        base=git_side.base,
        target=f"{target}::{qualname}",
        kernel_file=str(layout.kernel),
        test_file=str(layout.test),
        files=tuple(str(p) for p in files),
        diff=git_side.diff(commit),
        import_root=str(layout.import_root),
    )


def _path_and_function(problem: Problem) -> tuple[str, str]:
    """The target's file and function; a target that names a class means its method."""
    path, _, qualname = problem.origin.target.rpartition("::")
    if problem.entry.class_name is not None and "." not in qualname:
        return path, f"{qualname}.{problem.entry.function}"
    return path, qualname


def _require_called_in_place(problem: Problem, qualname: str) -> None:
    """Refuse what a dispatch within the function could not hand on as it is."""
    if problem.entry.constructor is not None:
        raise PatchError(
            f"{qualname} belongs to a class that is constructed, and a candidate is a class too; "
            "put it in the place of the original by hand"
        )
    if problem.entry.function == qualname.rpartition(".")[2] + TAKES_MEMBERS:
        raise PatchError(
            f"{qualname} takes lists of tensors, and a candidate their members one by one; "
            "write the dispatch by hand"
        )


def _as_file(text: str, site: FunctionSite) -> bytes:
    """UTF-8 with the newlines that the target file has."""
    return text.replace("\n", site.newline).encode("utf-8")


def _require_confirmed_win(problem: Problem, candidate: Candidate, evaluation: Evaluation) -> None:
    if evaluation.candidate_id != candidate.id or evaluation.problem_id != problem.id:
        raise PatchError("the evaluation is of another candidate or problem; nothing was done")
    if evaluation.status is not Status.OK:
        raise PatchError(
            f"the best candidate is {evaluation.status.value}: {evaluation.message}; "
            "search longer (`ksmith optimize RUN --resume`), or on a machine that can time it"
        )
    speedup = evaluation.speedup(Baseline.EAGER)
    if speedup is None or speedup.verdict is not Verdict.FASTER or not evaluation.confirmed:
        found = "not measured" if speedup is None else f"{speedup.value:.3f} ({speedup.verdict})"
        state = "confirmed" if evaluation.confirmed else "not confirmed in fresh processes"
        raise PatchError(
            f"no confirmed win: the best speedup against eager is {found}, {state}; "
            "a branch is made for a confirmed faster kernel alone"
        )
    untested = {w.name for w in problem.workloads} - {
        c.workload for c in evaluation.correctness if c.passed
    }
    if untested:
        raise PatchError(
            f"the workloads {sorted(untested)} were not tested in the confirmation; confirm again"
        )


def _require_unmoved(
    loaded: LoadedProblem,
    git_side: TargetRepository,
    repository: Path,
    reextract: Reextract | None,
) -> None:
    """The reference that was optimised must be what the repository holds now.

    A checkout of the very commit, with no edit, needs no second extraction to agree.
    """
    origin = loaded.problem.origin
    if origin.commit == git_side.base and git_side.is_clean():
        return
    if reextract is None:
        return
    if _code(reextract(loaded.problem, repository)) == _code(loaded.reference_source):
        return
    raise TargetMoved(
        f"{origin.target} in {repository} is not what was extracted (from commit "
        f"{(origin.commit or 'unknown')[:10]}): it or something that it calls changed; "
        "extract and optimise it again"
    )


def _code(source: str) -> str:
    """``source`` without its docstring, which names the repository's folder and commit."""
    tree = ast.parse(source)
    if ast.get_docstring(tree) is not None:
        del tree.body[0]
    return ast.dump(tree)


def _require_same_parameters(problem: Problem, site: FunctionSite) -> None:
    if set(site.parameters) != set(problem.arguments):
        odd = sorted(set(site.parameters) ^ set(problem.arguments))
        raise TargetMoved(
            f"the parameters of {problem.origin.target} and of the problem differ in {odd}; "
            "extract the target again with a workload for each parameter"
        )
