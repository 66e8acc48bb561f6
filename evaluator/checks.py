"""The checks of ``ksmith doctor``: each asks one part of the machine and knows its remedy.

None raises for what it finds; a missing thing is an answer. Nothing is installed or
changed, and no candidate's code is run: the sandbox starts ``true`` and, with a GPU, the
driver's own ``cuInit``.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from evaluator import machine
from evaluator.backends.cuda import find_nvcc
from evaluator.doctor import Check, State, Subject
from evaluator.errors import SandboxUnavailable
from evaluator.memory_checkers import find_compute_sanitizer
from evaluator.sandbox import SandboxSpec
from evaluator.sandbox.bubblewrap import BubblewrapSandbox
from evaluator.sandbox.select import select_sandbox
from evaluator.sandbox.zygote import ZygoteSandbox

_GIB = 1 << 30
_LITTLE_MEMORY_BYTES = 4 * _GIB
"""Torch with its compiler takes 1 to 2 GiB in each of two workers."""
_LITTLE_DISK_BYTES = 2 * _GIB

_OPENMP_SOURCE = """#include <omp.h>
extern "C" int threads() { return omp_get_max_threads(); }
"""

_OPEN_GPU = """import ctypes, sys
sys.exit(ctypes.CDLL("libcuda.so.1").cuInit(0))
"""

_PROBE_SECONDS = 60


def all_checks() -> tuple[Check, ...]:
    """Return every check of this machine, what matters most first."""
    gpus = machine.gpus()
    on_gpu = _checks_of_gpu() if gpus else ()
    return (
        check_python(),
        check_torch(),
        check_triton(),
        check_compiler(),
        check_sandbox(),
        check_gpu(gpus),
        *on_gpu,
        check_nvcc(),
        check_docker(),
        check_git(),
        check_cores(machine.cpu_count()),
        check_memory(),
        check_disk(Path.cwd()),
    )


def check_python() -> Check:
    """Report the interpreter."""
    return Check(
        name=Subject.PYTHON,
        state=State.OK,
        found=f"{platform.python_version()} ({sys.executable})",
        needed_for="everything",
    )


def check_torch() -> Check:
    """Import torch and report its build."""
    needed_for = "references and candidates of every backend"
    try:
        import torch
    except (ImportError, OSError) as error:
        version = machine.package_version("torch")
        return Check(
            name=Subject.TORCH,
            state=State.MISSING,
            found=f"{version}, which cannot be imported: {error}" if version else "not installed",
            needed_for=needed_for,
            remedy=f"{sys.executable} -m pip install --force-reinstall torch",
        )
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU"
    return Check(
        name=Subject.TORCH,
        state=State.OK,
        found=f"{torch.__version__}, {build} build",
        needed_for=needed_for,
    )


def check_triton() -> Check:
    """Report triton's version."""
    version = machine.package_version("triton")
    return Check(
        name=Subject.TRITON,
        state=State.OK if version else State.MISSING,
        found=version or "not installed",
        needed_for="triton candidates",
        remedy=None if version else f"{sys.executable} -m pip install triton",
    )


def check_compiler() -> Check:
    """Compile one line with g++ and OpenMP."""
    needed_for = "cpp candidates, and triton's launcher on a GPU"
    version = machine.compiler_version("g++")
    if version is None:
        return Check(
            name=Subject.COMPILER,
            state=State.MISSING,
            found="not installed",
            needed_for=needed_for,
            remedy="sudo apt-get install g++",
        )
    complaint = _openmp_complaint()
    return Check(
        name=Subject.COMPILER,
        state=State.MISSING if complaint else State.OK,
        found=f"{version}; -fopenmp fails: {complaint}" if complaint else f"{version}, OpenMP",
        needed_for=needed_for,
        remedy="sudo apt-get install g++ libgomp1" if complaint else None,
    )


def check_sandbox() -> Check:
    """Start a sandbox around ``true``."""
    started = time.monotonic()
    complaint = sandbox_complaint(SandboxSpec(argv=["/bin/true"]))
    milliseconds = (time.monotonic() - started) * 1e3
    return Check(
        name=Subject.SANDBOX,
        state=State.MISSING if complaint else State.OK,
        found="none works" if complaint else f"{_isolation()}, {milliseconds:.0f} ms for one start",
        needed_for="running any reference or candidate; without one nothing is run",
        remedy=complaint,
    )


def _isolation() -> str:
    """How the sandbox isolates, and whether workers can be forked in it; tries it."""
    sandbox = select_sandbox()
    if not isinstance(sandbox, BubblewrapSandbox):
        return sandbox.description
    forking = ZygoteSandbox(sandbox)
    try:
        forking.start(SandboxSpec(argv=[sys.executable, "-I", "-S", "-c", ""])).kill()
        return forking.description
    finally:
        forking.close()


def check_gpu(gpus: tuple[machine.Gpu, ...]) -> Check:
    """Report the GPUs with their driver and clocks."""
    needed_for = "measuring triton candidates"
    if gpus:
        found = "; ".join(_describe(gpu) for gpu in gpus)
        return Check(name=Subject.GPU, state=State.OK, found=found, needed_for=needed_for)
    nodes = any(Path("/dev").glob("nvidia[0-9]*"))
    return Check(
        name=Subject.GPU,
        state=State.MISSING,
        found="/dev has one, but nvidia-smi does not answer" if nodes else "none",
        needed_for=needed_for,
        remedy="put the driver's nvidia-smi on PATH"
        if nodes
        else "a machine with an NVIDIA GPU and its driver (a container: --gpus all)",
    )


def check_torch_on_gpu() -> Check:
    """Ask torch whether it reaches the GPU."""
    reaches = _torch_reaches_gpu()
    return Check(
        name=Subject.TORCH_ON_GPU,
        state=State.OK if reaches else State.MISSING,
        found="works" if reaches else "torch does not reach the GPU (a CPU build, or too new)",
        needed_for="measuring triton candidates",
        remedy=None if reaches else f"{sys.executable} -m pip install --force-reinstall torch",
    )


def check_gpu_in_sandbox() -> Check:
    """Open the GPU inside a sandbox through the driver alone."""
    argv = [sys.executable, "-I", "-S", "-c", _OPEN_GPU]
    complaint = sandbox_complaint(SandboxSpec(argv=argv, gpu=True))
    return Check(
        name=Subject.GPU_IN_SANDBOX,
        state=State.MISSING if complaint else State.OK,
        found=complaint or "opens",
        needed_for="measuring triton candidates",
        remedy="let every user open the devices: sudo chmod a+rw /dev/nvidia*"
        if complaint
        else None,
    )


def check_nvcc() -> Check:
    """Report nvcc; triton brings its own assembler."""
    nvcc = find_nvcc()
    version = machine.compiler_version(str(nvcc)) if nvcc else None
    return Check(
        name=Subject.NVCC,
        state=State.OK if version else State.MISSING,
        found=version or "not installed",
        needed_for="cuda candidates",
        remedy=None
        if version
        else "the CUDA toolkit of torch's version: https://developer.nvidia.com/cuda-downloads",
    )


def _checks_of_gpu() -> tuple[Check, ...]:
    return (check_torch_on_gpu(), check_gpu_in_sandbox(), check_compute_sanitizer())


def check_compute_sanitizer() -> Check:
    """Report NVIDIA's memory checker."""
    found = find_compute_sanitizer()
    return Check(
        name=Subject.COMPUTE_SANITIZER,
        state=State.OK if found else State.WARNING,
        found=str(found) if found else "not installed",
        needed_for="the deep check of triton and cuda candidates",
        remedy=None if found else "the CUDA toolkit's package cuda-sanitizer, its bin on PATH",
    )


def check_docker() -> Check:
    """Ask whether a Docker daemon here could be the sandbox; starts nothing in it."""
    from evaluator.sandbox.docker import DockerSandbox

    try:
        found, remedy = f"{DockerSandbox().description}, usable: --sandbox docker", None
    except SandboxUnavailable as error:
        found, remedy = "no daemon serves", str(error)
    return Check(
        name=Subject.DOCKER,
        state=State.OK if remedy is None else State.MISSING,
        found=found,
        needed_for="--sandbox docker (the default is bubblewrap)",
        remedy=remedy,
    )


def check_git() -> Check:
    """Report git."""
    version = machine.tool_output("git", "--version")
    return Check(
        name=Subject.GIT,
        state=State.OK if version else State.MISSING,
        found=version.strip() if version else "not installed",
        needed_for="integrating a kernel as a branch",
        remedy=None if version else "sudo apt-get install git",
    )


def check_cores(count: int) -> Check:
    """Report the cores that we may use; measuring wants one that nobody else needs."""
    return Check(
        name=Subject.CORES,
        state=State.OK if count > 1 else State.WARNING,
        found=f"{count} × {machine.cpu_model()}",
        needed_for="steady times",
        remedy=None if count > 1 else "at least two cores: one to measure on, one for the rest",
    )


def check_memory() -> Check:
    """Report main memory."""
    memory = psutil.virtual_memory()
    little = memory.available < _LITTLE_MEMORY_BYTES
    return Check(
        name=Subject.MEMORY,
        state=State.WARNING if little else State.OK,
        found=f"{memory.available / _GIB:.1f} GiB free of {memory.total / _GIB:.1f}",
        needed_for="two workers with torch, and the problem's tensors",
        remedy="free some: 4 GiB are advisable" if little else None,
    )


def check_disk(folder: Path) -> Check:
    """Report the free space where runs are written."""
    free = shutil.disk_usage(folder).free
    little = free < _LITTLE_DISK_BYTES
    return Check(
        name=Subject.DISK,
        state=State.WARNING if little else State.OK,
        found=f"{free / _GIB:.1f} GiB free in {folder}",
        needed_for="run directories",
        remedy="free some: 2 GiB are advisable" if little else None,
    )


def _openmp_complaint() -> str | None:
    """Return what g++ says against a one-line OpenMP library, None where it compiles."""
    with tempfile.TemporaryDirectory(prefix="ksmith-doctor-") as folder:
        library = str(Path(folder) / "probe.so")
        command = ["g++", "-x", "c++", "-fopenmp", "-fPIC", "-shared", "-o", library, "-"]
        try:
            done = subprocess.run(
                command,
                input=_OPENMP_SOURCE,
                capture_output=True,
                text=True,
                timeout=_PROBE_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
    if done.returncode == 0:
        return None
    return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]


def sandbox_complaint(spec: SandboxSpec) -> str | None:
    """Return why ``spec`` does not run to a good end in a sandbox, None where it does."""
    try:
        process = select_sandbox().start(spec)
    except SandboxUnavailable as error:
        return str(error)
    try:
        deadline = time.monotonic() + _PROBE_SECONDS
        while process.alive() and time.monotonic() < deadline:
            time.sleep(0.002)
        reason = process.exit_reason() or f"no end after {_PROBE_SECONDS} s"
        if reason == "exited with status 0":
            return None
        return f"{spec.argv[0]} {reason} inside: {process.log_tail(500).strip() or 'no output'}"
    finally:
        process.kill()


def _describe(gpu: machine.Gpu) -> str:
    memory = f", {gpu.memory_mib / 1024:.0f} GiB" if gpu.memory_mib else ""
    clocks = (
        f", SM clock {gpu.sm_clock_mhz} of {gpu.max_sm_clock_mhz} MHz" if gpu.sm_clock_mhz else ""
    )
    return f"{gpu.index}: {gpu.name}{memory}, driver {gpu.driver}{clocks}"


def _torch_reaches_gpu() -> bool:
    try:
        import torch
    except (ImportError, OSError):
        return False
    return torch.cuda.is_available()
