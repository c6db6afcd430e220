"""`mirrorlake objects`"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from mirrorlake.cli.options import BytesPerSecond, Json
from mirrorlake.cli.service import DEFAULT_FOLDER, Location, ServiceFolder
from mirrorlake.control.names import HOME


class ObjectAction(StrEnum):
    """What to do with the objects of a stream."""

    LIST = "list"
    BACKFILL = "backfill"
    STOP = "stop"


def objects(
    stream: Annotated[str, typer.Argument(help="The stream.")],
    action: Annotated[ObjectAction, typer.Argument(help="What to do.")] = ObjectAction.LIST,
    name: Annotated[
        str | None, typer.Argument(help="The object, as schema.name; to backfill or stop.")
    ] = None,
    where_key: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--where-key",
            metavar="FROM TO",
            help="Backfill only rows whose first key column is from FROM to TO, both included.",
        ),
    ] = None,
    max_rows_per_second: Annotated[
        int | None,
        typer.Option("--max-rows-per-second", metavar="N", help="Backfill no faster than this."),
    ] = None,
    max_bytes_per_second: BytesPerSecond = None,
    folder: ServiceFolder = DEFAULT_FOLDER,
    location: Location = HOME,
    as_json: Json = False,
) -> None:
    """List the objects of a stream of a running service with the state of their load, or start or
    stop a backfill.

    \b
    mirrorlake objects orders
    mirrorlake objects orders backfill shop.orders
    mirrorlake objects orders backfill shop.orders --where-key 1000 2000
    mirrorlake objects orders stop shop.orders
    """
    from mirrorlake.cli.output import print_json, print_table
    from mirrorlake.cli.service import ServiceClient, identifier_of
    from mirrorlake.errors import UsageError

    limits = {
        "maxRowsPerSecond": max_rows_per_second,
        "maxBytesPerSecond": max_bytes_per_second,
    }
    body: dict[str, Any] = {name: value for name, value in limits.items() if value is not None}
    if where_key:
        body["keyRange"] = {"first": where_key[0], "last": where_key[1]}
    if action is not ObjectAction.BACKFILL and body:
        raise UsageError(
            "--where-key and the limits per second belong to a backfill",
            hint=f"Write `mirrorlake objects {stream} backfill OBJECT`.",
        )
    if action is ObjectAction.LIST and name:
        raise UsageError(
            f"list names all objects, and not {name} alone",
            hint=f"Write `mirrorlake objects {stream}`.",
        )
    service = ServiceClient(folder, location)
    found = service.every(f"streams/{stream}/objects", "streamObjects")
    if action is not ObjectAction.LIST:
        chosen = [object_ for object_ in found if object_["displayName"] == identifier_of(name)]
        if not chosen:
            raise UsageError(
                f"the stream has no object {name}", hint=f"See `mirrorlake objects {stream}`."
            )
        verb = "startBackfillJob" if action is ObjectAction.BACKFILL else "stopBackfillJob"
        path = f"streams/{stream}/objects/{chosen[0]['name'].rpartition('/')[2]}:{verb}"
        found = [service.call("POST", path, body)["object"]]
    if as_json:
        print_json(found)
        return
    rows = [
        (object_["displayName"], _load(object_["backfillJob"]), _errors(object_))
        for object_ in found
    ]
    print_table(("object", "load", "error"), rows)


def _load(job: dict[str, Any]) -> str:
    """The state of the load or backfill of an object, with its rows."""
    if job["state"] == "NOT_STARTED":
        return "-"  # (ST-292)
    progress = job.get("progress")
    if progress is None:
        return str(job["state"])
    expected = progress.get("expectedRows")
    of = "" if expected is None else f" of about {expected:,}"
    return f"{job['state']}, {progress['rows']:,}{of} rows"


def _errors(found: dict[str, Any]) -> str:
    messages = [error["message"] for error in (*found["errors"], *found["backfillJob"]["errors"])]
    return " ".join(dict.fromkeys(messages))
