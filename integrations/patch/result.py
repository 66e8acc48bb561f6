"""What an integration made, for the report and for machines."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from evaluator.records import Record
from integrations.patch.errors import PatchError

INTEGRATION_DIRECTORY = "integration"
RESULT_FILE = f"{INTEGRATION_DIRECTORY}/result.json"
DIFF_FILE = f"{INTEGRATION_DIRECTORY}/change.diff"


class IntegrationResult(Record):
    """One commit on one branch. Paths are relative to the top of the git repository."""

    schema_version: Literal[1] = 1
    branch: str
    commit: str
    base: str
    """The commit that the branch starts from."""
    target: str
    """``path::qualname``, the path relative to the top of the git repository."""
    kernel_file: str
    test_file: str
    files: tuple[str, ...]
    diff: str
    import_root: str
    """The folder, relative to the top, from which the repository's modules are imported."""

    def save(self, run_directory: Path) -> None:
        """Write the record and the diff into the run's directory."""
        (run_directory / INTEGRATION_DIRECTORY).mkdir(exist_ok=True)
        (run_directory / DIFF_FILE).write_bytes(self.diff.encode("utf-8", "surrogateescape"))
        text = self.model_dump_json(indent=2)
        (run_directory / RESULT_FILE).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, run_directory: Path) -> IntegrationResult:
        """Read what ``save`` wrote.

        Raises:
            PatchError: the run was not integrated yet, or its record is damaged.
        """
        path = run_directory / RESULT_FILE
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise PatchError(
                f"{run_directory} was not integrated; `ksmith integrate RUN --repo DIR` does it"
            ) from error
        except ValidationError as error:
            raise PatchError(f"{path} is damaged: {error}; integrate again") from error
