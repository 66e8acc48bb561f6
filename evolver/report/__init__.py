"""The report of a run: one HTML file that needs nothing else, for a person to read.

It is written from the run directory alone, while a search is in progress too. All that
comes from candidates, references and upstream is untrusted text and is escaped; the page
runs no script, and its policy forbids it to load anything. Figures are static SVG drawn by
matplotlib: a page of some 100 kB that follows the reader's light or dark setting, where
inlined Plotly would add 5 MB of script to an artefact that is attached to pull requests.
"""

from __future__ import annotations

from pathlib import Path

from evolver.run import Run, replace_text

REPORT_FILE = "report.html"


def write_report(run: Run, *, diff: str | None = None) -> Path:
    """Write the report of ``run`` to ``report.html`` in its directory and return its path.

    ``diff`` is the change to the repository, as unified diff, where one was made.

    Raises:
        OSError: the file cannot be written.
    """
    from evolver.report.content import gather
    from evolver.report.page import render

    path = run.path / REPORT_FILE
    replace_text(path, render(gather(run, diff=diff)))
    return path
