"""`mirrorlake profiles`"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mirrorlake.cli.options import Json
from mirrorlake.cli.service import DEFAULT_FOLDER, HOME, Location, ServiceFolder


class ProfileAction(StrEnum):
    """What to do with a connection profile."""

    LIST = "list"
    SHOW = "show"
    CREATE = "create"
    DISCOVER = "discover"
    DELETE = "delete"


def profiles(
    action: Annotated[ProfileAction, typer.Argument(help="What to do.")] = ProfileAction.LIST,
    name: Annotated[str | None, typer.Argument(help="The connection profile.")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="JSON of the profile, to create.")
    ] = None,
    folder: ServiceFolder = DEFAULT_FOLDER,
    location: Location = HOME,
    as_json: Json = False,
) -> None:
    """List, show, create, discover or delete connection profiles of a running service.

    \b
    mirrorlake profiles
    mirrorlake profiles create shop-db --file shop-db.json
    mirrorlake profiles discover shop-db
    """
    from mirrorlake.cli.output import print_json, print_table, say
    from mirrorlake.cli.service import ServiceClient, content_of, identifier_of, last

    service, kind = ServiceClient(folder, location), "connectionProfiles"
    if action is ProfileAction.LIST:
        found = service.every(kind, kind)
        if as_json:
            print_json(found)
            return
        rows = [
            (last(one["name"]), next((k for k in one if k.endswith("Profile")), ""))
            for one in found
        ]
        print_table(("profile", "kind"), rows)
        return
    path = f"{kind}/{identifier_of(name)}"
    match action:
        case ProfileAction.SHOW:
            print_json(service.call("GET", path))
        case ProfileAction.DISCOVER:
            asked = {"connectionProfileName": f"{location}/{path}", "fullHierarchy": True}
            print_json(service.call("POST", f"{kind}:discover", asked))
        case ProfileAction.CREATE:
            made = identifier_of(name)
            done = service.call("POST", kind, content_of(file), connectionProfileId=made)
            service.done(done)
            say(f"{name}: created")
        case ProfileAction.DELETE:
            service.done(service.call("DELETE", path))
            say(f"{name}: deleted")
