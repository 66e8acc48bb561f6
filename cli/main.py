"""The ``ksmith`` command: puts the groups together and turns exceptions into exit codes.

Exit codes (design.md section 8): 0 done, 1 the answer is no, 2 wrong use, 3 the machine
cannot, 130 interrupted.
"""

from __future__ import annotations

import sys

import typer

from cli import bench, demo, doctor, evaluate, extract, integrate, optimize, report, verify

app = typer.Typer(
    name="ksmith",
    help="Find hot GPU functions, search for faster kernels, prove them, open the pull request.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
for group in (doctor, demo, extract, optimize, evaluate, integrate, verify, report, bench):
    group.register(app)


def main() -> None:
    """Run the command line; every expected failure ends with one message and its code."""
    from cli.failures import exit_code_of

    try:
        app()
    except Exception as error:
        code = exit_code_of(error)
        if code is None:
            raise
        print(f"ksmith: {error}", file=sys.stderr)
        sys.exit(code)
