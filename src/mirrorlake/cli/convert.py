"""`mirrorlake convert`"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from mirrorlake.cli.options import DEFAULT, Config, Json, Root

if TYPE_CHECKING:
    from mirrorlake.app.changes.convert import ConvertedTable


class EventFormat(StrEnum):
    """The format of event files."""

    AVRO = "avro"
    JSON = "json"


def convert(
    target: Annotated[str, typer.Argument(metavar="FOLDER-OR-URL", help="Where to write.")],
    form: Annotated[
        EventFormat | None,
        typer.Option("--format", help="Format of event files: avro (default) or json."),
    ] = None,
    config: Config = DEFAULT,
    root: Root = None,
    as_json: Json = False,
) -> None:
    """Convert a landing zone to event files, or event files to a landing zone.

    What has arrived is applied first, and the changes of the tables are written. A later call
    writes what has changed since. Lists what the other format cannot carry. Exits with 1 if a table
    could not be written or is stopped.

    \b
    mirrorlake convert ./events --root ./shop    landing zone in ./shop to event files
    mirrorlake convert ./zone                    event files of the project to a landing zone
    """
    from mirrorlake.app.changes.convert import convert as converted
    from mirrorlake.app.changes.convert import general_losses
    from mirrorlake.cli import crash
    from mirrorlake.cli.interruptible_mirror import interruptible_mirror
    from mirrorlake.cli.options import brief, project
    from mirrorlake.cli.output import print_json, say
    from mirrorlake.errors import UsageError
    from mirrorlake.events.paths import EventExtension

    settings = brief(project(config, root))
    if form is not None and settings.events is not None:
        raise UsageError(
            "--format is for event files, and event files become a landing zone",
            where="--format",
            hint="Leave it out.",
        )
    extension = EventExtension.JSON if form is EventFormat.JSON else EventExtension.AVRO
    found: list[ConvertedTable] = []
    with interruptible_mirror(settings) as mirror:
        for one in converted(mirror, target, extension, crash.reached):
            found.append(one)
            if not as_json:
                _print(one)
    losses = general_losses(settings)
    if as_json:
        print_json({"tables": [one.facts() for one in found], "not_carried": losses})
    else:
        for loss in losses:
            say(f"not carried: {loss}")
        if not found:
            say("there is no table")
    if any(one.error for one in found):
        raise typer.Exit(1)


def _print(one: ConvertedTable) -> None:
    from mirrorlake.cli.output import say
    from mirrorlake.errors import printable

    name = printable(one.table)
    parts = [f"{one.snapshot:,} rows"] if one.snapshot else []
    if one.commits:
        parts.append(f"{one.changes:,} changes of {one.commits:,} commits")
    typer.echo(f"{name}: {' and '.join(parts) or 'nothing new'}")
    for loss in one.lost:
        column = f" {printable(loss.column)}" if loss.column else ""
        say(f"  not carried of {name}{column}: {loss.what}")
    if one.error:
        say(f"  {name} is stopped: {one.error['message']}")
