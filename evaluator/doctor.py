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
    COMPUTE_SANITIZER = "compute-sanitizer"
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
    COMPILED = "compiled"
    """Whether it compiles, and what its kernels take; neither correctness nor a time."""
    NONE = "none"


class Ability(Record):
    """What this machine can do with one backend's candidates."""

    backend: BackendName
    level: Level
    lacks: tuple[Subject, ...] = ()
    """What keeps it from being measured; empty where it is."""
    reason: str = ""
    """The same in the backend's own words, where its needs are not among the checks."""


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
    BackendName.CUDA: (
        Subject.TORCH,
        Subject.COMPILER,
        Subject.NVCC,
        Subject.SANDBOX,
        Subject.GPU,
        Subject.TORCH_ON_GPU,
        Subject.GPU_IN_SANDBOX,
    ),
}
"""What a backend must have to be measured."""

_WITHOUT_DEVICE: dict[BackendName, tuple[Level, tuple[Subject, ...]]] = {
    BackendName.TRITON: (Level.CHECKED, (Subject.TORCH, Subject.TRITON, Subject.SANDBOX)),
    BackendName.CUDA: (
        Level.COMPILED,
        (Subject.TORCH, Subject.COMPILER, Subject.NVCC, Subject.SANDBOX),
    ),
}
"""How far a backend gets without its device, and what it must have for that."""


def diagnose() -> Diagnosis:
    """Check this machine. Takes a few seconds: torch is imported, a sandbox is started."""
    from evaluator.backends import backend_names
    from evaluator.checks import all_checks

    others = (_detected(name) for name in backend_names() if name not in _MEASURES)
    return conclude(all_checks(), tuple(others))


def conclude(checks: tuple[Check, ...], others: tuple[Ability, ...] = ()) -> Diagnosis:
    """Draw what can be evaluated from the checks; one that is absent counts as missing.

    Args:
        checks: of this machine.
        others: abilities that do not follow from the checks.
    """
    states = {check.name: check.state for check in checks}
    abilities = (*(_ability(backend, states) for backend in _MEASURES), *others)
    return Diagnosis(
        checks=checks,
        abilities=abilities,
        conclusion=tuple(_sentence(ability) for ability in abilities),
        can_evaluate=any(a.level in (Level.MEASURED, Level.CHECKED) for a in abilities),
    )


def _ability(backend: BackendName, states: Mapping[Subject, State]) -> Ability:
    lacks = _missing(_MEASURES[backend], states)
    if not lacks:
        return Ability(backend=backend, level=Level.MEASURED)
    reach, needs = _WITHOUT_DEVICE.get(backend, (Level.NONE, ()))
    level = Level.NONE if _missing(needs, states) else reach
    return Ability(backend=backend, level=level, lacks=lacks)


def _detected(name: BackendName) -> Ability:
    """Ask a backend that has no checks here, such as another package's."""
    from evaluator.backends import choose_backend
    from evaluator.errors import BackendUnavailable

    try:
        backend = choose_backend(name)
    except BackendUnavailable as missing:
        return Ability(backend=name, level=Level.NONE, reason=str(missing))
    unmeasured = Level.CHECKED if backend.interpreted else Level.COMPILED
    level = unmeasured if backend.lacks else Level.MEASURED
    return Ability(backend=name, level=level, reason=backend.lacks)


def _missing(wanted: tuple[Subject, ...], states: Mapping[Subject, State]) -> tuple[Subject, ...]:
    """Return what is missing; consequences of a GPU that is not there are not listed."""
    lacks = [s for s in wanted if states.get(s, State.MISSING) is State.MISSING]
    if Subject.GPU in lacks:
        lacks = [s for s in lacks if s not in (Subject.TORCH_ON_GPU, Subject.GPU_IN_SANDBOX)]
    return tuple(lacks)


def _sentence(ability: Ability) -> str:
    lacks = ability.reason or "missing: " + ", ".join(s.value for s in ability.lacks)
    return {
        Level.MEASURED: f"{ability.backend.value} candidates are judged and measured here.",
        Level.CHECKED: (
            f"{ability.backend.value} candidates are compiled and checked for correctness, "
            f"not measured ({lacks})."
        ),
        Level.COMPILED: (
            f"{ability.backend.value} candidates are compiled, neither run nor measured ({lacks})."
        ),
        Level.NONE: f"{ability.backend.value} candidates cannot be evaluated ({lacks}).",
    }[ability.level]
