"""The routes of the API, in one table: what is served, and what the document says (section 19)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic.alias_generators import to_camel

from mirrorlake import __version__
from mirrorlake.app.changes.feed_pages import feed_page
from mirrorlake.app.feed import table_named
from mirrorlake.app.streams.discovery import discover
from mirrorlake.app.streams.service import Service
from mirrorlake.control.checks import shaped
from mirrorlake.control.names import ResourceKind, ResourceName, location
from mirrorlake.control.reports import Document
from mirrorlake.control.requests import Asked
from mirrorlake.control.shapes.base import Shape
from mirrorlake.control.shapes.discover import DiscoverRequest
from mirrorlake.control.shapes.hierarchies import LookupRequest
from mirrorlake.control.shapes.profiles import ConnectionProfile
from mirrorlake.control.shapes.streams import RunRequest, StartBackfillRequest, Stream
from mirrorlake.errors import InvalidRequest, NotOffered, printable
from mirrorlake.feed.bounds import FeedArguments, end_named, start_named


@dataclass(frozen=True, slots=True)
class Call:
    """A request, read. path: the parts of the address; sent: its body, {} for none."""

    service: Service
    path: Mapping[str, str]
    query: Mapping[str, str]
    sent: Any

    @property
    def location(self) -> str:
        """Raises InvalidRequest."""
        text = f"projects/{self.path['project']}/locations/{self.path['location']}"
        location(text)
        return text

    def name(self, kind: ResourceKind) -> ResourceName:
        """The resource that the address names. Raises InvalidRequest."""
        text = f"{self.location}/{kind.value}/{self.path['id']}"
        return ResourceName.parse(text)

    @property
    def object(self) -> ResourceName:
        return ResourceName.parse(f"{self.name(ResourceKind.STREAM)}/objects/{self.path['object']}")

    @property
    def asked(self) -> Asked:
        return Asked(self.query.get("requestId", ""), self.flag("validateOnly"), self.flag("force"))

    def flag(self, name: str) -> bool:
        """Raises InvalidRequest."""
        text = self.query.get(name, "false").lower()
        if text not in ("true", "false", "1", "0", ""):
            raise InvalidRequest("true or false is expected", where=name, hint="Send true.")
        return text in ("true", "1")

    def number(self, name: str) -> int:
        """Raises InvalidRequest."""
        text = self.query.get(name) or "0"
        try:
            found = int(text) if len(text) < 12 and text.isascii() else None
        except ValueError:
            found = None
        if found is None or abs(found) > 2_147_483_647:
            raise InvalidRequest("a number is expected", where=name, hint="Send 1 to 1000.")
        return found


Handler = Callable[[Call], Document]


@dataclass(frozen=True, slots=True)
class ApiRoute:
    """A route: method, address, what it does, the shape of its body, its query parameters."""

    method: str
    address: str
    summary: str
    handler: Handler
    body: type[Shape] | None = None
    query: tuple[str, ...] = field(default=())
    is_offered: bool = True

    def read(self, query: Mapping[str, str]) -> dict[str, str]:
        """The parameters of a request, in lower camel case. Raises InvalidRequest for one that
        would not be heeded: a deletion that was only to be validated would be done. What is not
        offered says so itself, whatever is sent."""
        if not self.is_offered:
            return dict(query)
        found = {}
        for name, value in query.items():
            if name.startswith("$") or name in _OF_EVERY_ROUTE:
                continue
            if (known := to_camel(name)) not in self.query:
                there = ", ".join(self.query)
                raise InvalidRequest(
                    "there is no such parameter",
                    where=printable(name[:80]),
                    hint=f"The parameters here are: {there}." if there else "There is none here.",
                )
            found[known] = value
        return found


_OF_EVERY_ROUTE = (
    *("access_token", "alt", "bearer_token", "callback", "fields", "key", "oauth_token", "pp"),
    *("prettyPrint", "quotaUser", "trace", "uploadType", "upload_protocol", "userProject"),
)
"""Parameters that every API of Google has, of the form of the answer and of who asks: those of its
discovery documents and `StandardQueryParameters` of gcloud."""
_LOCATION = "/v1/projects/{project}/locations/{location}"
_PROFILES = f"{_LOCATION}/connectionProfiles"
_STREAMS = f"{_LOCATION}/streams"
_OBJECTS = f"{_STREAMS}/{{id}}/objects"
_OPERATIONS = f"{_LOCATION}/operations"
_LISTED = ("pageSize", "pageToken", "filter", "orderBy")
_OF_CHANGES = ("requestId", "validateOnly", "force")
"""Parameters of a request that creates or updates a resource."""
_OF_DELETIONS = ("requestId", "force")
"""Clients of the original send `force` to delete what belongs to the resource too. It changes
nothing here: a stream is always deleted with its objects, and a profile in use never."""


def _list(kind: ResourceKind, key: str) -> Handler:
    def handler(call: Call) -> Document:
        parent = (
            str(call.name(ResourceKind.STREAM)) if kind is ResourceKind.OBJECT else call.location
        )
        found, token = call.service.control.page(
            kind,
            parent,
            size=call.number("pageSize"),
            token=call.query.get("pageToken", ""),
            where=call.query.get("filter", ""),
            order=call.query.get("orderBy", ""),
        )
        page: Document = {key: found, "nextPageToken": token}
        return (
            page
            if kind in (ResourceKind.OBJECT, ResourceKind.OPERATION)
            else {**page, "unreachable": []}
        )

    return handler


def _get(kind: ResourceKind) -> Handler:
    def handler(call: Call) -> Document:
        return call.service.control.get(call.name(kind))

    return handler


def _create_profile(call: Call) -> Document:
    identifier = call.query.get("connectionProfileId", "")
    return call.service.control.profiles.create(call.location, identifier, call.sent, call.asked)


def _update_profile(call: Call) -> Document:
    name, mask = call.name(ResourceKind.PROFILE), call.query.get("updateMask", "")
    return call.service.control.profiles.update(name, call.sent, mask, call.asked)


def _delete_profile(call: Call) -> Document:
    return call.service.control.profiles.delete(call.name(ResourceKind.PROFILE), call.asked)


def _discover(call: Call) -> Document:
    call.location  # noqa: B018  (is it one?)
    service = call.service
    return discover(call.sent, service.projects, service.control.supervision.supervised)


def _create_stream(call: Call) -> Document:
    identifier = call.query.get("streamId", "")
    return call.service.control.streams.create(call.location, identifier, call.sent, call.asked)


def _update_stream(call: Call) -> Document:
    name, mask = call.name(ResourceKind.STREAM), call.query.get("updateMask", "")
    return call.service.control.streams.update(name, call.sent, mask, call.asked)


def _delete_stream(call: Call) -> Document:
    return call.service.control.streams.delete(call.name(ResourceKind.STREAM), call.asked)


def _run_stream(call: Call) -> Document:
    return call.service.control.streams.run(call.name(ResourceKind.STREAM), call.sent, call.asked)


def _lookup(call: Call) -> Document:
    request = shaped(LookupRequest, call.sent)
    identifier = request.source_object_identifier.document()
    return call.service.control.lookup(call.name(ResourceKind.STREAM), identifier)


def _get_object(call: Call) -> Document:
    return call.service.control.get(call.object)


def _start_backfill(call: Call) -> Document:
    return {"object": call.service.backfills.start(call.object, call.sent)}


def _stop_backfill(call: Call) -> Document:
    return {"object": call.service.backfills.stop(call.object)}


def _errors(call: Call) -> Document:
    return {"errors": call.service.control.fetch_stream_errors(call.name(ResourceKind.STREAM))}


def _errors_operation(call: Call) -> Document:
    """v1alpha1 answers with an operation, which is done at once (ST-296)."""
    response = {
        "@type": "type.googleapis.com/google.cloud.datastream.v1alpha1.FetchErrorsResponse",
        **_errors(call),
    }
    name = f"{call.location}/operations/fetch-errors"
    return {"name": name, "metadata": None, "done": True, "response": response}


def _activity(call: Call) -> Document:
    return {"entries": call.service.control.activity(call.name(ResourceKind.STREAM))}


def _changes(call: Call) -> Document:
    name = call.name(ResourceKind.STREAM)
    project = call.service.projects.of(name, call.service.control.get(name))
    table, options = table_named(project, call.query.get("table", ""))
    given: FeedArguments = {"on_gap": "report" if call.flag("reportGaps") else "error"}
    given |= {"pair_updates": call.flag("pairUpdates")}
    given |= {"skip_unchanged": call.flag("skipUnchanged")}
    for named, bound in ((start_named, "from"), (end_named, "to")):
        given |= named(call.query[bound]) if call.query.get(bound) else {}
    token, size = call.query.get("pageToken", ""), call.number("pageSize")
    return feed_page(table, options, token=token, size=size, **given).facts()


def _delete_operation(call: Call) -> Document:
    call.service.control.delete_operation(call.name(ResourceKind.OPERATION))
    return {}


def _cancel_operation(call: Call) -> Document:
    call.service.control.cancel_operation(call.name(ResourceKind.OPERATION))
    return {}


def _static_ips(call: Call) -> Document:
    call.location  # noqa: B018  (is it one?)
    return {"staticIps": []}


def _location(call: Call) -> Document:
    name = call.location
    return {"name": name, "locationId": call.path["location"]}


def _locations(call: Call) -> Document:
    name = f"projects/{call.path['project']}/locations/local"
    location(name)
    return {"locations": [{"name": name, "locationId": "local"}], "nextPageToken": ""}


def _not_offered(what: str) -> Handler:
    def handler(call: Call) -> Document:
        raise NotOffered(
            f"{what} are not offered",
            where=call.location,
            hint="Reach the source through a tunnel or network of your own.",
        )

    return handler


OPERATIONS = (
    ApiRoute(
        "GET",
        "/v1/projects/{project}/locations",
        "List locations",
        _locations,
        query=("filter", "pageSize", "pageToken", "extraLocationTypes"),
    ),
    ApiRoute("GET", f"{_LOCATION}:fetchStaticIps", "Addresses to allow", _static_ips),
    ApiRoute("GET", _LOCATION, "A location", _location),
    ApiRoute(
        "POST",
        f"{_PROFILES}:discover",
        "Discover what a profile represents",
        _discover,
        DiscoverRequest,
    ),
    ApiRoute(
        "GET",
        _PROFILES,
        "List connection profiles",
        _list(ResourceKind.PROFILE, "connectionProfiles"),
        query=_LISTED,
    ),
    ApiRoute(
        "POST",
        _PROFILES,
        "Create a connection profile",
        _create_profile,
        ConnectionProfile,
        ("connectionProfileId", *_OF_CHANGES),
    ),
    ApiRoute("GET", f"{_PROFILES}/{{id}}", "A connection profile", _get(ResourceKind.PROFILE)),
    ApiRoute(
        "PATCH",
        f"{_PROFILES}/{{id}}",
        "Update a connection profile",
        _update_profile,
        ConnectionProfile,
        ("updateMask", *_OF_CHANGES),
    ),
    ApiRoute(
        "DELETE",
        f"{_PROFILES}/{{id}}",
        "Delete a connection profile",
        _delete_profile,
        query=_OF_DELETIONS,
    ),
    ApiRoute("GET", _STREAMS, "List streams", _list(ResourceKind.STREAM, "streams"), query=_LISTED),
    ApiRoute(
        "POST", _STREAMS, "Create a stream", _create_stream, Stream, ("streamId", *_OF_CHANGES)
    ),
    ApiRoute(
        "POST",
        f"{_STREAMS}/{{id}}:run",
        "Start or recover a stream",
        _run_stream,
        RunRequest,
        ("requestId", "force"),
    ),
    ApiRoute("POST", f"{_STREAMS}/{{id}}:fetchErrors", "Errors of a stream", _errors),
    ApiRoute(
        "POST",
        f"{_STREAMS}/{{id}}:fetchErrors".replace("/v1/", "/v1alpha1/"),
        "Errors of a stream, as an operation",
        _errors_operation,
    ),
    ApiRoute("GET", f"{_STREAMS}/{{id}}:activity", "Activity log of a stream", _activity),
    ApiRoute(
        "GET",
        f"{_STREAMS}/{{id}}:changes",
        "Changes of a table, in pages",
        _changes,
        query=(
            *("table", "from", "to", "pageSize", "pageToken"),
            *("reportGaps", "pairUpdates", "skipUnchanged"),
        ),
    ),
    ApiRoute("GET", f"{_STREAMS}/{{id}}", "A stream", _get(ResourceKind.STREAM)),
    ApiRoute(
        "PATCH",
        f"{_STREAMS}/{{id}}",
        "Update, start, pause or resume a stream",
        _update_stream,
        Stream,
        ("updateMask", *_OF_CHANGES),
    ),
    ApiRoute(
        "DELETE",
        f"{_STREAMS}/{{id}}",
        "Delete a stream",
        _delete_stream,
        query=_OF_DELETIONS,
    ),
    ApiRoute(
        "POST", f"{_OBJECTS}:lookup", "The object of a source identifier", _lookup, LookupRequest
    ),
    ApiRoute(
        "GET",
        _OBJECTS,
        "List the objects of a stream",
        _list(ResourceKind.OBJECT, "streamObjects"),
        query=("pageSize", "pageToken"),
    ),
    ApiRoute(
        "POST",
        f"{_OBJECTS}/{{object}}:startBackfillJob",
        "Start a backfill",
        _start_backfill,
        StartBackfillRequest,
    ),
    ApiRoute("POST", f"{_OBJECTS}/{{object}}:stopBackfillJob", "Stop a backfill", _stop_backfill),
    ApiRoute("GET", f"{_OBJECTS}/{{object}}", "An object", _get_object),
    ApiRoute(
        "GET",
        _OPERATIONS,
        "List operations",
        _list(ResourceKind.OPERATION, "operations"),
        query=(*_LISTED, "returnPartialSuccess"),
    ),
    ApiRoute("POST", f"{_OPERATIONS}/{{id}}:cancel", "Cancel an operation", _cancel_operation),
    ApiRoute("GET", f"{_OPERATIONS}/{{id}}", "An operation", _get(ResourceKind.OPERATION)),
    ApiRoute("DELETE", f"{_OPERATIONS}/{{id}}", "Forget an operation", _delete_operation),
    *(
        ApiRoute(method, f"{_LOCATION}/{address}", words, _not_offered(words), is_offered=False)
        for address, words in (
            ("privateConnections", "private connections"),
            ("privateConnections/{id}/routes", "routes of private connections"),
        )
        for method, address in (
            ("GET", address),
            ("POST", address),
            ("GET", f"{address}/{{name}}"),
            ("DELETE", f"{address}/{{name}}"),
        )
    ),
)


def document() -> Document:
    """The OpenAPI document."""
    schemas: Document = {}
    paths: Document = {}
    for one in OPERATIONS:
        paths.setdefault(one.address, {})[one.method.lower()] = _described(one, schemas)
    error = {"type": "object", "required": ["error"], "properties": {"error": {"type": "object"}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "mirrorlake streams", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {**schemas, "Error": error},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _described(one: ApiRoute, schemas: Document) -> Document:
    text = {"schema": {"type": "string"}}
    names = [part.split("}")[0] for part in one.address.split("{")[1:]]
    found: Document = {
        "summary": one.summary,
        "parameters": [
            *({"name": name, "in": "path", "required": True, **text} for name in names),
            *({"name": name, "in": "query", **_kind_of(name)} for name in one.query),
        ],
        "responses": {
            "200": {
                "description": "Done, or an operation that is under way",
                "content": {"application/json": {"schema": {"type": "object"}}},
            },
            "default": {
                "description": "Refused",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
            },
        },
    }
    if one.body is not None:
        schema = one.body.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= schema.pop("$defs", {})
        schemas[one.body.__name__] = schema
        reference = {"$ref": f"#/components/schemas/{one.body.__name__}"}
        found["requestBody"] = {"content": {"application/json": {"schema": reference}}}
    return found


def _kind_of(name: str) -> Document:
    flags = (
        *("validateOnly", "force", "reportGaps", "pairUpdates", "skipUnchanged"),
        "returnPartialSuccess",
    )
    kinds = {"pageSize": "integer", **dict.fromkeys(flags, "boolean")}
    return {"schema": {"type": kinds.get(name, "string")}}
