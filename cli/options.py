"""Options that several commands share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from evaluator.candidate import BackendName


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
