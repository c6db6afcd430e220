"""`mirrorlake cut`"""

from __future__ import annotations

from typing import Annotated

import typer

from mirrorlake.cli.options import DEFAULT, Config, Json, Root


def cut(
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="POSITION", help="The newest one up to this position."),
    ] = None,
    config: Config = DEFAULT,
    root: Root = None,
    as_json: Json = False,
) -> None:
    """Show the versions of all tables at one position of the source. Needs no JVM.

    Each table shows all transactions up to the position at its version, and nothing after it.
    `mirrorlake sql --cut` queries them together.

    \b
    mirrorlake cut
    mirrorlake cut --at 0/4BFD4D8 --json
    """
    from mirrorlake.app.mirror import Mirror
    from mirrorlake.cli.options import project
    from mirrorlake.cli.output import print_json, print_table, show

    found = Mirror(project(config, root)).cut(at)
    if as_json:
        print_json(found.facts())
        return
    time = f", committed at {found.commit_time}" if found.commit_time else ""
    show(f"cut {found.number}: position {found.position}{time}")
    print_table(["table", "version"], [[name, one.version] for name, one in found.tables.items()])
    for name, reason in found.excluded.items():
        show(f"{name}: not part of the cut: {reason}")
