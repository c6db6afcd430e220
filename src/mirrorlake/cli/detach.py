"""`mirrorlake detach`"""

from __future__ import annotations

from typing import Annotated

import typer

from mirrorlake.cli.options import DEFAULT, Config


def detach(
    config: Config = DEFAULT,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Drop what was made in the source: the replication slot and the publications.

    A slot that nobody reads holds back WAL until the disk is full. Afterwards the mirror can only
    be loaded anew.

    \b
    mirrorlake detach
    """
    from mirrorlake.app.mirror import Mirror
    from mirrorlake.cli.options import project
    from mirrorlake.cli.output import say

    mirror = Mirror(project(config))
    made = mirror.made()
    if not made:
        say("This mirror has made nothing in the source.")
        return
    say("Made for this mirror in the source: " + ", ".join(made))
    if not yes:
        typer.confirm("Drop them?", abort=True, err=True)
    for name in mirror.detach():
        say(f"Dropped {name}.")
