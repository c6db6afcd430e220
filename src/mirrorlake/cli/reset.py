"""`mirrorlake reset`"""

from __future__ import annotations

from typing import Annotated

import typer

from mirrorlake.cli.options import DEFAULT, Config, Root


def reset(
    tables: Annotated[list[str] | None, typer.Argument(help="Tables, as schema.name.")] = None,
    every: Annotated[
        bool, typer.Option("--all", help="All tables, and the place in the log.")
    ] = False,
    config: Config = DEFAULT,
    root: Root = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would happen.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Start tables anew: their landed files are removed and they are loaded again.

    The Delta table stays readable until the new load takes its place. Stop capture and apply first.

    \b
    mirrorlake reset public.orders
    mirrorlake reset --all
    """
    from mirrorlake.app.reset import plan_reset
    from mirrorlake.cli.options import project
    from mirrorlake.cli.output import say
    from mirrorlake.errors import UsageError

    if bool(tables) == every:
        raise UsageError("name tables, or --all", hint="`mirrorlake status` lists the tables.")
    planned = plan_reset(project(config, root), None if every else tables)
    for line in planned.sentences():
        say(line)
    if dry_run:
        return
    if not yes:
        typer.confirm("Go on?", abort=True, err=True)
    planned.execute()
    say("Done. The next `mirrorlake run` or `mirrorlake capture` loads them.")
