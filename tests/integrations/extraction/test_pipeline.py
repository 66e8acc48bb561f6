"""Extraction end to end: the reference runs in the sandbox, the problem is written whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
import yaml
from typer.testing import CliRunner

from cli.extract import register
from cli.failures import exit_code_of
from evaluator.errors import ReferenceFailed, SandboxUnavailable
from evaluator.problem import OutputKind, load_problem
from evaluator.sandbox import SandboxedProcess, SandboxSpec
from integrations.errors import (
    OutputExists,
    ProblemUnwritable,
    Refused,
    WorkloadsError,
    WorkloadsNeeded,
)
from integrations.extraction.pipeline import extract
from tests.integrations.extraction.conftest import WriteRepo

ENGINE = {
    "LICENSE": "Apache License\nVersion 2.0\n",
    "engine/__init__.py": "raise RuntimeError('never import the repository')\n",
    "engine/route.py": """\
        import torch
        import missing_kernels

        class Router:
            def __init__(self, top_k, scale=2.5):
                self.top_k = top_k
                self.scale = scale

            def forward(self, logits, hits):
                # [n, e]
                scores = logits.sigmoid()
                weights, ids = torch.topk(scores, self.top_k, dim=-1, sorted=False)
                hits.add_(1)
                return weights * self.scale, ids, hits
        """,
}
TARGET = "engine/route.py::Router"
WORKLOADS = """\
arguments:
  logits: {shape: [n, 16]}
  hits: {shape: [4], dtype: int32}
  top_k: 2
workloads:
  - {name: small, symbols: {n: 5}}
  - {name: odd, symbols: {n: 3}, held_out: true}
"""


class NoSandbox:
    """A machine that cannot isolate."""

    name = "none"
    description = "none"

    def start(self, spec: SandboxSpec) -> SandboxedProcess:
        raise SandboxUnavailable("no bubblewrap here; install it")


def write_workloads(tmp_path: Path, text: str = WORKLOADS) -> Path:
    path = tmp_path / "mine.yml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.sandbox
def test_a_method_becomes_a_problem(write_repo: WriteRepo, tmp_path: Path) -> None:
    repo, output = write_repo(ENGINE), tmp_path / "out" / "problem"
    extract(TARGET, repo, output, workloads=write_workloads(tmp_path))
    problem = load_problem(output).problem
    assert problem.parameters == ("logits", "hits", "top_k", "scale")
    assert problem.contract.writes == ("hits",)
    weights, ids, hits = problem.contract.outputs
    assert (ids.kind, ids.selects, weights.order_free_dim) == (OutputKind.INDICES, 0, -1)
    assert (hits.kind, hits.alias_of) == (OutputKind.EXACT, "hits")
    assert problem.origin.licence == "Apache-2.0"
    assert problem.workloads[0].scalars == {"top_k": 2, "scale": 2.5}


@pytest.mark.sandbox
def test_the_commit_is_recorded(write_repo: WriteRepo, tmp_path: Path) -> None:
    from git import Actor, Repo

    repo = write_repo(ENGINE)
    git = Repo.init(repo)
    git.index.add([*ENGINE])
    who = Actor("tester", "tester@example.com")
    commit = git.index.commit("Add the engine", author=who, committer=who)
    git.create_remote("origin", "https://user:secret@example.com/engine.git")
    output = tmp_path / "problem"
    extract(TARGET, repo, output, workloads=write_workloads(tmp_path))
    origin = load_problem(output).problem.origin
    assert (origin.commit, origin.repository) == (commit.hexsha, "https://example.com/engine.git")
    assert (
        "secret"
        not in (output / "problem.yaml").read_text() + (output / "reference.py").read_text()
    )


@pytest.mark.sandbox
def test_a_workload_that_the_reference_cannot_run_is_named(
    write_repo: WriteRepo, tmp_path: Path
) -> None:
    bad = WORKLOADS.replace("symbols: {n: 3}", "symbols: {n: 3}, arguments: {top_k: 99}")
    output = tmp_path / "problem"
    with pytest.raises(ReferenceFailed, match="workload 'odd'"):
        extract(TARGET, write_repo(ENGINE), output, workloads=write_workloads(tmp_path, bad))
    assert not output.exists()


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("name: odd", "name: small", "share a name"),
        ("workloads:", "contract: {writes: [hits, nobody]}\nworkloads:", "nobody"),
    ],
)
def test_workloads_that_contradict_themselves_are_wrong_use(
    write_repo: WriteRepo, tmp_path: Path, old: str, new: str, message: str
) -> None:
    mine = write_workloads(tmp_path, WORKLOADS.replace(old, new))
    with pytest.raises(WorkloadsError, match=message):
        extract(TARGET, write_repo(ENGINE), tmp_path / "p", workloads=mine)
    assert not (tmp_path / "p").exists()


def test_without_a_sandbox_nothing_is_run_and_nothing_is_written(
    write_repo: WriteRepo, tmp_path: Path
) -> None:
    before = write_repo(ENGINE), write_workloads(tmp_path)
    with pytest.raises(SandboxUnavailable) as failure:
        extract(TARGET, before[0], tmp_path / "p", workloads=before[1], sandbox=NoSandbox())
    assert exit_code_of(failure.value) == 3
    assert sorted(p.name for p in tmp_path.iterdir()) == ["engine_repo", "mine.yml"]


def test_without_workloads_a_template_says_what_to_fill_in(
    write_repo: WriteRepo, tmp_path: Path
) -> None:
    files = {
        "a.py": '''\
            from jaxtyping import Float
            from torch import Tensor

            def f(
                x: Float[Tensor, "batch 256"],
                table: Tensor,  # [vocab, dim]
                ids: Tensor,
                bias: Tensor | None = None,
                top_k: int = 8,
                mode: str = "fast",
            ):
                """Look up.

                Args:
                    ids: [batch] positions
                """
                return x
            '''
    }
    with pytest.raises(WorkloadsNeeded) as needed:
        extract("a.py::f", write_repo(files), tmp_path / "p")
    assert exit_code_of(needed.value) == 2
    template = needed.value.template
    assert f"--workloads {template}" in str(needed.value)
    filled = yaml.safe_load(template.read_text())
    assert filled["arguments"] == {
        "x": {"shape": ["batch", 256], "dtype": "float32"},
        "table": {"shape": ["vocab", "dim"], "dtype": "float32"},
        "ids": {"shape": ["batch"], "dtype": "float32"},
        "bias": {"shape": ["n", "FIXME"], "dtype": "float32"},
        "top_k": 8,
        "mode": "fast",
    }
    assert [w["name"] for w in filled["workloads"]] == ["typical", "odd"]


def test_a_template_never_replaces_a_file(write_repo: WriteRepo, tmp_path: Path) -> None:
    repo = write_repo(ENGINE)
    mine = tmp_path / "workloads.yml"
    mine.write_text("precious")
    for _ in range(2):
        with pytest.raises(WorkloadsNeeded) as needed:
            extract(TARGET, repo, tmp_path / "p")
        assert needed.value.template != mine
    assert mine.read_text() == "precious"


def test_a_hopeless_target_is_refused_before_workloads_are_asked_for(
    write_repo: WriteRepo, tmp_path: Path
) -> None:
    source = "def f(x):\n    y = x.sum().item()\n    return x * y\n"
    with pytest.raises(Refused, match=r"a\.py:2: the host waits") as refusal:
        extract("a.py::f", write_repo({"a.py": source}), tmp_path / "p")
    assert exit_code_of(refusal.value) == 1


def test_a_sin_that_workloads_may_rule_out_is_not_refused_before_they_are_given(
    write_repo: WriteRepo, tmp_path: Path
) -> None:
    source = "def f(x, sync=False):\n    if sync:\n        x.sum().item()\n    return x\n"
    with pytest.raises(WorkloadsNeeded):
        extract("a.py::f", write_repo({"a.py": source}), tmp_path / "p")


def test_a_folder_that_is_not_empty_is_kept(write_repo: WriteRepo, tmp_path: Path) -> None:
    output = tmp_path / "p"
    output.mkdir()
    (output / "thesis.txt").write_text("precious")
    for force in (False, True):
        with pytest.raises(OutputExists):
            extract(TARGET, write_repo(ENGINE), output, force=force)
    assert (output / "thesis.txt").read_text() == "precious"


@pytest.mark.sandbox
def test_force_replaces_a_problem_as_a_whole(write_repo: WriteRepo, tmp_path: Path) -> None:
    repo, output, mine = write_repo(ENGINE), tmp_path / "p", write_workloads(tmp_path)
    extract(TARGET, repo, output, workloads=mine)
    (output / "notes.txt").write_text("old")
    extract(TARGET, repo, output, workloads=mine, force=True)
    assert sorted(p.name for p in output.iterdir()) == ["problem.yaml", "reference.py"]
    assert not list(tmp_path.glob(".p*"))


def test_a_full_disk_leaves_nothing(
    write_repo: WriteRepo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from integrations.extraction import writing
    from tests.builders import make_problem

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    loaded = make_problem()
    with pytest.raises(ProblemUnwritable, match="No space") as failure:
        writing.write_problem(tmp_path / "p", loaded.problem, loaded.reference_source)
    assert exit_code_of(failure.value) == 3
    assert list(tmp_path.iterdir()) == []


@pytest.mark.sandbox
def test_json_is_one_object(write_repo: WriteRepo, tmp_path: Path) -> None:
    app = typer.Typer()
    app.callback()(lambda: None)
    register(app)
    words = ["extract", TARGET, "--repo", str(write_repo(ENGINE)), "-o", str(tmp_path / "p")]
    words += ["--workloads", str(write_workloads(tmp_path)), "--json"]
    result = CliRunner().invoke(app, words)
    printed = json.loads(result.stdout)
    assert printed["workloads"] == ["small", "odd"]
    assert printed["entry"]["candidate_function"] == "router_forward"
    assert Path(printed["problem"]).is_dir()


def test_a_missing_workloads_file_is_wrong_use(write_repo: WriteRepo, tmp_path: Path) -> None:
    with pytest.raises(WorkloadsError, match="cannot be read") as failure:
        extract(TARGET, write_repo(ENGINE), tmp_path / "p", workloads=tmp_path / "none.yml")
    assert exit_code_of(failure.value) == 2
