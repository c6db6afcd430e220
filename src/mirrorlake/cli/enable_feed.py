"""`mirrorlake enable-feed`"""

from __future__ import annotations

from typing import Annotated

import typer

from mirrorlake.cli.options import DEFAULT, Config, Json, Root


def enable_feed(
    table: Annotated[str, typer.Argument(help="The table, as schema.name.")],
    config: Config = DEFAULT,
    root: Root = None,
    as_json: Json = False,
) -> None:
    """Enable the change feed of a table that was mirrored without it.

    Prints the first version that the feed covers. Stop `run` and `apply` first.

    \b
    mirrorlake enable-feed shop.orders
    """
    from mirrorlake.app.mirror import Mirror
    from mirrorlake.cli.options import project
    from mirrorlake.cli.output import print_json

    with Mirror(project(config, root)) as mirror:
        found = mirror.enable_feed(table)
    if as_json:
        print_json(found.facts())
        return
    done = "was on already. It" if found.was_on else "is on. It"
    typer.echo(f"{table}: the change feed {done} covers version {found.since} and later versions.")
