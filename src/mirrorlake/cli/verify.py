"""`mirrorlake verify`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirrorlake.cli.options import DEFAULT, Config, Json

if TYPE_CHECKING:
    from mirrorlake.app.verification.verify import Verification, VerifiedTable


def verify(
    tables: Annotated[
        list[str] | None, typer.Argument(help="The tables, as schema.name. Default: all.")
    ] = None,
    config: Config = DEFAULT,
    where_key: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--where-key",
            metavar="FROM TO",
            help="Of one table only rows whose first key column is from FROM to TO, both included.",
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            min=0,
            help="How long the mirror may take to show the position of the source, also if it is "
            "not running yet. Default: 60 seconds while it runs.",
        ),
    ] = None,
    examples: Annotated[
        int, typer.Option("--examples", metavar="N", min=0, help="Keys to show of each kind.")
    ] = 10,
    max_rows_per_second: Annotated[
        int | None,
        typer.Option("--max-rows-per-second", metavar="N", min=1, help="Read no faster than this."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare tables with the source, row by row, at one position of its log. Needs no JVM.

    The mirror has to run meanwhile. Nothing is changed. Ends with 1 if rows differ, a table could
    not be compared, or it is stopped before the end.

    \b
    mirrorlake verify
    mirrorlake verify public.orders --where-key 1000 2000
    mirrorlake verify public.orders --examples 100 --json
    """
    from mirrorlake.app.mirror import Mirror
    from mirrorlake.cli.options import project
    from mirrorlake.cli.output import print_json
    from mirrorlake.cli.progress import bars
    from mirrorlake.cli.stop import Stop

    mirror = Mirror(project(config), stop=Stop(exit_code=1).event)
    with bars("rows") as progress:
        result = mirror.verify(
            tables or (),
            where_key=where_key,
            timeout=timeout,
            examples=examples,
            max_rows_per_second=max_rows_per_second,
            progress=progress,
        )
    if as_json:
        print_json(result.facts())
    else:
        _print(result)
    if not result.is_equal:
        raise typer.Exit(1)


def _print(result: Verification) -> None:
    from mirrorlake.cli.output import print_table, show

    show(f"position {result.position}, cut {result.cut}")
    header = ["table", "result", "source", "mirror", "missing", "extra", "different"]
    print_table(header, [_cells(table) for table in result.tables])
    if not result.tables:
        show("there are no tables to compare")
    for table in result.tables:
        if table.unverified:
            show(f"{table.table}: not verified: {table.unverified}")
        for kind, keys in table.found.examples.items():
            show(f"{table.table}: {kind}: {'; '.join(map(_key, keys))}")
        if table.found.columns:
            counts = ", ".join(f"{name} ({n})" for name, n in table.found.columns.items())
            show(f"{table.table}: columns that differ: {counts}")


def _cells(table: VerifiedTable) -> list[Any]:
    found = table.found
    result = "not verified" if table.unverified else "equal" if table.is_equal else "different"
    counts = [found.source, found.mirrored, found.missing, found.extra, found.different]
    return [table.table, result, *counts]


def _key(key: Any) -> str:
    from mirrorlake.errors import printable

    return printable(", ".join(f"{name}={value}" for name, value in key.items()))
