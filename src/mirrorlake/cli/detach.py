"""`mirrorlake detach`"""

from __future__ import annotations

from typing import Annotated

import typer

from mirrorlake.cli.options import DEFAULT, Config


def detach(
    config: Config = DEFAULT,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Drop what the mirror created in the source: the replication slot and the publications.

    A slot that nobody reads retains WAL until the disk is full. After this command the mirror can
    continue only after `mirrorlake repair`, which compares all tables with the source. Refused
    while capture runs.

    \b
    mirrorlake detach
    """
    from mirrorlake.app.mirror import Mirror
    from mirrorlake.cli import crash
    from mirrorlake.cli.options import project
    from mirrorlake.cli.output import say

    mirror = Mirror(project(config), reached=crash.reached)
    made = mirror.made()
    if not made:
        say("This mirror has created nothing in the source.")
        return
    say("Created for this mirror in the source: " + ", ".join(made))
    if not yes:
        typer.confirm("Drop them?", abort=True, err=True)
    for name in mirror.detach():
        say(f"Dropped {name}.")
