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
    while capture runs. What others have created under the same name is kept. Once the slot is gone,
    publications that the source says were made for this folder are dropped even if the folder is
    lost.

    \b
    mirrorlake detach
    """
    from mirrorlake.app.mirror import Mirror
    from mirrorlake.cli import crash
    from mirrorlake.cli.options import project
    from mirrorlake.cli.output import say

    mirror = Mirror(project(config), reached=crash.reached)
    made = mirror.made() or mirror.left()
    if not made:
        say(
            "This mirror has created nothing in the source that is known here; `mirrorlake check` "
            "says whether its slot is there."
        )
        return
    say("Created for this mirror in the source: " + ", ".join(made))
    if not yes:
        typer.confirm("Drop them?", abort=True, err=True)
    removed = mirror.detach()
    for name in removed:
        say(f"Dropped {name}.")
    for name in made:
        if name not in removed:
            say(f"Not dropped: {name}, which is gone, or is not the one that was created.")
