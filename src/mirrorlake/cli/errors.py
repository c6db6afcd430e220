"""`mirrorlake errors`"""

from __future__ import annotations

from typing import Annotated

import typer

from mirrorlake.cli.options import Json
from mirrorlake.cli.service import DEFAULT_FOLDER, Location, ServiceFolder
from mirrorlake.control.names import HOME


def errors(
    stream: Annotated[str, typer.Argument(help="The stream.")],
    folder: ServiceFolder = DEFAULT_FOLDER,
    location: Location = HOME,
    as_json: Json = False,
) -> None:
    """Show the errors of a stream of a running service, and of its objects. Ends with 1 if there
    are any.

    \b
    mirrorlake errors orders
    """
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
