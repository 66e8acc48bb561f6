"""The house rules that a machine can check: who imports whom, and what stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# design.md, section 2. A room may always import itself.
MAY_IMPORT: dict[str, set[str]] = {
    "policies": set(),
    "evaluator": {"policies"},
    "evolver": {"evaluator", "policies"},
    "integrations": {"evaluator", "policies"},
    "training": {"evolver", "evaluator", "integrations", "policies"},
    "bot": {"training", "evolver", "evaluator", "integrations", "policies"},
    "benchmarks": {"bot", "training", "evolver", "evaluator", "integrations", "policies"},
    "cli": {"benchmarks", "bot", "training", "evolver", "evaluator", "integrations", "policies"},
}
# Folders that run beside untrusted code: torch, triton, the standard library, their siblings.
SANDBOXED = (
    Path("evaluator/worker"),
    Path("integrations/probe"),
    Path("evolver/proposers/compiler/emitter"),
)
ROOMS = set(MAY_IMPORT)
PRODUCT_FILES = sorted(
    path.relative_to(ROOT)
    for room in ROOMS
    if (ROOT / room).is_dir()
    for path in (ROOT / room).rglob("*.py")
)


def imports_of(path: Path) -> Iterator[tuple[str, int]]:
    """Yield (absolute module name, line) for every import in ``path``, nested ones too."""
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = path.parts[:-1] if node.level else ()
            base = package[: len(package) - (node.level - 1)] if node.level > 1 else package
            yield ".".join([*base, *(node.module or "").split(".")]).strip("."), node.lineno


def is_sandboxed(path: Path) -> bool:
    return any(folder in path.parents for folder in SANDBOXED)


def is_demo_engine(path: Path) -> bool:
    """The demo's repository is data of ours, not a part of ksmith."""
    return Path("bot/demo/engine") in path.parents


def breaches(path: Path) -> list[str]:
    """The imports in ``path`` that run against the table."""
    room = path.parts[0]
    found = []
    for module, line in imports_of(path):
        top = module.split(".")[0]
        if is_sandboxed(path):
            inside = module.startswith(".".join(path.parts[:-1]))
            allowed = inside or top in {"torch", "triton"} or top in sys.stdlib_module_names
        else:
            allowed = top not in ROOMS or top == room or top in MAY_IMPORT[room]
        if not allowed:
            found.append(f"{path}:{line}: {room} must not import {module}")
    return found


@pytest.mark.parametrize("path", [p for p in PRODUCT_FILES if not is_demo_engine(p)], ids=str)
def test_no_import_runs_against_the_architecture(path: Path) -> None:
    assert breaches(path) == []


@pytest.mark.parametrize(
    ("room", "module"),
    [(r, m) for r in sorted(ROOMS) for m in sorted(ROOMS - MAY_IMPORT[r] - {r})],
)
def test_the_check_sees_every_forbidden_arrow(
    room: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    path = Path(room) / "thing.py"
    (tmp_path / room).mkdir()
    (tmp_path / path).write_text(f"def f():\n    from {module}.x import y\n    return y\n")
    assert breaches(path) == [f"{path}:2: {room} must not import {module}.x"]


def test_a_worker_that_imports_a_third_party_package_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    path = Path("evaluator/worker/thing.py")
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(
        "import json\nfrom . import protocol\nimport pydantic\nimport evaluator\n"
    )
    assert [b.split(": ")[1] for b in breaches(path)] == [
        "evaluator must not import pydantic",
        "evaluator must not import evaluator",
    ]


def test_every_data_file_of_a_package_is_installed_with_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    shipped = project["tool"]["setuptools"]["package-data"]
    command = ["git", "ls-files", "--", *sorted(ROOMS)]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    files = [Path(line) for line in listed.stdout.splitlines() if not line.endswith(".py")]
    data = [f for f in files if Path("benchmarks/results") not in f.parents]
    assert data
    missing = [
        str(f)
        for f in data
        if not any(
            f.match(pattern if package == "*" else f"{package.replace('.', '/')}/{pattern}")
            for package, patterns in shipped.items()
            for pattern in patterns
        )
    ]
    assert missing == []


def test_help_does_not_import_torch() -> None:
    code = (
        "import sys; sys.argv = ['ksmith', '--help']\n"
        "from cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'triton', 'libcst', 'matplotlib', 'git'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_checkout_with_our_names_does_not_shadow_ours(tmp_path: Path) -> None:
    for name in [*ROOMS, "torch", "yaml", "typer"]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('shadowed')\n")
    script = Path(sys.executable).with_name("ksmith")
    done = subprocess.run([script, "--help"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "extract" in done.stdout
