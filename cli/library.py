"""``ksmith library``: what worked, kept across runs; to look at and to forget."""

from __future__ import annotations

import json as json_module
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from cli.failures import ExitCode

if TYPE_CHECKING:
    from evolver.library.entry import LibraryEntry
    from evolver.library.store import Library

JsonOption = Annotated[bool, typer.Option("--json", help="As one JSON object.")]

library = typer.Typer(help="What worked, kept across runs (KSMITH_LIBRARY names the file).")


def register(app: typer.Typer) -> None:
    """Add the group to ``app``."""
    app.add_typer(library, name="library")


@library.command("list")
def list_(
    top: Annotated[int, typer.Option(min=1, help="So many, the latest first.")] = 20,
    json: JsonOption = False,
) -> None:
    """List what is kept: gain, kind of code, what was changed."""
    opened = _library()
    entries = opened.entries()
    if json:
        shown = [entry.model_dump(mode="json") for entry in entries[:top]]
        print(json_module.dumps({"path": str(opened.path), "entries": shown}))
        return
    for entry in entries[:top]:
        print(_line(entry))
    print(f"{len(entries)} entries in {opened.path}")


@library.command()
def stats(json: JsonOption = False) -> None:
    """Count what is kept, by problem, backend, device and what was changed."""
    opened = _library()
    entries = opened.entries()
    counts = {
        "entries": len(entries),
        "problems": len({e.origin.skeleton for e in entries}),
        "backends": _counted([e.features.backend.value for e in entries]),
        "devices": _counted([e.features.device for e in entries]),
        "operators": _counted([name for e in entries for name in e.change.operators]),
        "proposers": _counted([e.change.proposer for e in entries]),
    }
    if json:
        print(json_module.dumps({"path": str(opened.path), **counts}))
        return
    print(f"{counts['entries']} entries of {counts['problems']} problems in {opened.path}")
    for title in ("backends", "devices", "operators", "proposers"):
        found = counts[title]
        if isinstance(found, dict) and found:
            print(f"{title}: {', '.join(f'{name} {count}' for name, count in found.items())}")


@library.command()
def forget(
    entries: Annotated[
        list[str] | None, typer.Argument(metavar="[ENTRY]...", help="Ids, or how they begin.")
    ] = None,
    problem: Annotated[
        str | None, typer.Option(help="All that was learned from this problem's id.")
    ] = None,
    repository: Annotated[
        str | None, typer.Option(help="All that was learned from this repository.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Everything.")] = False,
    json: JsonOption = False,
) -> None:
    """Remove entries. Exit 1: none is like this."""
    opened = _library()
    begins = tuple(entries or ())
    if not (begins or problem or repository or everything):
        raise typer.BadParameter("name entries, or give --problem, --repository or --all")
    if "" in (*begins, problem, repository):
        raise typer.BadParameter("an empty name would forget more than was meant; leave it out")
    gone = [
        entry.id
        for entry in opened.entries()
        if everything
        or (begins and entry.id.startswith(begins))
        or entry.origin.problem_id == problem
        or entry.origin.repository == repository
    ]
    count = opened.forget(gone)
    print(json_module.dumps({"forgotten": count}) if json else f"{count} entries forgotten")
    raise typer.Exit(ExitCode.DONE if count else ExitCode.NO)


def _library() -> Library:
    from evolver.library.store import Library, library_path

    return Library(library_path())


def _counted(names: Sequence[str]) -> dict[str, int]:
    return dict(Counter(names).most_common())


def _line(entry: LibraryEntry) -> str:
    gain, change = entry.gain, entry.change
    what = change.plan.splitlines()[0] if change.plan else change.description
    return (
        f"{entry.id[:8]}  {gain.value:.2f}x [{gain.low:.2f}, {gain.high:.2f}]  "
        f"{entry.origin.problem_id}  {entry.features.backend.value} on {entry.features.device}  "
        f"{what}"
    )
