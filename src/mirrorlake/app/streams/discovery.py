"""Discover: the structure of what a connection profile represents (ST-307 to ST-313)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic.alias_generators import to_camel

from mirrorlake.app import extras
from mirrorlake.app.mirror import Mirror
from mirrorlake.app.status import mirror_status
from mirrorlake.app.stores import store_of
from mirrorlake.app.streams.connections import NOT_LIVE, postgres_url
from mirrorlake.app.streams.projects import StreamProjects
from mirrorlake.capture.events.build import payload_of
from mirrorlake.capture.events.state import delivered
from mirrorlake.capture.records.records import Records
from mirrorlake.config import Project
from mirrorlake.control.checks import check_profile, shaped
from mirrorlake.control.reports import Document
from mirrorlake.control.secrets import secrets_of
from mirrorlake.control.shapes import hierarchies as shape
from mirrorlake.control.shapes.discover import DATA_OBJECTS, DiscoverRequest
from mirrorlake.control.supervision import Supervised
from mirrorlake.delta.log.table_log import BrokenLog, TableLog
from mirrorlake.errors import InvalidRequest, NotOffered
from mirrorlake.mirror.table.progress import key_columns
from mirrorlake.model.table import TableId
from mirrorlake.root import LANDING

if TYPE_CHECKING:
    from mirrorlake.sources.postgresql.catalog import FoundColumn

ALL_LEVELS = 100

Found = dict[str, dict[str, list[shape.PostgresqlColumn]]]
"""Columns by schema and table."""

Look = Callable[[str, str], Found]
"""Finds what is in a schema and of a name, everything where these are empty."""


def discover(
    sent: object, projects: StreamProjects, streams: Callable[[], Sequence[Supervised]]
) -> Document:
    """The data object, filled. Raises InvalidRequest, NotOffered, SourceUnavailable."""
    request = shaped(DiscoverRequest, sent)
    if request.connection_profile_name:
        profile, secrets = projects.profiles(request.connection_profile_name)
    elif request.connection_profile is not None:
        profile = request.connection_profile
        check_profile(profile)
        secrets = dict(secrets_of(profile))
    else:
        raise InvalidRequest(
            "the request names no connection profile and contains none",
            where="connectionProfileName",
            hint="Send connectionProfileName, or a connectionProfile.",
        )
    if (kind := profile.kind or "") in NOT_LIVE:
        raise NotOffered(
            f"this release does not discover {NOT_LIVE[kind]}",
            where=profile.name or "connectionProfile",
            hint="Discover a source on PostgreSQL, or a destination.",
        )
    others = [one for one in DATA_OBJECTS[1:] if getattr(request, one) is not None]
    if others:
        raise InvalidRequest(
            f"{others[0]} does not belong to a {to_camel(kind)}",
            where=others[0],
            hint="Send postgresqlRdbms.",
        )
    if kind == "postgresql_profile":
        url = postgres_url(profile, secrets, projects.places.certificates)
        look: Look = partial(_in_source, url)
    else:
        look = _selected(_in_destination(request.connection_profile_name, projects, streams()))
    asked = request.postgresql_rdbms
    return {"postgresqlRdbms": _filled(look, asked, _depth(request)).document()}


def _depth(request: DiscoverRequest) -> int:
    """How many levels are wanted below the data object: schemas, tables, columns."""
    if request.full_hierarchy or request.recursive:
        return ALL_LEVELS
    return request.hierarchy_depth or request.recursion_depth or 1


def _filled(look: Look, asked: shape.PostgresqlRdbms | None, depth: int) -> shape.PostgresqlRdbms:
    """Depth counts from the deepest level that is asked for."""
    places: list[tuple[str, str]] = [
        (one.schema_, table)
        for one in (asked.postgresql_schemas if asked else ())
        for table in ([t.table for t in one.postgresql_tables] or [""])
    ] or [("", "")]
    schemas: dict[str, shape.PostgresqlSchema] = {}
    for schema, table in places:
        levels = depth + bool(schema) + bool(table)
        for name, tables in look(schema, table).items():
            known = schemas.setdefault(name, shape.PostgresqlSchema(schema_=name))
            if levels > 1:
                known.postgresql_tables += [
                    shape.PostgresqlTable(
                        table=one, postgresql_columns=columns if levels > 2 else []
                    )
                    for one, columns in tables.items()
                ]
    return shape.PostgresqlRdbms(postgresql_schemas=list(schemas.values()))


def _in_source(url: str, schema: str, table: str) -> Found:
    with extras.needed("a PostgreSQL source"):
        from mirrorlake.sources.postgresql.catalog import hierarchy

    return {
        name: {one: [_column(c) for c in columns] for one, columns in tables.items()}
        for name, tables in hierarchy(url, schema, table).items()
    }


def _column(found: FoundColumn) -> shape.PostgresqlColumn:
    return shape.PostgresqlColumn(
        column=found.name,
        data_type=found.type,
        length=found.length,
        precision=found.precision,
        scale=found.scale,
        primary_key=found.is_key,
        nullable=found.is_nullable,
        ordinal_position=found.ordinal,
    )


# -- what streams have written -----------------------------------------------------------------


def _in_destination(
    profile: str | None, projects: StreamProjects, streams: Sequence[Supervised]
) -> Found:
    """The tables of all streams into a destination, with the columns as they are written there."""
    found: Found = {}
    for stream in streams:
        config = stream.document.get("destinationConfig", {})
        if (
            stream.is_deleted
            or profile is None
            or config.get("destinationConnectionProfile") != profile
        ):
            continue
        project = projects.of(stream.name, stream.document)
        for table, columns in _tables(project) if project.lands else _events(project):
            found.setdefault(table.schema, {})[table.name] = columns
    return {schema: dict(sorted(tables.items())) for schema, tables in sorted(found.items())}


def _selected(found: Found) -> Look:
    def look(schema: str, table: str) -> Found:
        return {
            name: {one: columns for one, columns in tables.items() if table in ("", one)}
            for name, tables in found.items()
            if schema in ("", name)
        }

    return look


def _tables(project: Project) -> Iterator[tuple[TableId, list[shape.PostgresqlColumn]]]:
    store = store_of(project)
    for status in mirror_status.read(project).tables:
        if status.version is None:
            continue
        try:
            snapshot = TableLog.below(store, status.path).snapshot()
        except (BrokenLog, OSError):
            continue  # the table itself says what is wrong
        key = key_columns(snapshot.properties)
        columns = [
            (one["name"], _text(one["type"]), bool(one["nullable"]))
            for one in json.loads(snapshot.metadata["schemaString"])["fields"]
        ]
        yield TableId.parse(status.table), _written(columns, key)


def _events(project: Project) -> Iterator[tuple[TableId, list[shape.PostgresqlColumn]]]:
    """Of tables that have event files the unified types; asks the source for its columns."""
    written = delivered(Records(store_of(project), LANDING))
    for table in Mirror(project).discover():
        if str(table.table) in written:
            columns = [(one.name, str(one.type), True) for one in payload_of(table)]
            yield table.table, _written(columns, table.key)


def _written(
    columns: Sequence[tuple[str, str, bool]], key: Sequence[str]
) -> list[shape.PostgresqlColumn]:
    """columns: names, types, and whether there may be NULL."""
    return [
        shape.PostgresqlColumn(
            column=name,
            data_type=kind,
            primary_key=name in key,
            nullable=may_be_null,
            ordinal_position=number,
        )
        for number, (name, kind, may_be_null) in enumerate(columns, start=1)
    ]


def _text(kind: Any) -> str:
    """A type of Delta: simple ones are texts."""
    return kind if isinstance(kind, str) else str(kind.get("type", "unknown"))
