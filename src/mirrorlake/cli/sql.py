"""`mirrorlake sql`"""

from __future__ import annotations

from typing import Annotated

import typer

from mirrorlake.cli.options import DEFAULT, Config, Json, Root


def sql(
    query: Annotated[str, typer.Argument(help="One SQL statement, in the dialect of DuckDB.")],
    config: Config = DEFAULT,
    root: Root = None,
    as_json: Json = False,
) -> None:
    """Query the mirrored tables by name. Needs no JVM.

    \b
    mirrorlake sql "select count(*) from public.orders"
    mirrorlake sql --json "select status, sum(total) from public.orders group by 1"
    """
    from mirrorlake.cli.options import project
    from mirrorlake.cli.output import print_json, print_table
    from mirrorlake.delta import sql as delta
    from mirrorlake.errors import UsageError

    found = project(config, root)
    if found.tables is not None:
        raise UsageError(
            "this command cannot read tables on an object store",
            where=found.tables.url,
            hint="Use an engine that reads Delta tables there, such as Spark, or DuckDB with the "
            "extensions delta and httpfs.",
        )
    result = delta.run(found.root, query)
    if result is None:
        return
    names = result.columns
    rows = result.fetchall()
    if as_json:
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    else:
        print_table(names, rows)
