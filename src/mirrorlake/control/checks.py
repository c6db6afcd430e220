"""Validates requests for streams and profiles, alone and against the current state."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from contextlib import suppress
from typing import TypeVar

from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from mirrorlake.control.reports import Document
from mirrorlake.control.secrets import check_references
from mirrorlake.control.shapes.base import Shape
from mirrorlake.control.shapes.profiles import DESTINATIONS, ConnectionProfile
from mirrorlake.control.shapes.streams import (
    DESTINATION_CONFIGS,
    SOURCE_CONFIGS,
    BackfillAll,
    RunRequest,
    Stream,
)
from mirrorlake.control.states import StreamMove, StreamState
from mirrorlake.errors import IllegalMove, InvalidRequest, NotOffered

OUTPUT = ("name", "createTime", "updateTime", "satisfiesPzs", "satisfiesPzi")
"""Output-only fields of every resource."""
PROJECT_FILE = "projectFile"
FIRST_RUN = "firstRunTime"
"""When a stream was first anything but NOT_STARTED or STARTING. Its state does not tell: a resumed
stream whose validation fails is NOT_STARTED again. Not shown: clients of the original reject fields
that they do not know."""
STREAM_OUTPUT = (*OUTPUT, "errors", FIRST_RUN, "lastRecoveryTime", PROJECT_FILE, "state")

_S = TypeVar("_S", bound=Shape)


def shaped(shape: type[_S], sent: object) -> _S:
    """Raises InvalidRequest, which names the field and never repeats a value."""
    try:
        return shape.model_validate(sent)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in problem["loc"])
        what = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            what = "there is no such field"
        raise InvalidRequest(
            what[0].lower() + what[1:],
            where=where or shape.__name__,
            hint="See the OpenAPI document, /v1/openapi.json.",
        ) from None


def check_profile(shape: ConnectionProfile) -> None:
    if shape.kind is None:
        raise InvalidRequest(
            "a connection profile has exactly one kind",
            where="connectionProfile",
            hint="Send one of postgresqlProfile, mysqlProfile, oracleProfile, sqlServerProfile, "
            "salesforceProfile, mongodbProfile, gcsProfile, bigqueryProfile, fileSystemProfile.",
        )
    check_references(shape)


def input_of(shape: Stream) -> Document:
    """The input fields of a stream, with its state."""
    return {
        name: value
        for name, value in shape.document().items()
        if name not in STREAM_OUTPUT or name in ("state", "createTime")
    }


def output_of(document: Document) -> Document:
    return {
        name: document[name] for name in STREAM_OUTPUT if name in document and name != "updateTime"
    }


def shown(document: Document) -> Document:
    """An answer without what is noted for the service alone: a stream, a page of streams, or an
    operation."""
    found = {name: value for name, value in document.items() if name != FIRST_RUN}
    if isinstance(response := found.get("response"), dict):
        found["response"] = shown(response)
    if "streams" in found:
        found["streams"] = [shown(one) for one in found["streams"]]
    if "operations" in found:
        found["operations"] = [shown(one) for one in found["operations"]]
    return found


def profiles_of(stream: Document) -> set[str]:
    """The profiles that a stream references; none for a stream of a project file."""
    source, destination = stream.get("sourceConfig", {}), stream.get("destinationConfig", {})
    named = (
        source.get("sourceConnectionProfile"),
        destination.get("destinationConnectionProfile"),
    )
    return {name for name in named if name}


def check_not_listed(stream: Document) -> None:
    """Raises IllegalMove for a stream of a project file, of which only the state can be changed."""
    if (file := stream.get(PROJECT_FILE)) is not None:
        raise IllegalMove(
            f"the stream is listed in {file}",
            where=stream["name"],
            hint="Change or remove it there, then start the service again.",
        )


def move_to(state: StreamState, target: StreamState | None) -> StreamMove | None:
    """The move that brings a stream to a requested state (ST-280)."""
    if target is None or target is state:
        return None
    match target:
        case StreamState.RUNNING:
            return None if state is StreamState.STARTING else StreamMove.START
        case StreamState.PAUSED:
            return None if state is StreamState.DRAINING else StreamMove.PAUSE
    raise IllegalMove(
        f"a stream that is {state.name} cannot be asked to become {target.name}",
        hint="Send RUNNING or PAUSED.",
    )


def check_slot(current: Stream, following: Stream) -> None:
    """The slot holds the stream's position in the log: another slot would lose changes (ST-328)."""

    def slot(stream: Stream) -> str | None:
        config = stream.source_config and stream.source_config.postgresql_source_config
        return config.replication_slot if config else None

    if slot(current) != slot(following):
        raise InvalidRequest(
            "replicationSlot cannot be changed",
            where="sourceConfig.postgresqlSourceConfig.replicationSlot",
            hint="Create another stream.",
        )


def check_target(current: Document, following: Stream) -> None:
    """What a stream has written tells where it goes on: in another place it would begin anew, with
    a slot that is past the changes that are missing there. Raises InvalidRequest."""
    before, after = current.get("destinationConfig", {}), following.document()["destinationConfig"]
    for field, there in _target(before).items():
        if _has_begun(current) and there != _target(after)[field]:
            raise InvalidRequest(
                f"{field} of a stream that has begun cannot be changed",
                where=f"destinationConfig.{field}",
                hint="Create another stream, with its own replicationSlot and publication.",
            )


def _target(destination: Document) -> dict[str, object]:
    """What in the configuration of a destination says where a stream writes, and what: event files
    or tables."""
    chosen = next((kind for kind in map(to_camel, DESTINATION_CONFIGS) if kind in destination), "")
    config = destination.get(chosen, {})
    is_events = chosen == "gcsDestinationConfig" or bool(
        {"avroFileFormat", "jsonFileFormat"} & config.keys()
    )
    return {
        "destinationConnectionProfile": destination.get("destinationConnectionProfile"),
        f"{chosen or 'config'}.path": _folders(config.get("path", "")),
        f"{chosen or 'config'}.landingZone": not is_events,
    }


def check_targets(current: Document, following: Document, streams: Iterable[Document]) -> None:
    """The same for the streams that write to a destination: `bucket` and `rootPath` of its profile
    are a part of the place. A source does not become a destination. Raises IllegalMove."""
    is_source = not any(kind in current for kind in map(to_camel, DESTINATIONS))
    for kind in map(to_camel, DESTINATIONS):
        before, after = current.get(kind, {}), following.get(kind, {})
        same = before.get("bucket") == after.get("bucket") and _folders(
            before.get("rootPath", "")
        ) == _folders(after.get("rootPath", ""))
        if same and (kind in current) == (kind in following):
            continue
        for stream in streams:
            if current["name"] in profiles_of(stream) and _has_begun(stream):
                what, use = ("kind", "read from it") if is_source else ("place", "write there")
                raise IllegalMove(
                    f"the {what} cannot be changed: {stream['name']} has begun to {use}",
                    where=f"{current['name']}, {kind}",
                    hint="Create another profile, and another stream with it.",
                )


def _folders(path: str) -> list[str]:
    return [name for name in path.split("/") if name]


def _has_begun(stream: Document) -> bool:
    return FIRST_RUN in stream or bool(stream["state"] != StreamState.NOT_STARTED.name)


def check_excluded(stream: Stream) -> None:
    """What is not backfilled is named as objects of the source (ST-282)."""
    config, kinds = stream.source_config, SOURCE_CONFIGS
    chosen = next((kind for kind in kinds if config and getattr(config, kind) is not None), "")
    fitting = chosen.replace("source_config", "excluded_objects")
    for name in BackfillAll.model_fields:
        if name != fitting and stream.backfill_all and getattr(stream.backfill_all, name):
            raise InvalidRequest(
                "the excluded objects are not those of the kind of the source",
                where=f"backfillAll.{to_camel(name)}",
                hint=f"Send {to_camel(fitting)}.",
            )


def check_strategy(stream: Stream, request: RunRequest) -> None:
    strategy = request.cdc_strategy
    if strategy is None or strategy.specific_start_position is None:
        return
    position = strategy.specific_start_position.document()
    if len(position) != 1:
        raise InvalidRequest(
            "a specific start position needs a position",
            where="cdcStrategy.specificStartPosition",
            hint="Send mysqlLogPosition, mysqlGtidPosition, oracleScnPosition or "
            "sqlServerLsnPosition.",
        )
    kind = stream.source_config and next(
        (k for k in SOURCE_CONFIGS if getattr(stream.source_config, k) is not None), ""
    )
    if kind == "postgresql_source_config":
        raise InvalidRequest(
            "a stream from PostgreSQL cannot be started at a position: its replication slot "
            "remembers where it stands",
            where="cdcStrategy.specificStartPosition",
            hint="Leave the strategy out.",
        )
    raise NotOffered(
        f"starting at a position ({next(iter(position))}) is not offered yet",
        where="cdcStrategy.specificStartPosition",
        hint="Leave the strategy out.",
    )


def request_id(text: str) -> str:
    """Raises InvalidRequest when the text is not a UUID or is all zero (ST-345)."""
    if not text:
        return ""
    if re.fullmatch(r"[0-9a-fA-F-]{32,36}", text):
        with suppress(ValueError):
            if (found := uuid.UUID(text)).int:
                return str(found)
    raise InvalidRequest(
        "the request identifier is not a UUID, or is all zero",
        where="requestId",
        hint="Use a new UUID for each request.",
    )
