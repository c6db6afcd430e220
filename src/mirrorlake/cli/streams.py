"""`mirrorlake streams`"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mirrorlake.cli.options import Json
from mirrorlake.cli.service import DEFAULT_FOLDER, HOME, Location, ServiceFolder


class StreamAction(StrEnum):
    """What to do with a stream."""

    LIST = "list"
    SHOW = "show"
    CREATE = "create"
    START = "start"
    PAUSE = "pause"
    RUN = "run"
    DELETE = "delete"


_STATES = {StreamAction.START: "RUNNING", StreamAction.PAUSE: "PAUSED"}


def streams(
    action: Annotated[StreamAction, typer.Argument(help="What to do.")] = StreamAction.LIST,
    name: Annotated[str | None, typer.Argument(help="The stream.")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="JSON of the stream, to create.")
    ] = None,
    folder: ServiceFolder = DEFAULT_FOLDER,
    location: Location = HOME,
    as_json: Json = False,
) -> None:
    """List, show, create, start, pause, run (recover) or delete streams of a running service.

    \b
    mirrorlake streams
    mirrorlake streams create orders --file orders.json
    mirrorlake streams start orders
    """
    from mirrorlake.cli.output import print_json, print_table, say
    from mirrorlake.cli.service import ServiceClient, content_of, identifier_of, last

    service = ServiceClient(folder, location)
    if action is StreamAction.LIST:
        found = service.every("streams", "streams")
        if as_json:
            print_json(found)
            return
        rows = [
            (last(one["name"]), one["state"], " ".join(e["message"] for e in one.get("errors", [])))
            for one in found
        ]
        print_table(("stream", "state", "error"), rows)
        return
    path = f"streams/{identifier_of(name)}"
    match action:
        case StreamAction.SHOW:
            print_json(service.call("GET", path))
            return
        case StreamAction.CREATE:
            sent = content_of(file)
            operation = service.call("POST", "streams", sent, streamId=identifier_of(name))
        case StreamAction.RUN:
            operation = service.call("POST", f"{path}:run", {})
        case StreamAction.DELETE:
            operation = service.call("DELETE", path)
        case _:
            body = {"state": _STATES[action]}
            operation = service.call("PATCH", path, body, updateMask="state")
    done = service.done(operation)
    if as_json:
        print_json(done)
        return
    left = done["metadata"].get("statusMessage", "")
    say(left or f"{name}: {done['response'].get('state', 'deleted')}")
