"""`mirrorlake reset`"""

from __future__ import annotations

from typing import Annotated

import typer

from mirrorlake.cli.options import DEFAULT, Config, Root


def reset(
    tables: Annotated[list[str] | None, typer.Argument(help="The tables, as schema.name.")] = None,
    every: Annotated[
        bool,
        typer.Option("--all", help="All tables, and the recorded position in the source's log."),
    ] = False,
    config: Config = DEFAULT,
    root: Root = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be done.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Rebuild tables: delete their landed files and load them again.

    The Delta table can be read until the new load replaces it. Stop capture and apply first.

    \b
    mirrorlake reset public.orders
    mirrorlake reset --all
    """
    from mirrorlake.app.events.reset import plan_event_reset
    from mirrorlake.app.reset import plan_reset
    from mirrorlake.cli import crash
    from mirrorlake.cli.options import project
    from mirrorlake.cli.output import say
    from mirrorlake.errors import UsageError

    if bool(tables) == every:
        raise UsageError(
            "neither tables nor --all was given, or both",
            hint="Name tables, or use --all. `mirrorlake status` lists the tables.",
        )
    settings = project(config, root)
    plan = plan_reset if settings.events is None else plan_event_reset
    planned = plan(settings, None if every else tables)
    for line in planned.sentences():
        say(line, "  ")
    if dry_run:
        return
    if not yes:
        typer.confirm("Continue?", abort=True, err=True)
    planned.execute(crash.reached)
    command = "capture" if settings.events is None else "apply"
    say(f"Done. The next `mirrorlake run` or `mirrorlake {command}` loads them.")
