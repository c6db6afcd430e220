"""`mirrorlake read`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mirrorlake.cli.options import DEFAULT, Config, NoVerify, Root

_FILE = "FILE"


def read(
    table: Annotated[str, typer.Argument(help="The table, as schema.name.")],
    config: Config = DEFAULT,
    root: Root = None,
    parquet: Annotated[
        Path | None, typer.Option("--parquet", metavar=_FILE, help="Write a Parquet file.")
    ] = None,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar=_FILE, help="Write a CSV file with a header.")
    ] = None,
    arrow: Annotated[
        Path | None, typer.Option("--arrow", metavar=_FILE, help="Write an Arrow IPC file.")
    ] = None,
    unverified: NoVerify = False,
) -> None:
    """Write all rows of a mirrored table into one file. Needs no JVM.

    First, the page checksums of the table are verified. An existing file is replaced when the new
    one is complete.

    \b
    mirrorlake read public.orders --parquet orders.parquet
    mirrorlake read public.orders --csv orders.csv --root ./shop
    """
    from mirrorlake.cli.options import folder_of_tables, project
    from mirrorlake.cli.output import say
    from mirrorlake.delta import export
    from mirrorlake.errors import UsageError

    given = {"parquet": parquet, "csv": csv, "arrow": arrow}
    named = [(form, file) for form, file in given.items() if file is not None]
    if len(named) != 1:
        raise UsageError(
            "no file was named, or several",
            where="read",
            hint="Use one of --parquet FILE, --csv FILE and --arrow FILE.",
        )
    ((form, file),) = named
    found = folder_of_tables(
        project(config, root), "Use an engine that reads Delta tables there, such as Spark."
    )
    export.write(found, table, export.FileForm(form), file, verify=not unverified)
    say(f"Wrote {file}.")
