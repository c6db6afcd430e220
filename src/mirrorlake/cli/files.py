"""`mirrorlake files`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirrorlake.cli.options import DEFAULT, Config, Json, Root
from mirrorlake.errors import printable

if TYPE_CHECKING:
    from mirrorlake.app.files import AppliedFiles


def files(
    table: Annotated[str, typer.Argument(help="The table, as schema.name.")],
    config: Config = DEFAULT,
    root: Root = None,
    last: Annotated[
        int, typer.Option("--last", min=1, help="Maximum number of files to show.")
    ] = 1_000,
    as_json: Json = False,
) -> None:
    """Show which landed files of a table have been applied: when, in which version, and their rows.

    Rows are counted as read from the file, by row marker. Needs no JVM.

    \b
    mirrorlake files sales.orders --last 20
    mirrorlake files sales.orders --json | jq .applied_to
    """
    from mirrorlake.app.mirror import Mirror
    from mirrorlake.cli.options import project
    from mirrorlake.cli.output import print_json, print_table, show

    found = Mirror(project(config, root)).files(table)
    shown = found.files[-last:]
    if as_json:
        print_json(found.facts() | {"files": [file.facts() for file in shown]})
        return
    header = ["file", "state", "inserts", "updates", "deletes", "upserts", "version", "time"]
    print_table(header, [_row(file) for file in shown], optional=["upserts"])
    if found.recorded is not None:
        show(f"{found.table}: all files up to number {found.recorded} have been applied.")


def _row(file: AppliedFiles) -> list[Any]:
    from mirrorlake.model.landed import readable_time

    rows = file.rows or {}
    counts = [rows.get(marker) for marker in ("insert", "update", "delete", "upsert")]
    facts = file.facts()
    return [
        _name(file),
        facts["state"],
        *counts,
        file.version,
        file.time and readable_time(file.time),
    ]


def _name(file: AppliedFiles) -> str:
    if file.names:
        more = len(file.names) - 1
        return printable(file.names[0]) + (f" and {more} more" if more else "")
    return str(file.first) if file.first == file.last else f"{file.first} to {file.last}"
