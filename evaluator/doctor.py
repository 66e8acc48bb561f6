"""What this machine can evaluate, what is missing, and the command that mends it.

``diagnose`` asks each part of the machine once (``checks.py``) and ``conclude`` draws
from the answers what each backend can do here. A check tries the thing where it can: it
compiles, it starts a sandbox, it opens the GPU inside one; a version alone proves little.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from evaluator.candidate import BackendName
from evaluator.records import Record


class Subject(StrEnum):
    """What is checked."""

    PYTHON = "Python"
    TORCH = "torch"
    TRITON = "triton"
    COMPILER = "g++"
    SANDBOX = "sandbox"
    GPU = "GPU"
    TORCH_ON_GPU = "torch on the GPU"
    GPU_IN_SANDBOX = "GPU in the sandbox"
    NVCC = "nvcc"
    DOCKER = "Docker"
    GIT = "git"
    CORES = "cores"
    MEMORY = "memory"
    DISK = "disk"


class State(StrEnum):
    """What a check found."""

    OK = "ok"
    MISSING = "missing"
    """Absent, or there and not working."""
    WARNING = "warning"
    """Usable, with a drawback that the check names."""


class Check(Record):
    """One answer about the machine."""

    name: Subject
    state: State
    found: str
    needed_for: str
    remedy: str | None = None
    """A command, or what to get; None where there is nothing to mend."""


class Level(StrEnum):
    """How far candidates of a backend can be judged here."""

    MEASURED = "measured"
    """Correctness and time."""
    CHECKED = "checked"
    """Compiled for a GPU and run in the Triton interpreter: correctness, never a time."""
    NONE = "none"


class Ability(Record):
    """What this machine can do with one backend's candidates."""

    backend: BackendName
    level: Level
    lacks: tuple[Subject, ...] = ()
    """What keeps it from being measured; empty where it is."""


class Diagnosis(Record):
    """All checks and what follows from them."""

    checks: tuple[Check, ...]
    abilities: tuple[Ability, ...]
    conclusion: tuple[str, ...]
    """One sentence per backend."""
    can_evaluate: bool
    """Whether any candidate can be judged here at all."""


_MEASURES: dict[BackendName, tuple[Subject, ...]] = {
    BackendName.CPP: (Subject.TORCH, Subject.COMPILER, Subject.SANDBOX),
    BackendName.TRITON: (
        Subject.TORCH,
        Subject.TRITON,
        # Triton compiles its launcher with the C compiler that comes with g++.
        Subject.COMPILER,
        Subject.SANDBOX,
        Subject.GPU,
        Subject.TORCH_ON_GPU,
        Subject.GPU_IN_SANDBOX,
    ),
}
"""What a backend must have to be measured."""

_CHECKS: dict[BackendName, tuple[Subject, ...]] = {
    BackendName.TRITON: (Subject.TORCH, Subject.TRITON, Subject.SANDBOX),
}
"""What a backend must have to be checked without its device, where that can be."""


def diagnose() -> Diagnosis:
    """Check this machine. Takes a few seconds: torch is imported, a sandbox is started."""
    from evaluator.checks import all_checks

    return conclude(all_checks())


def conclude(checks: tuple[Check, ...]) -> Diagnosis:
    """Draw what can be evaluated from the checks; one that is absent counts as missing."""
    states = {check.name: check.state for check in checks}
    abilities = tuple(_ability(backend, states) for backend in BackendName)
    return Diagnosis(
        checks=checks,
        abilities=abilities,
        conclusion=tuple(_sentence(ability) for ability in abilities),
        can_evaluate=any(ability.level is not Level.NONE for ability in abilities),
    )


def _ability(backend: BackendName, states: Mapping[Subject, State]) -> Ability:
    lacks = _missing(_MEASURES[backend], states)
    if not lacks:
        return Ability(backend=backend, level=Level.MEASURED)
    can_check = backend in _CHECKS and not _missing(_CHECKS[backend], states)
    return Ability(backend=backend, level=Level.CHECKED if can_check else Level.NONE, lacks=lacks)


def _missing(wanted: tuple[Subject, ...], states: Mapping[Subject, State]) -> tuple[Subject, ...]:
    """Return what is missing; consequences of a GPU that is not there are not listed."""
    lacks = [s for s in wanted if states.get(s, State.MISSING) is State.MISSING]
    if Subject.GPU in lacks:
        lacks = [s for s in lacks if s not in (Subject.TORCH_ON_GPU, Subject.GPU_IN_SANDBOX)]
    return tuple(lacks)


def _sentence(ability: Ability) -> str:
    lacks = ", ".join(subject.value for subject in ability.lacks)
    return {
        Level.MEASURED: f"{ability.backend.value} candidates are judged and measured here.",
        Level.CHECKED: (
            f"{ability.backend.value} candidates are compiled and checked for correctness, "
            f"not measured (missing: {lacks})."
        ),
        Level.NONE: f"{ability.backend.value} candidates cannot be evaluated (missing: {lacks}).",
    }[ability.level]
