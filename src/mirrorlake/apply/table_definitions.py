"""The contract of table definitions: creating, altering, moving and vacuuming Delta tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Protocol

import structlog

from mirrorlake.delta.schema import FeedMode
from mirrorlake.mirror.schema_evolution import needs_mapping
from mirrorlake.mirror.steps import AddColumns, CreateTable, SetKey
from mirrorlake.mirror.strategy import StrategyName
from mirrorlake.mirror.table.progress import (
    DELETES,
    DETECTION,
    FOLDER,
    GENERATION,
    KEY_COLUMNS,
    REQUIRED,
    RESEEDED,
    SOFT,
    Progress,
)

log = structlog.get_logger()

TABLE_CREATED = "table_created"


class TableDefinitions(Protocol):
    """Creates and changes Delta tables at paths below one root. Thread-safe for different tables.

    Commits need not be durable on return: the caller flushes them. Every method raises TableError
    for an error of the table or its storage, after which nothing has changed.
    """

    def metadata_of(self, step: CreateTable) -> Mapping[str, Any] | None:
        """The metaData action of the new table, if the commit of its first rows can create it; None
        if it has to be created before. Raises OSError."""
        ...

    def create(self, step: CreateTable) -> None:
        """Create the table, with the change feed enabled from version 0 unless the step disables
        it. If it exists, do nothing, or replace it if `step.replace`."""
        ...

    def add_columns(self, step: AddColumns, known: Progress) -> None:
        """Add the columns of the step that are not in `known`."""
        ...

    def set_properties(self, path: str, properties: Mapping[str, str]) -> None:
        """Set properties of the table in one commit."""
        ...

    def put_aside(self, path: str) -> None:
        """Move the table to the folder of dropped tables."""
        ...

    def vacuum(self, path: str, retention: timedelta, before: Callable[[], None]) -> None:
        """Delete data files that no version of the last `retention` needs. before: called first;
        prevents it by raising. Raises ForeignTable if the table contains another table."""
        ...

    def checkpoint(self, path: str, known: Progress, strategy: StrategyName) -> None:
        """Write a checkpoint of the newest version; if only Delta can write the table, make Delta
        write checkpoints from now on."""
        ...


def log_created(step: CreateTable) -> None:
    log.info(TABLE_CREATED, table=str(step.table), columns=len(step.schema))


def key_property(step: SetKey) -> dict[str, str]:
    return {KEY_COLUMNS: json.dumps(list(step.key))}


def properties_of(step: CreateTable) -> dict[str, str]:
    """The properties of a new table that identify its mirror, folder and generation."""
    ours = {
        GENERATION: step.generation,
        KEY_COLUMNS: json.dumps(list(step.key)),
        FOLDER: step.folder,
        DETECTION: step.detection,
    }
    if step.replace:
        ours[RESEEDED] = "true"
    if step.soft:
        ours[DELETES] = SOFT
    if step.feed is not FeedMode.IMAGES:  # which is what tables are made with
        ours |= step.feed.properties
    if step.required:
        ours[REQUIRED] = json.dumps(list(step.required))
    if needs_mapping(step.schema):
        ours["delta.columnMapping.mode"] = "name"
    return ours
