"""Discover: the structure of what a connection profile represents (ST-307 to ST-311)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlake.app import extras
from mirrorlake.app.streams.connections import NOT_LIVE, postgres_url
from mirrorlake.app.streams.projects import ProfileOf, ServiceFolders
from mirrorlake.control.checks import check_profile, shaped
from mirrorlake.control.reports import Document
from mirrorlake.control.secrets import secrets_of
from mirrorlake.control.shapes import hierarchies as shape
from mirrorlake.control.shapes.discover import DATA_OBJECTS, DiscoverRequest
from mirrorlake.errors import InvalidRequest, NotOffered

if TYPE_CHECKING:
    from mirrorlake.sources.postgresql.catalog import FoundColumn

ALL_LEVELS = 100


def discover(sent: object, profiles: ProfileOf, places: ServiceFolders) -> Document:
    """The data object, filled. Raises InvalidRequest, NotOffered, SourceUnavailable."""
    request = shaped(DiscoverRequest, sent)
    if request.connection_profile_name:
        profile, secrets = profiles(request.connection_profile_name)
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
    if profile.kind != "postgresql_profile":
        name = NOT_LIVE.get(profile.kind or "", "a destination")
        raise NotOffered(
            f"this release does not discover {name}",
            where=profile.name or "connectionProfile",
            hint="Discover a source on PostgreSQL.",
        )
    others = [one for one in DATA_OBJECTS[1:] if getattr(request, one) is not None]
    if others:
        raise InvalidRequest(
            f"{others[0]} does not belong to a postgresqlProfile",
            where=others[0],
            hint="Send postgresqlRdbms.",
        )
    url = postgres_url(profile, secrets, places.certificates)
    return {"postgresqlRdbms": _filled(url, request.postgresql_rdbms, _depth(request)).document()}


def _depth(request: DiscoverRequest) -> int:
    """How many levels are wanted below the data object: schemas, tables, columns."""
    if request.full_hierarchy or request.recursive:
        return ALL_LEVELS
    return request.hierarchy_depth or request.recursion_depth or 1


def _filled(url: str, asked: shape.PostgresqlRdbms | None, depth: int) -> shape.PostgresqlRdbms:
    """Depth counts from the deepest level that is asked for."""
    with extras.needed("a PostgreSQL source"):
        from mirrorlake.sources.postgresql.catalog import hierarchy

    places: list[tuple[str, str]] = [
        (one.schema_, table)
        for one in (asked.postgresql_schemas if asked else ())
        for table in ([t.table for t in one.postgresql_tables] or [""])
    ] or [("", "")]
    schemas: dict[str, shape.PostgresqlSchema] = {}
    for schema, table in places:
        levels = depth + bool(schema) + bool(table)
        for name, tables in hierarchy(url, schema, table).items():
            known = schemas.setdefault(name, shape.PostgresqlSchema(schema_=name))
            if levels > 1:
                known.postgresql_tables += [
                    shape.PostgresqlTable(
                        table=one,
                        postgresql_columns=[_column(c) for c in columns] if levels > 2 else [],
                    )
                    for one, columns in tables.items()
                ]
    return shape.PostgresqlRdbms(postgresql_schemas=list(schemas.values()))


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
