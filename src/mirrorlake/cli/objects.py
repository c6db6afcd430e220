"""`mirrorlake objects`"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from mirrorlake.cli.options import Json
from mirrorlake.cli.service import DEFAULT_FOLDER, HOME, Location, ServiceFolder


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
    folder: ServiceFolder = DEFAULT_FOLDER,
    location: Location = HOME,
    as_json: Json = False,
) -> None:
    """List the objects of a stream of a running service, with the load of their rows; start or stop
    the backfill of one.

    \b
    mirrorlake objects orders
    mirrorlake objects orders backfill shop.orders
    mirrorlake objects orders backfill shop.orders --where-key 1000 2000
    mirrorlake objects orders stop shop.orders
    """
    from mirrorlake.cli.output import print_json, print_table
    from mirrorlake.cli.service import ServiceClient, identifier_of
    from mirrorlake.errors import UsageError

    if action is not ObjectAction.BACKFILL and (where_key or max_rows_per_second is not None):
        raise UsageError(
            "--where-key and --max-rows-per-second belong to a backfill",
            hint=f"Write `mirrorlake objects {stream} backfill OBJECT`.",
        )
    service = ServiceClient(folder, location)
    found = service.every(f"streams/{stream}/objects", "streamObjects")
    if action is not ObjectAction.LIST:
        chosen = [one for one in found if one["displayName"] == identifier_of(name)]
        if not chosen:
            raise UsageError(
                f"the stream has no object {name}", hint=f"See `mirrorlake objects {stream}`."
            )
        body: dict[str, Any] = {}
        if where_key:
            body["keyRange"] = {"first": where_key[0], "last": where_key[1]}
        if max_rows_per_second is not None:
            body["maxRowsPerSecond"] = max_rows_per_second
        verb = "startBackfillJob" if action is ObjectAction.BACKFILL else "stopBackfillJob"
        path = f"streams/{stream}/objects/{chosen[0]['name'].rpartition('/')[2]}:{verb}"
        found = [service.call("POST", path, body)["object"]]
    if as_json:
        print_json(found)
        return
    rows = [(one["displayName"], _load(one["backfillJob"]), _errors(one)) for one in found]
    print_table(("object", "load", "error"), rows)


def _load(job: dict[str, Any]) -> str:
    """How the load or the backfill of an object stands, with its rows."""
    progress = job.get("progress")
    if progress is None:
        return str(job["state"])
    expected = progress.get("expectedRows")
    of = "" if expected is None else f" of about {expected:,}"
    return f"{job['state']}, {progress['rows']:,}{of} rows"


def _errors(one: dict[str, Any]) -> str:
    messages = [error["message"] for error in (*one["errors"], *one["backfillJob"]["errors"])]
    return " ".join(dict.fromkeys(messages))
