"""A client for the running service of a folder, whose address and token are in the folder."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import typer

from mirrorlake.cli.serve import FOLDER
from mirrorlake.control.names import HOME
from mirrorlake.errors import InvalidRequest, OperatorError, Unavailable, UsageError

ServiceFolder = Annotated[
    Path, typer.Option("--folder", metavar="FOLDER", help="Folder of the running service.")
]
Location = Annotated[
    str, typer.Option("--location", metavar="NAME", help="Project and location of the names.")
]
Mask = Annotated[
    str,
    typer.Option(
        "--mask",
        metavar="FIELDS",
        help="What to update, such as displayName,labels; default: the fields of the file.",
    ),
]
ValidateOnly = Annotated[
    bool, typer.Option("--validate-only", help="Only validate: show what would be wrong.")
]
Force = Annotated[
    bool,
    typer.Option("--force", help="Do not validate: a stream starts even if it cannot run yet."),
]
DEFAULT_FOLDER = FOLDER
_SECONDS = 120


def _opener(certificate: str | None) -> urllib.request.OpenerDirector:
    """Without proxies: one of the environment would receive the token. certificate: of the service
    (PEM). It alone is trusted, by whatever name the service is reached. Raises OSError."""
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if certificate is not None:
        context = ssl.create_default_context(cadata=certificate)
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        handlers.append(urllib.request.HTTPSHandler(context=context))
    return urllib.request.build_opener(*handlers)


class ServiceClient:
    """Sends requests to the service of a folder. location: `projects/p/locations/l`."""

    def __init__(self, folder: Path, location: str = HOME) -> None:
        """Raises Unavailable if no service runs there."""
        self._location = location
        try:
            address = json.loads((folder / "serve.json").read_text("utf-8"))
            self._url, certificate = str(address["url"]), address.get("certificate")
            self._opener = _opener(str(certificate) if certificate else None)
            token = folder / "token"  # a service that requires no token may have none
            stored = token.read_text("utf-8").strip() if token.exists() else ""
            self._token = os.environ.get("MIRRORLAKE_TOKEN") or stored
        except (OSError, ValueError, KeyError, TypeError):
            raise Unavailable(
                "no service runs there",
                where=str(folder),
                hint="Start it with `mirrorlake serve`, or name its folder with --folder.",
            ) from None

    def call(self, method: str, path: str, body: Any = None, **query: str) -> dict[str, Any]:
        """The JSON response. path: below the location, for example `streams/orders`.

        Raises Unavailable, UsageError, OperatorError.
        """
        parameters = f"?{urlencode(query)}" if query else ""
        below = quote(f"{self._location}/{path}", safe="/:")
        address = f"{self._url}/v1/{below}{parameters}"
        request = urllib.request.Request(  # noqa: S310  (its address is that of our service)
            address,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self._token}"},
        )
        try:
            with self._opener.open(request, timeout=_SECONDS) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            raise _refused(error) from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise Unavailable(
                f"the service does not answer: {error}",
                where=self._url,
                hint="Look at its log; start it again with `mirrorlake serve`.",
            ) from None

    def every(self, path: str, key: str) -> list[dict[str, Any]]:
        """All entries of a list, read page by page."""
        found: list[dict[str, Any]] = []
        token = ""
        while True:
            page = self.call("GET", path, pageSize="1000", pageToken=token)
            found += page[key]
            token = page["nextPageToken"]
            if not token:
                return found

    def done(self, operation: dict[str, Any], pause: float = 0.2) -> dict[str, Any]:
        """Wait for the end of an operation. Raises OperatorError if it failed."""
        import time

        while not operation["done"]:
            time.sleep(pause)
            operation = self.call("GET", f"operations/{operation['name'].rpartition('/')[2]}")
        if "error" in operation:
            raise OperatorError(
                operation["error"]["message"].rstrip("."), where=operation["metadata"]["target"]
            )
        return operation


def check_options(
    action: str, given: Mapping[str, object], actions: Mapping[str, Collection[str]]
) -> None:
    """Refuse an option that the action would not heed. given: what was given for each option;
    actions: those to which each option belongs. Raises UsageError."""
    for option in (option for option, value in given.items() if value):
        if action not in actions[option]:
            others = actions[option]
            raise UsageError(
                f"{option} has no effect on {action}",
                hint=f"It belongs to {', '.join(others)}. Leave it out.",
            )


def flags(*, validate_only: bool, force: bool) -> dict[str, str]:
    """The query of a request that makes or changes something."""
    return {"validateOnly": str(validate_only).lower(), "force": str(force).lower()}


def changed(
    service: ServiceClient, path: str, file: Path | None, mask: str, asked: Mapping[str, str]
) -> dict[str, Any]:
    """Update a stream or a profile with the content of a file. asked: see `flags`. Returns the
    operation. Raises UsageError, InvalidRequest."""
    sent = content_of(file)
    fields = mask or ",".join(sent if isinstance(sent, dict) else ())
    return service.call("PATCH", path, sent, updateMask=fields, **asked)


def show_validations(operation: dict[str, Any]) -> None:
    """Print the validations of an operation, with a remedy for each that failed."""
    from mirrorlake.cli.output import print_table

    found = operation["metadata"].get("validationResult", {}).get("validations", [])
    rows = [
        (
            validation["state"],
            validation["description"],
            " ".join(m["message"] for m in validation.get("message", ())),
        )
        for validation in found
    ]
    print_table(("state", "tested", ""), rows)


def content_of(file: Path | None) -> Any:
    """The JSON object of a file. Raises UsageError, InvalidRequest."""
    if file is None:
        raise UsageError(
            "no file was given", where="--file", hint="Name a file with the JSON of the API."
        )
    try:
        return json.loads(file.read_text("utf-8"))
    except OSError as error:
        raise UsageError(
            f"the file cannot be read: {error.strerror}", where=str(file), hint="Name another."
        ) from None
    except ValueError:
        raise InvalidRequest("the file is not JSON", where=str(file), hint="Correct it.") from None


def identifier_of(name: str | None) -> str:
    """Raises UsageError."""
    if not name:
        raise UsageError("no name was given", hint="Name it after the action.")
    return name


def last(name: str) -> str:
    """The identifier at the end of a name."""
    return name.rpartition("/")[2]


def _refused(error: urllib.error.HTTPError) -> UsageError | OperatorError | Unavailable:
    try:
        message = str(json.load(error)["error"]["message"]).rstrip(".")
    except (ValueError, KeyError, TypeError):
        message = f"the service answered {error.code}"
    if error.code in (400, 404, 409, 413):
        return UsageError(message)
    return Unavailable(message) if error.code >= 502 else OperatorError(message)
