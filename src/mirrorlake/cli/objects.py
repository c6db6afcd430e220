"""`mirrorlake objects`"""

from __future__ import annotations

from typing import Annotated

import typer

from mirrorlake.cli.options import Json
from mirrorlake.cli.service import DEFAULT_FOLDER, HOME, Location, ServiceFolder


def objects(
    stream: Annotated[str, typer.Argument(help="The stream.")],
    folder: ServiceFolder = DEFAULT_FOLDER,
    location: Location = HOME,
    as_json: Json = False,
) -> None:
    """List the objects of a stream of a running service, with the load of their rows.

    \b
    mirrorlake objects orders
    """
    from mirrorlake.cli.output import print_json, print_table
    from mirrorlake.cli.service import ServiceClient

    found = ServiceClient(folder, location).every(f"streams/{stream}/objects", "streamObjects")
    if as_json:
        print_json(found)
        return
    rows = [
        (
            one["displayName"],
            one["backfillJob"]["state"],
            " ".join(error["message"] for error in one["errors"]),
        )
        for one in found
    ]
    print_table(("object", "load", "error"), rows)
