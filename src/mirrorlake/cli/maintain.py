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
    """Compact tables and cluster them, write checkpoints, clean their logs and vacuum them now.

    `run` does the same by itself, except for clustering by key. Files that a subscription, a
    history or an archive needs are kept. Stop `run` and `apply` first.

    \b
    mirrorlake maintain --dry-run
    mirrorlake maintain shop.orders
    """
    from mirrorlake.app.mirror import Mirror
    from mirrorlake.cli.options import brief, project
    from mirrorlake.cli.output import print_json, print_table

    with Mirror(brief(project(config, root))) as mirror:
        steps = list(mirror.maintain(tables or (), dry_run=dry_run))
    if as_json:
        print_json({"dry_run": dry_run, "steps": [step.facts() for step in steps]})
    else:
        rows = [
            [step.table, step.act, step.detail, step.version, ", ".join(step.held_by)]
            for step in steps
        ]
        print_table(["table", "act", "what", "version", "held by"], rows)
    if any(step.error for step in steps):
        raise typer.Exit(1)
