"""Which sandbox is used: bubblewrap, unless someone says otherwise."""

from __future__ import annotations

import pytest

from evaluator.errors import SandboxUnavailable
from evaluator.sandbox.select import VARIABLE, choose_sandbox, select_sandbox


def test_nothing_said_means_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert select_sandbox().name == "bubblewrap"


def test_what_is_chosen_holds_for_all_that_select(
    monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    monkeypatch.setenv(VARIABLE, "bubblewrap")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/socket")
    choose_sandbox("docker:runsc")
    with pytest.raises(SandboxUnavailable, match="Docker daemon"):
        select_sandbox()


@pytest.mark.parametrize("name", ["dokcer", "docker:", "bubblewrap:runsc", "none", ""])
def test_an_unknown_name_is_refused_rather_than_replaced(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(VARIABLE, "bubblewrap")
    with pytest.raises(SandboxUnavailable, match="take bubblewrap, docker or docker:RUNTIME"):
        choose_sandbox(name)
