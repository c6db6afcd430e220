"""`mirrorlake profiles`"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

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


class ProfileAction(StrEnum):
    """What to do with a connection profile."""

    LIST = "list"
    SHOW = "show"
    CREATE = "create"
    UPDATE = "update"
    DISCOVER = "discover"
    DELETE = "delete"


_CREATE_OR_UPDATE = (ProfileAction.CREATE, ProfileAction.UPDATE)
_BELONGS = {
    "NAME": tuple(one for one in ProfileAction if one is not ProfileAction.LIST),
    "--file": _CREATE_OR_UPDATE,
    "--mask": (ProfileAction.UPDATE,),
    "--validate-only": _CREATE_OR_UPDATE,
    "--force": _CREATE_OR_UPDATE,
}
"""The actions to which each option belongs."""


def profiles(
    action: Annotated[ProfileAction, typer.Argument(help="What to do.")] = ProfileAction.LIST,
    name: Annotated[str | None, typer.Argument(help="The connection profile.")] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            metavar="FILE",
            help="JSON of the profile; for an update, of the changed fields.",
        ),
    ] = None,
    mask: Mask = "",
    validate_only: ValidateOnly = False,
    force: Force = False,
    folder: ServiceFolder = DEFAULT_FOLDER,
    location: Location = HOME,
    as_json: Json = False,
) -> None:
    """List, show, create, update, discover or delete connection profiles of a running service.

    \b
    mirrorlake profiles
    mirrorlake profiles create shop-db --file shop-db.json
    mirrorlake profiles discover shop-db
    """
    from mirrorlake.cli.output import print_json, print_table, say
    from mirrorlake.cli.service import (
        ServiceClient,
        changed,
        check_options,
        content_of,
        flags,
        identifier_of,
        last,
        show_validations,
    )

    given: dict[str, object] = {"NAME": name, "--file": file, "--mask": mask}
    given |= {"--validate-only": validate_only, "--force": force}
    check_options(action, given, _BELONGS)
    service, kind = ServiceClient(folder, location), "connectionProfiles"
    if action is ProfileAction.LIST:
        found = service.every(kind, kind)
        if as_json:
            print_json(found)
            return
        rows = [
            (last(profile["name"]), next((k for k in profile if k.endswith("Profile")), ""))
            for profile in found
        ]
        print_table(("profile", "kind"), rows)
        return
    path = f"{kind}/{identifier_of(name)}"
    if action is ProfileAction.SHOW:
        print_json(service.call("GET", path))
        return
    if action is ProfileAction.DISCOVER:
        request = {"connectionProfileName": f"{location}/{path}", "fullHierarchy": True}
        print_json(service.call("POST", f"{kind}:discover", request))
        return
    asked = flags(validate_only=validate_only, force=force)
    if action is ProfileAction.CREATE:
        query = {"connectionProfileId": last(path), **asked}
        operation = service.call("POST", kind, content_of(file), **query)
    elif action is ProfileAction.UPDATE:
        operation = changed(service, path, file, mask, asked)
    else:
        operation = service.call("DELETE", path)
    done = service.done(operation)
    if as_json:
        print_json(done)
    elif validate_only:
        show_validations(done)
    else:
        say(f"{name}: {action}d")
