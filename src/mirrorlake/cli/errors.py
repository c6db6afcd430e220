"""`mirrorlake errors`"""

from __future__ import annotations

from typing import Annotated

import typer

from mirrorlake.cli.dead_letters import dead_letters
from mirrorlake.cli.options import DEFAULT, Config, Json, project
from mirrorlake.cli.service import DEFAULT_FOLDER, Location, ServiceFolder
from mirrorlake.control.names import HOME


def errors(
    stream: Annotated[
        str | None,
        typer.Argument(help="The stream; without it, the project here, of event files."),
    ] = None,
    folder: ServiceFolder = DEFAULT_FOLDER,
    location: Location = HOME,
    config: Config = DEFAULT,
    as_json: Json = False,
) -> None:
    """Show the errors of a stream of a running service, and of its objects; without a stream, the
    events that could not be applied, and the deletions that wait, as `mirrorlake dead-letters`.
    Ends with 1 if there are any.

    \b
    mirrorlake errors orders
    mirrorlake errors             of a project with `source: {type: events}`
    """
    if stream is None:
        if project(config).events is None:
            raise typer.BadParameter("Name a stream: only a project of event files needs none.")
        dead_letters(config=config, as_json=as_json)
        return
    from mirrorlake.cli.output import print_json, print_table
    from mirrorlake.cli.service import ServiceClient

    found = ServiceClient(folder, location).call("POST", f"streams/{stream}:fetchErrors")["errors"]
    if as_json:
        print_json(found)
    else:
        rows = [(error["errorTime"], error["reason"], error["message"]) for error in found]
        print_table(("time", "reason", "message"), rows)
    if found:
        raise typer.Exit(1)
