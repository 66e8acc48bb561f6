"""Options that several commands share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from evaluator.candidate import BackendName
    from policies.model import EvaluatorPolicy


SandboxOption = Annotated[
    str | None,
    typer.Option(
        "--sandbox",
        metavar="[bubblewrap|docker|docker:runsc]",
        help="Where untrusted code runs. Default: KSMITH_SANDBOX, else bubblewrap.",
    ),
]


def use_sandbox(name: str | None) -> None:
    """Run untrusted code where ``--sandbox`` says; as before where it is not given.

    Raises:
        typer.BadParameter: there is no such sandbox.
    """
    from evaluator.errors import SandboxUnavailable
    from evaluator.sandbox.select import choose_sandbox

    if name is None:
        return
    try:
        choose_sandbox(name)
    except SandboxUnavailable as error:
        raise typer.BadParameter(str(error)) from error


def policy_named(preset: str | None) -> EvaluatorPolicy:
    """Return the default policy with the source preset that ``--policy`` names.

    Raises:
        typer.BadParameter: there is no such preset.
    """
    from policies.model import EvaluatorPolicy

    policy = EvaluatorPolicy.default()
    if preset is None:
        return policy
    known = policy.source.presets
    if preset not in known:
        raise typer.BadParameter(f"--policy {preset}: choose one of {', '.join(known)}")
    return policy.with_source_preset(preset)


def backend_named(name: str | None) -> BackendName | None:
    """Return the backend that ``--backend`` names; None where the option is not given.

    Raises:
        typer.BadParameter: there is no such backend.
    """
    from evaluator.backends import backend_names
    from evaluator.candidate import BackendName

    if name is None:
        return None
    names = backend_names()
    if name not in names:
        raise typer.BadParameter(f"--backend {name}: choose one of {', '.join(names)}")
    return BackendName(name)
