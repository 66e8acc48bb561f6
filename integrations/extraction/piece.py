"""One statement of the repository on its way into the reference."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from integrations.extraction.edits import Edits
from integrations.extraction.source import SourceModule


@dataclass
class Piece:
    """One statement of the repository that goes into the reference."""

    module: SourceModule
    statement: ast.stmt
    edits: Edits
    name: str
    """What it is called in the reference."""
