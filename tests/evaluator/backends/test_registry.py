"""Backends are found by name, their own package's or another's; a new one is one file."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.backends import Language, backend_class, backend_names, choose_backend, language_of
from evaluator.candidate import BackendName, Candidate
from evaluator.doctor import Level, _detected
from evaluator.errors import BackendUnavailable
from evaluator.evaluation import Status
from evaluator.supervisor import CompiledBaseline, LocalEvaluator
from tests import samples
from tests.builders import make_candidate, make_evaluation, make_problem
from tests.evaluator.test_supervisor import quick_policy

NPU_PACKAGE = Path(__file__).parents[2] / "npu_backend"
NPU = BackendName("npu")


@pytest.fixture
def npu(monkeypatch: pytest.MonkeyPatch) -> Iterator[BackendName]:
    """As if the package with the NPU backend were installed."""
    monkeypatch.syspath_prepend(str(NPU_PACKAGE))
    yield NPU
    backend_class.cache_clear()


@given(st.from_regex(r"[a-z][a-z0-9_]{0,29}", fullmatch=True))
def test_a_name_is_one_object_that_survives_json_and_pickle(name: str) -> None:
    backend = BackendName(name)
    candidate = make_candidate(backend=backend)
    assert Candidate.model_validate_json(candidate.model_dump_json()).backend is backend
    assert pickle.loads(pickle.dumps(backend)) is backend
    assert f"{backend}" == backend.value == name
    assert type(backend.value) is str


@pytest.mark.parametrize("name", ["", "Triton", "a b", "../cpp", "x" * 31, "1a", "cpp\n"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no backend's name"):
        BackendName(name)


def test_the_backends_of_ksmith_are_found_without_being_listed() -> None:
    assert set(backend_names()) >= {"cpp", "cuda", "hip", "maca", "triton"}
    assert all(backend_class(name).name is name for name in backend_names())


def test_a_backend_that_nobody_has_is_named_with_those_that_there_are() -> None:
    with pytest.raises(BackendUnavailable, match=r"no backend is called 'quantum'.*triton"):
        choose_backend(BackendName("quantum"))


def test_a_package_that_does_not_import_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "odd-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[ksmith.backends]\nodd = no_such_module:Backend\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(BackendUnavailable, match=r"no_such_module:Backend does not import"):
        choose_backend(BackendName("odd"))


def test_an_installed_package_adds_a_backend(npu: BackendName) -> None:
    assert npu in backend_names()
    assert language_of(npu) is Language.CPP
    assert _detected(npu).level is Level.MEASURED


def test_a_record_of_a_backend_that_is_not_installed_can_be_read() -> None:
    record = make_evaluation(make_candidate(backend=NPU), status=Status.TIMEOUT)
    assert type(record).model_validate_json(record.model_dump_json()) == record


@pytest.mark.sandbox
def test_a_candidate_of_another_packages_backend_is_judged_like_any(npu: BackendName) -> None:
    source = samples.RMS_NORM_CPP.replace(
        "#include <cmath>", '#include <cmath>\n#ifndef __NPU__\n#error "not an NPU"\n#endif'
    )
    assert "__NPU__" in source
    with LocalEvaluator(
        make_problem(), npu, policy=quick_policy(), compiled=CompiledBaseline.NEVER
    ) as evaluator:
        found = evaluator.screen(make_candidate(source, backend=npu))
    assert found.backend is npu
    assert found.correctness, (found.message, found.log_tail)
    assert all(c.passed for c in found.correctness)
