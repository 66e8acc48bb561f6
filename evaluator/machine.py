"""Facts about this machine: processor, memory, GPUs, versions of what numbers depend on.

Every fact is read from the system (``/proc``, ``nvidia-smi``, package metadata, a
compiler's ``--version``), none is assumed: what cannot be read is None or absent. Torch
is not imported, so that asking costs milliseconds. Facts that cannot change while a
process lives are cached; clocks are not.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path

from evaluator.evaluation import Environment
from evaluator.records import Record

_QUERY_SECONDS = 20
"""Longest that a tool may take to answer; nvidia-smi needs seconds on a cold driver."""

_GPU_FIELDS = (
    "index",
    "name",
    "driver_version",
    "compute_cap",
    "memory.total",
    "clocks.sm",
    "clocks.max.sm",
)


class Gpu(Record):
    """One NVIDIA GPU as the driver reports it; a clock that it keeps to itself is None."""

    index: int
    name: str
    driver: str
    compute_capability: str
    memory_mib: int | None
    sm_clock_mhz: int | None
    max_sm_clock_mhz: int | None


def environment(*, device: str, threads: int, sandbox: str, compiler: str = "g++") -> Environment:
    """Return the machine and versions that a number measured on ``device`` belongs to.

    Args:
        device: ``cpu``, ``cuda`` or ``cuda:N``; a GPU is recorded by its name where known.
        threads: how many threads the measured code may use.
        sandbox: the name of the sandbox that it ran in.
        compiler: the command that made the measured code.
    """
    driver, recorded_device = None, device
    if device.startswith("cuda"):
        gpu = _gpu_of(device)
        driver = gpu.driver if gpu else None
        recorded_device = f"{device} ({gpu.name})" if gpu else device
    return Environment(
        machine=machine_name(),
        device=recorded_device,
        cpu_count=cpu_count(),
        threads=threads,
        python=platform.python_version(),
        torch=package_version("torch") or "absent",
        triton=package_version("triton"),
        driver=driver,
        compiler=compiler_version(compiler),
        sandbox=sandbox,
    )


@cache
def machine_name() -> str:
    """Return the processor's model and the kernel, such as ``AMD EPYC 9554, Linux 6.8.0``."""
    return f"{cpu_model()}, {platform.system()} {platform.release()}"


@cache
def cpu_model() -> str:
    """Return the processor's model as the kernel names it, or its architecture."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine() or "unknown processor"


def cpu_count() -> int:
    """Return how many cores this process may run on."""
    return len(os.sched_getaffinity(0))


@cache
def package_version(distribution: str) -> str | None:
    """Return the installed version of ``distribution``, None where it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


@cache
def compiler_version(command: str) -> str | None:
    """Return the line of ``command --version`` that has the version, None without it."""
    answer = tool_output(command, "--version")
    if not answer:
        return None
    lines = answer.splitlines()
    return next((line.strip() for line in lines if "release" in line), lines[0].strip())


def gpus() -> tuple[Gpu, ...]:
    """Return this machine's NVIDIA GPUs with their clocks of now; empty without a driver."""
    answer = tool_output(
        "nvidia-smi", f"--query-gpu={','.join(_GPU_FIELDS)}", "--format=csv,noheader,nounits"
    )
    return parse_gpus(answer) if answer else ()


def parse_gpus(csv: str) -> tuple[Gpu, ...]:
    """Read what ``nvidia-smi --query-gpu`` printed; lines that are no GPU are passed over."""
    rows = [[cell.strip() for cell in line.split(",")] for line in csv.splitlines()]
    return tuple(
        Gpu(
            index=int(row[0]),
            name=row[1],
            driver=row[2],
            compute_capability=row[3],
            memory_mib=_whole_number(row[4]),
            sm_clock_mhz=_whole_number(row[5]),
            max_sm_clock_mhz=_whole_number(row[6]),
        )
        for row in rows
        if len(row) == len(_GPU_FIELDS) and row[0].isdecimal()
    )


def gpu_name(device: str) -> str | None:
    """Return the driver's name for ``cuda`` or ``cuda:N``, None where there is no such GPU."""
    gpu = _gpu_of(device)
    return gpu.name if gpu else None


def tool_output(command: str, *arguments: str) -> str | None:
    """Return what a tool printed; None where it is absent, fails or does not answer."""
    path = shutil.which(command)
    if path is None:
        return None
    try:
        done = subprocess.run(
            [path, *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_QUERY_SECONDS,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 and done.stdout.strip() else None


@cache
def _gpu_of(device: str) -> Gpu | None:
    index = int(device.partition(":")[2] or 0)
    return next((gpu for gpu in gpus() if gpu.index == index), None)


def _whole_number(cell: str) -> int | None:
    return int(cell) if cell.isdecimal() else None
