"""The ``ksmith`` command: puts the groups together and turns exceptions into exit codes.

Exit codes (design.md section 8): 0 done, 1 the answer is no, 2 wrong use, 3 the machine
cannot, 130 interrupted.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType

import typer

from cli import (
    bench,
    capture,
    demo,
    doctor,
    evaluate,
    extract,
    hot,
    integrate,
    library,
    optimize,
    profile,
    report,
    serve_model,
    synth,
    verify,
)
from cli.failures import ExitCode, Interrupted, tell_failure

app = typer.Typer(
    name="ksmith",
    help="Find hot GPU functions, search for faster kernels, prove them, open the pull request.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
GROUPS = (
    doctor, demo, profile, hot, capture, extract, optimize, serve_model, evaluate, integrate,
    verify, report, synth, library, bench,
)  # fmt: skip
for group in GROUPS:
    group.register(app)


def main() -> None:
    """Run the command line; every failure ends with one message and its code.

    Continuous integration cancels a job with SIGTERM: it ends every command like Ctrl-C,
    so that what was begun is cleaned up.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    as_json = "--json" in sys.argv[1:]
    try:
        code = _run(as_json)
    except KeyboardInterrupt:
        code = tell_failure(Interrupted("interrupted"), as_json=as_json)
    sys.exit(code)


def _run(as_json: bool) -> int:
    try:
        code = app(standalone_mode=False)
        if code == ExitCode.INTERRUPTED:  # what Typer makes of Ctrl-C
            raise Interrupted("interrupted")
        return int(code or 0)
    except Exception as error:
        return tell_failure(error, as_json=as_json)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
