"""`mirrorlake trace`"""

from __future__ import annotations

import json
from typing import Annotated

import typer

from mirrorlake.cli.options import DEFAULT, Config, Json, Root


def trace(
    table: Annotated[str, typer.Argument(help="The table, as schema.name, or its folder or URL.")],
    key: Annotated[
        list[str] | None,
        typer.Argument(help="The key of a row; COLUMN=VALUE for each column of a composite key."),
    ] = None,
    version: Annotated[
        int | None, typer.Option("--version", metavar="N", help="Show the batch of this version.")
    ] = None,
    file: Annotated[
        int | None,
        typer.Option("--file", metavar="N", help="Show the batch that applied this landed file."),
    ] = None,
    position: Annotated[
        str | None,
        typer.Option("--position", help="Show the batch that first reached this position."),
    ] = None,
    most: Annotated[
        int, typer.Option("--last", metavar="N", min=1, help="How many changes to show.")
    ] = 10,
    config: Config = DEFAULT,
    root: Root = None,
    as_json: Json = False,
) -> None:
    """Show where the last changes of a row came from. Needs no JVM.

    Each change is shown with its version, the position in the source and the landed files that its
    version reaches. --version, --file and --position show the same for one batch.

    \b
    mirrorlake trace shop.orders 42
    mirrorlake trace shop.order_lines order=42 line=1 --json
    mirrorlake trace shop.orders --file 17
    """
    from mirrorlake.app.changes import trace as tracing
    from mirrorlake.app.feed import location_of
    from mirrorlake.cli.options import project
    from mirrorlake.cli.output import print_json, print_table, say
    from mirrorlake.errors import UsageError
    from mirrorlake.model.landed import format_time, readable_time

    given = [value for value in (key or None, version, file, position) if value is not None]
    if len(given) != 1:
        raise UsageError(
            "a key, --version, --file or --position is needed", where="trace", hint="Give one."
        )
    location, options = location_of(lambda: project(config, root), table)
    if key:
        found = tracing.trace(location, key, options, most)
        if as_json:
            changes = [change.facts() for change in found.changes]
            print_json({"changes": changes, "since": found.since, "unread": list(found.unread)})
            return
        rows = [
            [
                change.version,
                readable_time(change.time),
                change.kind,
                change.position,
                _files(change.files),
                json.dumps(change.facts()["row"], ensure_ascii=False),
            ]
            for change in found.changes
        ]
        print_table(["version", "time", "kind", "position", "files", "row"], rows)
        for one in found.unread:
            say(
                f"The changes of version {one} are not shown: it changed the type of columns, "
                "and rows that it deleted have values that do not fit."
            )
        if len(rows) < most and found.since > 0:
            say(f"The changes before version {found.since} were not recorded, or are expired.")
        return
    batch = tracing.batch_with(location, options, version=version, file=file, position=position)
    rows_of = {"insert": batch.inserts, "update": batch.updates, "delete": batch.deletes}
    time, files = format_time(batch.time), (batch.first, batch.last)
    if as_json:
        facts = {"version": batch.version, "time": time, "position": batch.position}
        print_json(facts | {"files": list(files), "rows": rows_of})
    else:
        print_table(
            ["version", "time", "position", "files", "inserts", "updates", "deletes"],
            [
                [
                    batch.version,
                    readable_time(batch.time),
                    batch.position,
                    _files(files),
                    *rows_of.values(),
                ]
            ],
        )


def _files(files: tuple[int, int] | None) -> str:
    return "" if files is None else f"{files[0]} to {files[1]}"
