"""What the doctor concludes from what it finds, and what it finds where things are missing."""

from __future__ import annotations

import itertools
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator import checks, machine
from evaluator.candidate import BackendName
from evaluator.doctor import Check, Diagnosis, Level, State, Subject, conclude
from evaluator.errors import SandboxUnavailable
from evaluator.machine import Gpu, parse_gpus

ALL = frozenset(Subject)
GPU_PARTS = {Subject.GPU, Subject.TORCH_ON_GPU, Subject.GPU_IN_SANDBOX}


@pytest.fixture(autouse=True)
def _ask_again() -> Iterator[None]:
    """Versions are cached for the life of a process; these tests change what is there."""
    yield
    machine.compiler_version.cache_clear()
    machine.package_version.cache_clear()


def diagnosis_of(present: frozenset[Subject] | set[Subject]) -> Diagnosis:
    return conclude(
        tuple(
            Check(
                name=subject,
                state=State.OK if subject in present else State.MISSING,
                found="",
                needed_for="",
            )
            for subject in Subject
        )
    )


def level(diagnosis: Diagnosis, backend: BackendName) -> Level:
    return next(a.level for a in diagnosis.abilities if a.backend is backend)


def test_with_everything_every_backend_is_measured() -> None:
    diagnosis = diagnosis_of(ALL)
    assert {a.level for a in diagnosis.abilities} == {Level.MEASURED}
    assert diagnosis.can_evaluate


def test_without_a_gpu_triton_is_checked_but_not_measured() -> None:
    diagnosis = diagnosis_of(ALL - GPU_PARTS)
    assert level(diagnosis, BackendName.TRITON) is Level.CHECKED
    assert level(diagnosis, BackendName.CPP) is Level.MEASURED
    assert level(diagnosis, BackendName.CUDA) is Level.COMPILED
    assert "not measured (missing: GPU)." in " ".join(diagnosis.conclusion)
    assert "neither run nor measured (missing: GPU)." in " ".join(diagnosis.conclusion)


def test_a_gpu_that_the_sandbox_cannot_open_is_not_measured_on() -> None:
    diagnosis = diagnosis_of(ALL - {Subject.GPU_IN_SANDBOX})
    assert level(diagnosis, BackendName.TRITON) is Level.CHECKED
    assert "GPU in the sandbox" in " ".join(diagnosis.conclusion)


def test_without_a_sandbox_nothing_can_be_evaluated() -> None:
    diagnosis = diagnosis_of(ALL - {Subject.SANDBOX})
    assert {a.level for a in diagnosis.abilities} == {Level.NONE}
    assert not diagnosis.can_evaluate


def test_without_a_compiler_triton_is_still_checked() -> None:
    diagnosis = diagnosis_of(ALL - GPU_PARTS - {Subject.COMPILER})
    assert level(diagnosis, BackendName.CPP) is Level.NONE
    assert diagnosis.can_evaluate


@given(present=st.frozensets(st.sampled_from(Subject)), more=st.sampled_from(Subject))
def test_mending_something_never_makes_a_backend_worse(
    present: frozenset[Subject], more: Subject
) -> None:
    order = [Level.NONE, Level.COMPILED, Level.CHECKED, Level.MEASURED]
    for backend in (BackendName.CPP, BackendName.TRITON, BackendName.CUDA):
        before, after = (
            order.index(level(diagnosis_of(p), backend)) for p in (present, present | {more})
        )
        assert after >= before


def test_a_warning_hinders_nothing() -> None:
    warned = tuple(Check(name=s, state=State.WARNING, found="", needed_for="") for s in Subject)
    assert {a.level for a in conclude(warned).abilities} == {Level.MEASURED}


def test_without_any_sandbox_the_remedy_is_the_sandboxs_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse() -> None:
        raise SandboxUnavailable("no bubblewrap; sudo apt-get install bubblewrap")

    monkeypatch.setattr(checks, "select_sandbox", refuse)
    check = checks.check_sandbox()
    assert check.state is State.MISSING
    assert "apt-get install bubblewrap" in (check.remedy or "")


@pytest.fixture
def empty_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A PATH with nothing on it but what the test puts there."""
    machine.compiler_version.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(checks, "find_nvcc", lambda: None)
    return tmp_path


def command(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_missing_tools_are_named_with_the_command_that_brings_them(empty_path: Path) -> None:
    found = {
        "compiler": checks.check_compiler(),
        "nvcc": checks.check_nvcc(),
        "docker": checks.check_docker(),
        "git": checks.check_git(),
    }
    assert {c.state for c in found.values()} == {State.MISSING}
    assert found["compiler"].remedy == "sudo apt-get install g++"
    assert found["git"].remedy == "sudo apt-get install git"


def test_a_compiler_without_openmp_is_no_compiler_for_us(empty_path: Path) -> None:
    command(
        empty_path,
        "g++",
        'case "$*" in *--version*) echo "g++ 13.2.0";; '
        "*) echo \"cannot read spec file 'libgomp.spec'\" >&2; exit 1;; esac",
    )
    check = checks.check_compiler()
    assert check.state is State.MISSING
    assert "libgomp.spec" in check.found
    assert "libgomp1" in (check.remedy or "")


def test_without_a_docker_daemon_the_command_that_starts_one_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/socket")
    check = checks.check_docker()
    assert check.state is State.MISSING
    assert "sudo systemctl start docker" in (check.remedy or "")


def test_a_tool_that_hangs_or_fails_counts_as_absent(
    empty_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_QUERY_SECONDS", 0.2)
    command(empty_path, "nvidia-smi", "while :; do :; done")
    assert machine.gpus() == ()


def test_gpus_are_read_with_their_driver_and_clocks() -> None:
    csv = (
        "0, NVIDIA H200, 580.159.04, 9.0, 143771, 345, 1980\n"
        "1, NVIDIA A10, 580.159.04, 8.6, 23028, [N/A], [N/A]\n"
    )
    first, second = parse_gpus(csv)
    assert first == Gpu(
        index=0,
        name="NVIDIA H200",
        driver="580.159.04",
        compute_capability="9.0",
        memory_mib=143771,
        sm_clock_mhz=345,
        max_sm_clock_mhz=1980,
    )
    assert second.sm_clock_mhz is None
    assert "SM clock 345 of 1980 MHz" in checks.check_gpu((first,)).found
    assert "clock" not in checks.check_gpu((second,)).found


@given(cells=st.lists(st.text("019².- N/A\n"), min_size=6, max_size=8))
def test_no_output_of_nvidia_smi_breaks_the_reading(cells: list[str]) -> None:
    assert isinstance(parse_gpus(", ".join(cells)), tuple)


def test_little_memory_and_a_single_core_are_warnings() -> None:
    assert checks.check_cores(1).state is State.WARNING
    assert checks.check_cores(2).state is State.OK


def test_the_environment_of_a_record_names_machine_and_versions() -> None:
    found = machine.environment(device="cpu", threads=2, sandbox="bubblewrap")
    assert (found.device, found.threads, found.sandbox) == ("cpu", 2, "bubblewrap")
    assert found.driver is None
    assert found.cpu_count >= 1
    assert found.machine == machine.machine_name()


@pytest.mark.sandbox
def test_a_program_that_fails_inside_is_reported_with_its_words() -> None:
    from evaluator.sandbox import SandboxSpec

    spec = SandboxSpec(argv=["/bin/sh", "-c", "echo no such device >&2; exit 3"])
    complaint = checks.sandbox_complaint(spec)
    assert complaint == "/bin/sh exited with status 3 inside: no such device"


@pytest.mark.sandbox
def test_every_check_of_this_machine_answers_and_what_is_missing_has_a_remedy() -> None:
    found = checks.all_checks()
    assert len({check.name for check in found}) == len(found)
    needed = [check for check in found if not check.needed_for.startswith("nothing yet")]
    for check, state in itertools.product(needed, (State.MISSING, State.WARNING)):
        assert check.state is not state or check.remedy, check
