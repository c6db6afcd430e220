"""`mirrorlake wait`"""

from __future__ import annotations

from typing import Annotated

import typer

from mirrorlake.cli.options import DEFAULT, Config, Root


def wait(
    position: Annotated[str, typer.Argument(help="A position of the source.")],
    table: Annotated[
        list[str] | None, typer.Option("--table", metavar="NAME", help="Only these tables.")
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=0, help="How long to wait.")
    ] = 60.0,
    config: Config = DEFAULT,
    root: Root = None,
) -> None:
    """Wait until the tables show a position of the source. Needs no JVM.

    Ends with 1 if they do not show it in time or the command is stopped, and names the tables that
    are behind.

    \b
    mirrorlake wait "$(psql -Atc 'select pg_current_wal_lsn()')" --timeout 30
    """
    from mirrorlake.app.mirror import Mirror
    from mirrorlake.cli.options import project
    from mirrorlake.cli.stop import Stop

    mirror = Mirror(project(config, root), stop=Stop(exit_code=1).event)
    mirror.wait_until(position, tables=table or (), timeout=timeout)
