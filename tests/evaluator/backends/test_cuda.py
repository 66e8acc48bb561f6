"""CUDA candidates where no GPU is: they compile for real, and nothing more is claimed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from evaluator import machine
from evaluator.backends import cuda, maca
from evaluator.candidate import BackendName
from evaluator.errors import BackendUnavailable
from evaluator.evaluation import Evaluation, Status
from evaluator.source_policy import check_source
from evaluator.supervisor import LocalEvaluator
from policies.model import EvaluatorPolicy
from tests import samples
from tests.builders import make_candidate, make_problem

needs_nvcc = pytest.mark.skipif(cuda.find_nvcc() is None, reason="there is no nvcc")
without_gpu = pytest.mark.skipif(bool(machine.gpus()), reason="there is a GPU")


@pytest.mark.parametrize(
    ("capability", "code"),
    [
        ("8.0", "-gencode=arch=compute_80,code=sm_80"),
        ("9.0", "-gencode=arch=compute_90a,code=sm_90a"),
        ("10.0", "-gencode=arch=compute_100a,code=sm_100a"),
        ("12.1", "-gencode=arch=compute_121a,code=sm_121a"),
    ],
)
def test_kernels_are_compiled_for_the_gpu_that_is_here(capability: str, code: str) -> None:
    build = cuda.build_for(Path("/usr/local/cuda/bin/nvcc"), capability)
    assert code in build.command
    assert "--use_fast_math" not in build.command
    assert build.takes_stream


def test_without_nvcc_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "find_nvcc", lambda: None)
    with pytest.raises(BackendUnavailable, match=r"CUDA toolkit.*CUDA_HOME"):
        cuda.CudaBackend.detect()


def test_a_toolkit_outside_usr_is_shown_to_the_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvcc = tmp_path / "cuda" / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text("#!/bin/sh\n")
    nvcc.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    found = cuda.CudaBackend.detect()
    assert found.build.command[0] == str(nvcc)
    assert found.folders == (tmp_path / "cuda",)


def test_an_honest_cuda_candidate_passes_the_source_policy() -> None:
    candidate = make_candidate(samples.RMS_NORM_CUDA, backend=BackendName.CUDA)
    policy = EvaluatorPolicy.default().source
    assert check_source(candidate, entry_function="rms_norm", policy=policy) == []


def test_without_metax_s_toolkit_the_message_says_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MACA_PATH", str(tmp_path))
    with pytest.raises(BackendUnavailable, match=f"{tmp_path}/mxgpu_llvm/bin/mxcc.*MACA_PATH"):
        maca.MacaBackend.detect()


def test_a_maca_candidate_is_compiled_as_metax_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mxcc = tmp_path / "mxgpu_llvm" / "bin" / "mxcc"
    mxcc.parent.mkdir(parents=True)
    mxcc.write_text("#!/bin/sh\n")
    mxcc.chmod(0o755)
    monkeypatch.setenv("MACA_PATH", str(tmp_path))
    found = maca.MacaBackend.detect()
    assert " ".join(found.build.command) == (
        f"{mxcc} -x maca -offload-arch native -std=c++17 -O3 -fPIC -shared "
        f"--maca-path={tmp_path} -o native.so source.cpp"
    )
    assert " ".join(found.reference_build.command) == (
        f"{tmp_path}/tools/cu-bridge/bin/cucc -std=c++17 -O3 -fPIC -shared -o native.so source.cu"
    )
    assert dict(found.variables)["LD_LIBRARY_PATH"].startswith(f"{tmp_path}/lib:")
    assert tmp_path in found.folders
    assert found.gpu or "no MetaX GPU" in found.lacks


@pytest.fixture(scope="module")
def evaluator() -> Iterator[LocalEvaluator]:
    with LocalEvaluator(make_problem(), BackendName.CUDA) as started:
        yield started


def judge(evaluator: LocalEvaluator, source: str) -> Evaluation:
    return evaluator.screen(make_candidate(source, backend=BackendName.CUDA))


@needs_nvcc
@without_gpu
@pytest.mark.real
def test_without_a_gpu_a_kernel_is_compiled_and_nothing_more_is_claimed(
    evaluator: LocalEvaluator,
) -> None:
    found = judge(evaluator, samples.RMS_NORM_CUDA)
    assert found.status is Status.MACHINE_UNFIT, (found.message, found.log_tail)
    assert (
        found.message
        == "it compiles; it was neither run nor measured, for there is no NVIDIA GPU here"
    )
    (kernel,) = found.resources
    assert (kernel.kernel, kernel.target) == ("rms_norm_kernel", "sm_90a")
    assert kernel.registers > 0
    assert kernel.shared_bytes == 1024
    assert not found.correctness


@needs_nvcc
@without_gpu
@pytest.mark.real
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("rsqrtf(", "rsqroot(", r'source.cu\(20\): error: identifier "rsqroot" is undefined'),
        ('extern "C" void rms_norm', "void rms_norm", 'no extern "C" function'),
        (', "void*"', "", "must have one, the stream"),
        ('"int64_t", "int64_t"', '"size_t", "int64_t"', "'size_t' cannot be bound"),
    ],
)
def test_what_does_not_compile_or_bind_is_a_compile_error_with_its_place(
    evaluator: LocalEvaluator, old: str, new: str, message: str
) -> None:
    assert old in samples.RMS_NORM_CUDA
    found = judge(evaluator, samples.RMS_NORM_CUDA.replace(old, new))
    assert found.status is Status.COMPILE_ERROR, (found.message, found.log_tail)
    import re

    assert re.search(message, found.message), found.message
