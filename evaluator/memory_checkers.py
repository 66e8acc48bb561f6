"""The memory checkers: how a worker is started under each, and what their reports say.

AddressSanitizer (gcc's, with UndefinedBehaviorSanitizer) rebuilds a candidate's C++ and is
loaded into the worker. compute-sanitizer watches the worker's kernels as they are: memcheck
for accesses out of bounds, racecheck for races in shared memory. Both end the worker with a
status of ours when they found something, so that no print of the candidate's can hide it.
Sources: the gcc manual's "Instrumentation Options"; NVIDIA's Compute Sanitizer manual.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from evaluator.backends import MemoryChecker, NativeBuild
from evaluator.evaluation import MemoryFinding

FOUND_STATUS = 77
"""With which a worker ends in which something was found."""

_GCC_FLAGS = (
    *("-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined"),
    *("-fno-sanitize=vptr", "-fno-sanitize-recover=all"),
)
_GCC_LIBRARIES = ("libasan.so", "libstdc++.so")
"""Loaded first; without the second, gcc's interception of C++ exceptions finds nothing."""
_COMPUTE_TOOLS = ("memcheck", "racecheck")
_PADDING_BYTES = 4096
"""Behind each allocation, so that what runs past the end meets no other tensor."""
_QUERY_SECONDS = 20


@dataclass(frozen=True)
class Checker:
    """One way of watching a worker."""

    name: str
    wrapper: tuple[str, ...]
    """What the worker is started by."""
    read: Callable[[str], tuple[MemoryFinding, ...]]
    """Reads the findings from the worker's log."""
    complaints: re.Pattern[str] = re.compile(r"error|fail", re.IGNORECASE)
    """What marks the line of its log that says why it could not watch."""
    build_flags: tuple[str, ...] = ()
    """Added to the compiler's command."""
    variables: tuple[tuple[str, str], ...] = ()
    folders: tuple[Path, ...] = ()
    summary: str = ""
    """What its log says at the end of a run that it watched; '' where it says nothing."""

    def build(self, build: NativeBuild | None) -> NativeBuild | None:
        """Return how a candidate's SOURCE is compiled to be watched."""
        if build is None:
            return None
        return replace(build, command=(*build.command, *self.build_flags))


class CheckerMissing(Exception):
    """A memory checker is not on this machine; the message has the remedy."""


def checkers(kind: MemoryChecker, *, native: bool) -> tuple[Checker, ...]:
    """Return the checkers to run a candidate under, one after the other.

    Args:
        kind: as the backend says.
        native: whether the candidate has SOURCE to compile.

    Raises:
        CheckerMissing: the program or its library is not on this machine.
    """
    if kind is MemoryChecker.ADDRESS_SANITIZER:
        return (_address_sanitizer(),)
    program = find_compute_sanitizer()
    if program is None:
        raise CheckerMissing(
            "compute-sanitizer is not on this machine; it comes with the CUDA toolkit "
            "(package cuda-sanitizer-13-0, or any toolkit's bin on PATH)"
        )
    return tuple(_compute_sanitizer(program, tool, native=native) for tool in _COMPUTE_TOOLS)


def find_compute_sanitizer() -> Path | None:
    """Return the program on PATH, in ``CUDA_HOME`` or in the usual toolkit; None without one."""
    home = Path(os.environ.get("CUDA_HOME") or "/usr/local/cuda")
    on_path = shutil.which("compute-sanitizer")
    places = [Path(on_path)] if on_path else []
    places += [home / "bin/compute-sanitizer", home / "compute-sanitizer/compute-sanitizer"]
    return next((p.absolute() for p in places if os.access(p, os.X_OK)), None)


def _compute_sanitizer(program: Path, tool: str, *, native: bool) -> Checker:
    program = program.resolve()
    folder = program.parent.parent if program.parent.name == "bin" else program.parent
    return Checker(
        name=f"compute-sanitizer {tool}",
        wrapper=(
            *(str(program), "--tool", tool, "--error-exitcode", str(FOUND_STATUS)),
            # torch asks the driver for much that it may not have; that is no error of a kernel.
            *("--report-api-errors", "no", "--check-exit-code", "no"),
            *("--target-processes", "application-only", "--launch-timeout", "120"),
            *("--demangle", "simple", "--show-backtrace", "no", "--print-limit", "1000"),
            *(("--padding", str(_PADDING_BYTES)) if tool == "memcheck" else ()),
        ),
        read=read_compute_sanitizer,
        build_flags=("-lineinfo",) if native else (),
        # Torch's allocator hands out parts of large blocks, whose ends the checker cannot see.
        variables=(("PYTORCH_NO_CUDA_MEMORY_CACHING", "1"),),
        folders=() if folder.is_relative_to("/usr") else (folder,),
        summary=" SUMMARY: ",
        complaints=re.compile(r"^========= (?:Error|Internal Error)", re.IGNORECASE),
    )


def _address_sanitizer() -> Checker:
    ending = f"exitcode={FOUND_STATUS}:abort_on_error=0"
    options = f"detect_leaks=0:allocator_may_return_null=1:{ending}"
    libraries = ":".join(str(_gcc_library(name)) for name in _GCC_LIBRARIES)
    return Checker(
        name="AddressSanitizer",
        wrapper=(
            *("/usr/bin/env", f"LD_PRELOAD={libraries}"),
            *(f"ASAN_OPTIONS={options}", f"UBSAN_OPTIONS={ending}"),
        ),
        read=read_address_sanitizer,
        build_flags=_GCC_FLAGS,
    )


@cache
def _gcc_library(name: str) -> Path:
    """The library that g++ links with.

    Raises:
        CheckerMissing: there is none, or no g++.
    """
    try:
        done = subprocess.run(
            ["g++", f"-print-file-name={name}"],
            capture_output=True,
            text=True,
            timeout=_QUERY_SECONDS,
            check=False,
        )
        path = Path(done.stdout.strip())
    except (OSError, subprocess.TimeoutExpired):
        path = Path(name)
    if not path.is_absolute() or not path.exists():
        raise CheckerMissing(
            f"{name} of g++ is not on this machine, which AddressSanitizer needs; install gcc's "
            "sanitizer libraries (Debian: libasan8; Fedora: libasan libubsan)"
        )
    return path.resolve()


_ASAN_ERROR = re.compile(r"ERROR: AddressSanitizer: ([\w-]+)")
_ASAN_ACCESS = re.compile(r"^((?:READ|WRITE) of size \d+)", re.MULTILINE)
_ASAN_FRAME = re.compile(r"^\s+#\d+ 0x[0-9a-f]+ in (\S+).*?(source\.cpp:\d+)", re.MULTILINE)
_UBSAN_ERROR = re.compile(r"(source\.cpp:\d+):\d+: runtime error: (.+)")


def read_address_sanitizer(log: str) -> tuple[MemoryFinding, ...]:
    """Read gcc's reports: one of AddressSanitizer at most, which ends the process."""
    findings = [
        MemoryFinding(kind=match.group(2).strip(), place=match.group(1))
        for match in _UBSAN_ERROR.finditer(log)
    ]
    error = _ASAN_ERROR.search(log)
    if error is not None:
        report = log[error.end() :]
        access, frame = _ASAN_ACCESS.search(report), _ASAN_FRAME.search(report)
        kind = f"{error.group(1)}: {access.group(1)}" if access else error.group(1)
        function, place = frame.groups() if frame else (None, None)
        findings.append(MemoryFinding(kind=kind, kernel=function, place=place))
    return _counted(findings)


_COMPUTE_HEAD = re.compile(r"^========= (?! )(.+)$")
_NO_FINDING = re.compile(
    r"COMPUTE-SANITIZER|\w+ SUMMARY|Target application|Saved host|Program hit|Warning: |NOTE"
)
_RACE = re.compile(r"Error: (Race reported between \w+ access)")
_KERNEL = re.compile(r"\bat (?:void )?([^(]+?)(?:\(.*?\))?\+0x[0-9a-f]+")
_PLACE = re.compile(r"\bin \S*?([^/\s]+:\d+)")


def read_compute_sanitizer(log: str) -> tuple[MemoryFinding, ...]:
    """Read the reports of memcheck, racecheck, initcheck and synccheck."""
    return _counted([_compute_finding(block) for block in _compute_blocks(log)])


def _compute_blocks(log: str) -> Iterator[list[str]]:
    """Yield each report: its first line and the indented ones that follow it."""
    block: list[str] = []
    for line in log.splitlines():
        if not line.startswith("========="):
            continue
        head = _COMPUTE_HEAD.match(line)
        if head is None:
            if block and line.strip("= "):
                block.append(line)
            continue
        if block:
            yield block
        block = [] if _NO_FINDING.match(head.group(1)) else [head.group(1)]
    if block:
        yield block


def _compute_finding(block: list[str]) -> MemoryFinding:
    race = _RACE.match(block[0])
    where = block[0] if race else next((line for line in block[1:] if " at " in line), "")
    kernel, place = _KERNEL.search(where), _PLACE.search(where)
    return MemoryFinding(
        kind=race.group(1) if race else block[0],
        kernel=kernel.group(1) if kernel else None,
        place=place.group(1) if place else None,
    )


def _counted(findings: list[MemoryFinding]) -> tuple[MemoryFinding, ...]:
    """Equal findings once, with their number."""
    return tuple(f.model_copy(update={"count": n}) for f, n in Counter(findings).items())
