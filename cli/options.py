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
    from evaluator.candidate import BackendName

    names = [known.value for known in BackendName]
    if name is not None and name not in names:
        raise typer.BadParameter(f"--backend {name}: choose one of {', '.join(names)}")
    return BackendName(name) if name is not None else None
