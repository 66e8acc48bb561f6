"""Make ``device-bundle/``: what a GPU machine without a network needs to run ksmith.

The machine has Python, torch, triton, numpy and scipy of its own. The bundle brings our tree
(what git tracks, as it is now) and the wheels of our other dependencies for its Python:

    python3 scripts/device_bundle.py --python 3.12
    # carry device-bundle/ there, then
    . device-bundle/activate.sh && ksmith doctor

Standard library only, since it may run before ``make setup``.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUNDLE = ROOT / "device-bundle"
ALREADY_THERE = {"torch", "triton", "numpy", "scipy"}
TEST_TOOLS = {"pytest", "pytest-timeout", "hypothesis"}
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in (39, 35, 34, 31, 28, 27, 24, 17)]
PLATFORMS += ["manylinux2014_x86_64", "manylinux1_x86_64"]

ACTIVATE = """\
# Source this: installs the wheels beside the machine's own packages and puts ksmith on PATH.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
site=${KSMITH_SITE:-$HOME/.ksmith-site}  # not in /tmp, which sandboxed programs have to themselves
if [ ! -x "$site/bin/python" ]; then
    python3 -m venv --system-site-packages --without-pip "$site" || return 3
    # A venv made from a venv sees the base interpreter's packages, not its parent's.
    target=$("$site/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$target/machine.pth"
    python3 -m pip install --quiet --no-index --no-deps --no-compile --upgrade \\
        --target "$target" "$here"/wheels/*.whl || return 3
    mkdir -p "$site/src" && tar -xf "$here/tree.tar" -C "$site/src" || return 3
    echo "$site/src" >"$target/ksmith.pth"
    printf '#!%s -P\\nfrom cli.main import main\\nmain()\\n' "$site/bin/python" >"$site/bin/ksmith"
    chmod +x "$site/bin/ksmith"
fi
export PATH="$site/bin:$PATH" KSMITH_COMMIT=$(cat "$here/commit")
"""


def main() -> int:
    """Build the bundle and say how large it is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default="3.12", help="the machine's Python (default 3.12)")
    options = parser.parse_args()
    shutil.rmtree(BUNDLE, ignore_errors=True)
    (BUNDLE / "wheels").mkdir(parents=True)
    download_wheels(options.python)
    pack_tree()
    (BUNDLE / "activate.sh").write_text(ACTIVATE)
    (BUNDLE / "commit").write_text(commit() + "\n")
    size_bytes = sum(f.stat().st_size for f in BUNDLE.rglob("*") if f.is_file())
    print(f"{BUNDLE.relative_to(ROOT)}: {size_bytes / 2**20:.1f} MiB for Python {options.python}")
    return 0


def download_wheels(python: str) -> None:
    """Fetch the wheels of our dependencies and theirs, without what the machine has."""
    wanted = [r for r in requirements() if name_of(r) not in ALREADY_THERE]
    command = [
        "-m",
        "pip",
        "download",
        "--quiet",
        "--only-binary=:all:",
        "--python-version",
        python,
    ]
    command += ["--implementation", "cp", "--dest", str(BUNDLE / "wheels")]
    for platform in PLATFORMS:
        command += ["--platform", platform]
    # pip of the system may be too old or absent: a throw-away environment has one of its own.
    with tempfile.TemporaryDirectory() as scratch:
        venv.create(scratch, with_pip=True)
        subprocess.run([f"{scratch}/bin/python", *command, *wanted], check=True)
    for wheel in (BUNDLE / "wheels").iterdir():
        if name_of(wheel.name.split("-")[0]) in ALREADY_THERE:
            wheel.unlink()


def requirements() -> list[str]:
    """Our own dependencies and the test tools, as pyproject.toml states them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    tools = [r for r in project["optional-dependencies"]["dev"] if name_of(r) in TEST_TOOLS]
    return [r.split(";")[0].strip() for r in [*project["dependencies"], *tools]]


def name_of(requirement: str) -> str:
    """The normalised distribution name of a requirement."""
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    return re.sub(r"[-_.]+", "-", match.group(0)).lower() if match else ""


def commit() -> str:
    """The commit that the tree is at, with ``+dirty`` when files differ from it."""
    git = ["git", "describe", "--always", "--abbrev=40", "--dirty=+dirty", "--exclude=*"]
    return subprocess.run(git, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def pack_tree() -> None:
    """Pack what git tracks, uncommitted changes included."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    files = [f for f in listed.stdout.split("\0") if f and (ROOT / f).is_file()]
    command = ["tar", "-cf", str(BUNDLE / "tree.tar"), "--null", "--files-from=-"]
    subprocess.run(command, cwd=ROOT, check=True, input="\0".join(files), text=True)


if __name__ == "__main__":
    sys.exit(main())
