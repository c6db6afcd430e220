"""`mirrorlake feed-views`"""

from __future__ import annotations

from typing import Annotated

import typer

from mirrorlake.cli.options import DEFAULT, Config, Json, Root


def feed_views(
    tables: Annotated[list[str] | None, typer.Argument(help="The tables, as schema.name.")] = None,
    database: Annotated[
        str | None,
        typer.Option("--database", metavar="NAME", help="Database of the views; else the schema."),
    ] = None,
    config: Config = DEFAULT,
    root: Root = None,
    as_json: Json = False,
) -> None:
    """Print SQL that creates a view of the change feed of each table in Spark. Needs no JVM.

    Each view is named like its table with the suffix `_changes`, and begins with the first
    readable version. Create the views again when versions have expired. Spark before 4.2 refuses
    views of feeds in a catalog (INVALID_TEMP_OBJ_REFERENCE).

    \b
    mirrorlake feed-views | spark-sql -f /dev/stdin
    mirrorlake feed-views shop.orders --database changes
    """
    from mirrorlake.app.mirror import Mirror
    from mirrorlake.cli.options import project
    from mirrorlake.cli.output import print_json

    found = Mirror(project(config, root)).feed_views(tables or (), database)
    if as_json:
        print_json({"views": [view.facts() for view in found]})
        return
    for statement in dict.fromkeys(s for view in found for s in view.statements):
        typer.echo(f"{statement};")
