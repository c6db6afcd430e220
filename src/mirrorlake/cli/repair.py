"""`mirrorlake repair`"""

from __future__ import annotations

from typing import Annotated

import typer

from mirrorlake.cli.options import DEFAULT, Config, Json


def repair(
    tables: Annotated[
        list[str] | None,
        typer.Argument(help="Stopped tables, as schema.name. Default: the whole mirror."),
    ] = None,
    config: Config = DEFAULT,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be done.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: Json = False,
) -> None:
    """Continue after changes were lost by comparing tables with the source, without a new load.

    After a replication slot was lost, invalidated or moved, a new one is created, and the next run
    reads all tables again while changes flow. Rows that differ become changes in the feed. With
    table names, only those stopped tables are compared. Stop capture first.

    Of tables of event files, what is remembered of their keys is computed anew where it is damaged,
    or of the named tables. No row changes. Stop apply first.

    \b
    mirrorlake repair
    mirrorlake repair public.orders
    """
    from mirrorlake.app.events.repair import EventRepair, plan_event_repair
    from mirrorlake.app.mirror import Mirror
    from mirrorlake.cli import crash
    from mirrorlake.cli.options import project
    from mirrorlake.cli.output import print_json, say

    settings, named = project(config), tables or []
    mirror = Mirror(settings, reached=crash.reached)
    planned = (
        mirror.repair(named, dry_run=True)
        if settings.events is None
        else plan_event_repair(settings, named)
    )
    if as_json:
        print_json(planned.facts())
    for line in planned.sentences():
        say(line)
    if dry_run or not planned.is_needed:
        return
    if not yes:
        typer.confirm("Continue?", abort=True, err=True)
    if isinstance(planned, EventRepair):
        planned.execute(crash.reached)
        say("Done. The next `mirrorlake run` or `mirrorlake apply` continues.")
    else:
        mirror.repair(named)
        say("Done. The next `mirrorlake run` or `mirrorlake capture` compares the tables.")
