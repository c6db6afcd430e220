"""`mirrorlake streams`"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirrorlake.cli.options import Json
from mirrorlake.cli.service import (
    DEFAULT_FOLDER,
    Force,
    Location,
    Mask,
    ServiceFolder,
    ValidateOnly,
)
from mirrorlake.control.names import HOME

if TYPE_CHECKING:
    from mirrorlake.cli.service import ServiceClient


class StreamAction(StrEnum):
    """What to do with a stream."""

    LIST = "list"
    SHOW = "show"
    CREATE = "create"
    UPDATE = "update"
    START = "start"
    PAUSE = "pause"
    RUN = "run"
    DELETE = "delete"
    ACTIVITY = "activity"


_CREATE_OR_UPDATE = (StreamAction.CREATE, StreamAction.UPDATE)
_BELONGS = {
    "NAME": tuple(one for one in StreamAction if one is not StreamAction.LIST),
    "--file": _CREATE_OR_UPDATE,
    "--mask": (StreamAction.UPDATE,),
    "--validate-only": (*_CREATE_OR_UPDATE, StreamAction.START),
    "--force": (*_CREATE_OR_UPDATE, StreamAction.START, StreamAction.RUN),
}
"""The actions to which each option belongs."""
_STATES = {StreamAction.START: "RUNNING", StreamAction.PAUSE: "PAUSED"}


def streams(
    action: Annotated[StreamAction, typer.Argument(help="What to do.")] = StreamAction.LIST,
    name: Annotated[str | None, typer.Argument(help="The stream.")] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            metavar="FILE",
            help="JSON of the stream; for an update, of the changed fields.",
        ),
    ] = None,
    mask: Mask = "",
    validate_only: ValidateOnly = False,
    force: Force = False,
    folder: ServiceFolder = DEFAULT_FOLDER,
    location: Location = HOME,
    as_json: Json = False,
) -> None:
    """List, show, create, update, start, pause, run (recover) or delete streams of a running
    service, or show the activity of a stream.

    \b
    mirrorlake streams
    mirrorlake streams create orders --file orders.json
    mirrorlake streams start orders
    mirrorlake streams activity orders
    """
    from mirrorlake.cli.output import print_json, say
    from mirrorlake.cli.service import (
        ServiceClient,
        check_options,
        flags,
        identifier_of,
        show_validations,
    )

    given: dict[str, object] = {"NAME": name, "--file": file, "--mask": mask}
    given |= {"--validate-only": validate_only, "--force": force}
    check_options(action, given, _BELONGS)
    service = ServiceClient(folder, location)
    if action is StreamAction.LIST:
        _show(service, action, "streams", as_json=as_json)
        return
    path = f"streams/{identifier_of(name)}"
    if action in (StreamAction.SHOW, StreamAction.ACTIVITY):
        _show(service, action, path, as_json=as_json)
        return
    asked = flags(validate_only=validate_only, force=force)
    done = service.done(_start_operation(service, action, path, file, mask, asked))
    left = done["metadata"].get("statusMessage", "")
    if as_json:
        print_json(done)
    elif validate_only:
        show_validations(done)
    else:
        say(left or f"{name}: {done['response'].get('state', 'deleted')}")


def _show(service: ServiceClient, action: StreamAction, path: str, *, as_json: bool) -> None:
    from mirrorlake.cli.output import print_json, print_table
    from mirrorlake.cli.service import last

    if action is StreamAction.SHOW:
        print_json(service.call("GET", path))
        return
    if action is StreamAction.LIST:
        found = service.every(path, "streams")
        header = ("stream", "state", "error")
        rows = [(last(stream["name"]), stream["state"], _errors(stream)) for stream in found]
    else:
        found = service.call("GET", f"{path}:activity")["entries"]
        header = ("time", "event", "message")
        rows = [(entry["time"], entry["eventCode"], entry["eventMessage"]) for entry in found]
    if as_json:
        print_json(found)
    else:
        print_table(header, rows)


def _errors(stream: dict[str, Any]) -> str:
    return " ".join(error["message"] for error in stream.get("errors", ()))


def _start_operation(
    service: ServiceClient,
    action: StreamAction,
    path: str,
    file: Path | None,
    mask: str,
    asked: Mapping[str, str],
) -> dict[str, Any]:
    """The operation that the service started for an action."""
    from mirrorlake.cli.service import changed, content_of, last

    match action:
        case StreamAction.CREATE:
            return service.call("POST", "streams", content_of(file), streamId=last(path), **asked)
        case StreamAction.UPDATE:
            return changed(service, path, file, mask, asked)
        case StreamAction.RUN:
            return service.call("POST", f"{path}:run", {"force": asked["force"] == "true"})
        case StreamAction.DELETE:
            return service.call("DELETE", path)
        case _:
            wanted = {"state": _STATES[action]}
            return service.call("PATCH", path, wanted, updateMask="state", **asked)
