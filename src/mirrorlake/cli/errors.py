"""`mirrorlake errors`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirrorlake.cli.dead_letters import dead_events, print_events, without_file
from mirrorlake.cli.options import DEFAULT, Config, Json, project
from mirrorlake.cli.service import DEFAULT_FOLDER, Location, ServiceFolder
from mirrorlake.control.names import HOME

if TYPE_CHECKING:
    from mirrorlake.config import Project


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
    tables that have stopped, and as `mirrorlake dead-letters` the events that could not be applied
    and the deletions that wait. Ends with 1 if there are any.

    \b
    mirrorlake errors orders
    mirrorlake errors             of a project with `source: {type: events}`
    """
    from mirrorlake.errors import UsageError

    elsewhere = (folder, location) != (DEFAULT_FOLDER, HOME)
    if elsewhere if stream is None else config != DEFAULT:
        raise UsageError(
            "a stream is named by --folder and --location, and a project by --config",
            hint="Name a stream without --config, or a project without a stream.",
        )
    if stream is None:
        settings = project(config)
        if settings.events is None:
            raise typer.BadParameter("Name a stream: only a project of event files needs none.")
        print_events([*_stopped(settings), *dead_events(settings)], as_json=as_json)
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


def _stopped(settings: Project) -> list[dict[str, Any]]:
    """The tables whose events are not applied until their error is mended, as `status` tells."""
    from mirrorlake.app.events.status import stops
    from mirrorlake.app.stores import store_of

    return [
        {**without_file(name, events=None), "reason": error["message"]}
        for name, error in sorted(stops(store_of(settings)).items())
    ]
