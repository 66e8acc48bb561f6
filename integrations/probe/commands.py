"""Runs a repository's commands inside the sandbox and reports how they ended.

Started with the folders to copy as ``NAME=FOLDER`` arguments. Each line on file descriptor
3 is a JSON request, each line on 4 its answer:

    {"in": NAME, "argv": [...], "environment": {...}, "seconds": 60, "collect": FILE or null}
    {"status": 0, "seconds": 1.2, "output": "...", "timed_out": false, "collected": TEXT or null}

``collect`` names a file that the command writes, whose text is wanted. ``status`` is None
where the command could not be started. Each command is a process group of its own, killed
whole at its deadline. Copies are writable; the originals are not.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

_OUTPUT_CHARACTERS = 20_000
_COLLECTED_CHARACTERS = 32_000_000
_WORK = Path("/tmp/checkouts")  # noqa: S108 - the sandbox's own


def copy_all(pairs: list[str]) -> dict[str, Path]:
    """Copy each ``NAME=FOLDER`` to a place where it can be written."""
    copies: dict[str, Path] = {}
    for pair in pairs:
        name, _, folder = pair.partition("=")
        copies[name] = _WORK / name
        shutil.copytree(folder, copies[name], symlinks=True)
    return copies


def run(request: dict[str, object], copies: dict[str, Path]) -> dict[str, object]:
    """Run one command to its end or its deadline."""
    folder = copies[str(request["in"])]
    argv, extra = request["argv"], request["environment"]
    assert isinstance(argv, list)
    assert isinstance(extra, dict)
    start = time.monotonic()
    output = folder.parent / f"{folder.name}.output"
    timed_out = False
    with output.open("wb") as sink:
        try:
            process = subprocess.Popen(
                argv, cwd=folder, env={**os.environ, **extra}, stdin=subprocess.DEVNULL,
                stdout=sink, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            return {
                "status": None, "seconds": 0.0, "output": str(error), "timed_out": False,
                "collected": None,
            }  # fmt: skip
        try:
            process.wait(float(str(request["seconds"])))
        except subprocess.TimeoutExpired:
            timed_out = True
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    text = output.read_text(encoding="utf-8", errors="replace")
    return {
        "status": process.returncode,
        "seconds": time.monotonic() - start,
        "output": text[-_OUTPUT_CHARACTERS:],
        "timed_out": timed_out,
        "collected": collect(request["collect"]),
    }


def collect(name: object) -> str | None:
    """The text of a file, which is removed so that the next command cannot inherit it."""
    path = Path(str(name))
    if name is None or not path.is_file():
        return None
    text = path.read_text(encoding="utf-8", errors="replace")
    path.unlink()
    return text if len(text) <= _COLLECTED_CHARACTERS else None


def main() -> None:
    """Answer requests until the pipe closes."""
    with os.fdopen(3, encoding="utf-8") as requests, os.fdopen(4, "w", encoding="utf-8") as replies:
        copies = copy_all(sys.argv[1:])
        for line in requests:
            replies.write(json.dumps(run(json.loads(line), copies)) + "\n")
            replies.flush()


if __name__ == "__main__":
    main()
