"""Shared by the commands that build a table from the change feed of another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from mirrorlake.app.targets.functions import TargetLocation
    from mirrorlake.app.targets.target_status import TargetStatus
    from mirrorlake.feed.targets.build import TargetReport

Source = Annotated[
    str, typer.Argument(metavar="TABLE", help="The table, as schema.name, or its folder or URL.")
]
To = Annotated[
    str | None,
    typer.Option(
        "--to", metavar="TARGET", help="The target table, as schema.name, or its folder or URL."
    ),
]
Key = Annotated[
    list[str] | None,
    typer.Option("--key", metavar="COLUMN", help="A column of the key, if the table has none."),
]
FromVersion = Annotated[
    int | None,
    typer.Option("--from-version", min=0, help="Begin with the rows of this version."),
]
FromLatest = Annotated[
    bool, typer.Option("--from-latest", help="Begin with the rows of the latest version.")
]
ToVersion = Annotated[int | None, typer.Option("--to-version", min=0, help="The last version.")]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Continue until stopped.")]


def build(
    table: str,
    to: str | None,
    end: str,
    once: Callable[[TargetLocation, TargetLocation], list[TargetReport]],
    *,
    follow: bool,
    as_json: bool,
    config: Path,
    root: str | None,
) -> None:
    """Build a target and print what was done. end: suffix of the default name of the target."""
    from mirrorlake.app.feed import location_of
    from mirrorlake.app.targets.functions import TargetLocation, followed, location_of_target
    from mirrorlake.cli.options import project
    from mirrorlake.cli.stop import Stop

    settings = partial(project, config, root)
    source = TargetLocation(*location_of(settings, table))
    target = location_of_target(settings, source, to, end)
    if not follow:
        for report in once(source, target):
            _print(report, as_json=as_json)
        return
    for report in followed(partial(once, source, target), Stop().event.wait, source.location):
        _print(report, as_json=as_json)


def lines(target: TargetStatus) -> Iterator[str]:
    """The lines that show the state of a target."""
    from mirrorlake.cli.subscriptions import left

    if target.kind:
        behind = "" if target.behind is None else f", {target.behind} behind"
        covers = f"covers version {target.covered}{behind}"
    else:
        covers = "which is not there" if target.behind is None else "covers nothing yet"
    yield f"{target.target}: {target.kind or 'to be built'} from {target.table}, {covers}"
    if target.error:
        yield f"{target.target}: {target.error['message']}"
    elif target.is_late:
        yield f"{target.target}: the changes it needs are kept for {left(target)}"


def _print(report: TargetReport, *, as_json: bool) -> None:
    import json

    if as_json:
        typer.echo(json.dumps(report.facts()))
        return
    done = ", ".join(
        f"{count:,} rows {what}"
        for what, count in (
            ("inserted", report.inserted),
            ("updated", report.updated),
            ("deleted", report.deleted),
        )
        if count
    )
    typer.echo(f"{report.target}: covers version {report.covered}; {done or 'nothing changed'}")
