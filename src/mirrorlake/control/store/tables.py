"""The tables of the database, as created step by step by `migrations/`."""

from __future__ import annotations

from sqlalchemy import Column, Float, Index, Integer, MetaData, String, Table, Text

METADATA = MetaData()

RESOURCES = Table(
    "resources",
    METADATA,
    Column("name", String(1_000), primary_key=True),
    Column("kind", String(32), nullable=False),
    Column("parent", String(1_000), nullable=False),
    Column("document", Text, nullable=False),  # JSON, as the API returns it
    Column("wanted", String(32), nullable=False, server_default=""),  # of streams
    Index("resources_by_parent", "kind", "parent", "name"),
)

REQUESTS = Table(
    "requests",
    METADATA,
    Column("parent", String(1_000), primary_key=True),
    Column("id", String(64), primary_key=True),
    Column("digest", String(64), nullable=False),  # of the request
    Column("operation", String(1_000), nullable=False),
    Column("time", Float, nullable=False),
)

ACTIVITY = Table(
    "activity",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("resource", String(1_000), nullable=False),
    Column("time", String(40), nullable=False),
    Column("event_code", String(64), nullable=False),
    Column("event_message", Text, nullable=False),
    Column("new_state", String(32), nullable=False, server_default=""),
    Index("activity_by_resource", "resource", "number"),
)
