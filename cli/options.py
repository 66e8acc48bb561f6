"""Options that several commands share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from evaluator.candidate import BackendName


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
