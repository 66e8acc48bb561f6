"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from evaluator.candidate import BackendName
    from evolver.modes import SearchMode
    from evolver.proposers.llm.config import LlmConfig
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


def mode_named(name: str | None) -> SearchMode | None:
    """Return the mode that ``--mode`` names; None where the option is not given.

    Raises:
        typer.BadParameter: there is no such mode.
    """
    from evolver.modes import SearchMode

    if name is None:
        return None
    try:
        return SearchMode(name)
    except ValueError:
        raise typer.BadParameter(f"--mode {name}: choose one of {', '.join(SearchMode)}") from None


def llm_named(models: list[str], endpoint: str | None, path: Path | None) -> LlmConfig | None:
    """Return the models that ``--model NAME[=WEIGHT]`` or ``--llm FILE`` name; None without.

    Raises:
        typer.BadParameter: both are given, or one is malformed.
    """
    import yaml
    from pydantic import ValidationError

    from evaluator.records import complaint
    from evolver.proposers.llm.config import DEFAULT_ENDPOINT, LlmConfig, ModelConfig

    if path is not None and (models or endpoint):
        raise typer.BadParameter("--llm names the models; leave --model and --endpoint out")
    if not models and path is None:
        if endpoint is not None:
            raise typer.BadParameter("--endpoint needs --model NAME")
        return None
    try:
        if path is not None:
            content = yaml.safe_load(path.read_text(encoding="utf-8"))
            inner = content.get("llm", content) if isinstance(content, dict) else content
            return LlmConfig.model_validate(inner)
        split = [word.rpartition("=") if "=" in word else (word, "", "1") for word in models]
        at = endpoint or DEFAULT_ENDPOINT
        found = [{"name": n, "weight": w, "endpoint": at} for n, _, w in split]
        return LlmConfig(models=tuple(ModelConfig.model_validate(one) for one in found))
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"--llm {path}: {error}") from error
    except (yaml.YAMLError, ValidationError) as error:
        raise typer.BadParameter(f"{path or '--model'}: {complaint(error)}") from error
