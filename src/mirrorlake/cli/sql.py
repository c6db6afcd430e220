"""`mirrorlake sql`"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, count
from typing import TYPE_CHECKING, Annotated

import typer

from mirrorlake.cli.options import DEFAULT, Config, Json, NoVerify, Root

if TYPE_CHECKING:
    from mirrorlake.feed.reader import Feed


def sql(
    query: Annotated[str, typer.Argument(help="One SQL statement, in the dialect of DuckDB.")],
    config: Config = DEFAULT,
    root: Root = None,
    as_cut: Annotated[
        bool, typer.Option("--cut", help="Read all tables as of one position of the source.")
    ] = False,
    unverified: NoVerify = False,
    as_json: Json = False,
) -> None:
    """Query the mirrored tables by name, and their change feeds. Needs no JVM.

    First, the page checksums of the columns that the query uses are verified in all files of the
    tables that it names.

    feed('schema.table', start, end) returns the rows of a change feed. A bound is a version, a
    time, 'beginning', 'position:...' or 'source:...' and a time of the source; both are included.
    Versions that are missing or that the table does not have yet are named on standard error.

    \b
    mirrorlake sql "show tables"
    mirrorlake sql "select count(*) from public.orders"
    mirrorlake sql "select * from feed('public.orders', 10, 20)"
    mirrorlake sql --json "select status, sum(total) from public.orders group by 1"
    """
    from mirrorlake.cli.options import folder_of_tables, project
    from mirrorlake.cli.output import print_json, print_table
    from mirrorlake.delta.sql import fetched
    from mirrorlake.feed import sql as feeds

    found = project(config, root)
    root_folder = folder_of_tables(
        found,
        "Use an engine that reads Delta tables there, such as Spark, or DuckDB with the "
        "extensions delta and httpfs.",
    )
    versions = None
    if as_cut:
        from mirrorlake.app.changes import cut

        at = cut.find(found).versions
        versions = {root_folder / path: version for path, version in at.items()}
    result = feeds.run(root_folder, query, versions, _tell, verify=not unverified)
    if result is None:
        return
    rows = fetched(result)
    if as_json:
        from mirrorlake.feed.writers import plain

        names = _apart(result.columns)
        print_json([dict(zip(names, map(plain, row), strict=True)) for row in rows])
    else:
        print_table(result.columns, rows)


def _apart(names: Sequence[str]) -> list[str]:
    """Different names for the members of an object: of columns of one name, all but the first get a
    number, as DuckDB gives it to columns of a table."""
    found: list[str] = []
    for name in names:
        numbered = (f"{name}_{number}" for number in count(1))
        found.append(next(n for n in chain([name], numbered) if n not in found))
    return found


def _tell(table: str, found: Feed) -> None:
    """Say what a feed does not have of the range that was asked for."""
    from mirrorlake.cli.feed import say_range

    if found.gaps or found.is_clipped:
        say_range(found, f"{table}: ")
