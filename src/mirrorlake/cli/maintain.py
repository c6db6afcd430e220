"""`mirrorlake maintain`"""

from __future__ import annotations

from typing import Annotated

import typer

from mirrorlake.cli.options import DEFAULT, Config, Json, Root


def maintain(
    tables: Annotated[list[str] | None, typer.Argument(help="The tables, as schema.name.")] = None,
    config: Config = DEFAULT,
    root: Root = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be done. Needs no JVM.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Compact tables, write checkpoints, clean their logs and vacuum them now.

    `run` does the same by itself. Files that a subscription, a history or an archive needs stay.
    Stop `run` and `apply` first.

    \b
    mirrorlake maintain --dry-run
    mirrorlake maintain shop.orders
    """
    from mirrorlake.app.mirror import Mirror
    from mirrorlake.cli.options import project
    from mirrorlake.cli.output import print_json, print_table

    with Mirror(project(config, root)) as mirror:
        steps = list(mirror.maintain(tables or (), dry_run=dry_run))
    if as_json:
        print_json({"dry_run": dry_run, "steps": [one.facts() for one in steps]})
    else:
        rows = [
            [one.table, one.act, one.detail, one.version, ", ".join(one.held_by)] for one in steps
        ]
        print_table(["table", "act", "what", "version", "held by"], rows)
    if any(one.error for one in steps):
        raise typer.Exit(1)
