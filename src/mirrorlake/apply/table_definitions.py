"""The contract of table definitions: what is done to a Delta table as a whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Protocol

from mirrorlake.mirror.schema_evolution import needs_mapping
from mirrorlake.mirror.steps import AddColumns, CreateTable, SetKey
from mirrorlake.mirror.strategy import Way
from mirrorlake.mirror.table.progress import (
    DETECTION,
    FOLDER,
    GENERATION,
    KEY_COLUMNS,
    REQUIRED,
    RESEEDED,
    Progress,
)


class TableDefinitions(Protocol):
    """Makes and alters Delta tables at paths below one root. For several threads, and different
    tables. What it commits need not be durable when it returns: the caller flushes it.

    Every method raises TableError for what the table or its storage refuses, and changes nothing
    then.
    """

    def create(self, step: CreateTable) -> None:
        """Make the table, with the change feed on from version 0. One that is there is left alone,
        or removed first where the step says so."""
        ...

    def add_columns(self, step: AddColumns, known: Progress) -> None:
        """Add the columns of the step that are not in `known`."""
        ...

    def set_properties(self, path: str, properties: Mapping[str, str]) -> None:
        """Give properties of the table other values, all in one commit."""
        ...

    def put_aside(self, path: str) -> None:
        """Move the table, whole, to where no reader looks."""
        ...

    def vacuum(self, path: str, retention: timedelta, before: Callable[[], None]) -> None:
        """Remove data files that no version of the last `retention` needs. before: called first;
        it refuses by raising. Raises ForeignTable when another table lies inside."""
        ...

    def checkpoint(self, path: str, known: Progress, way: Way) -> None:
        """Write a checkpoint of the newest version, or have Delta write them from now on where only
        it may write the table."""
        ...


def key_property(step: SetKey) -> dict[str, str]:
    return {KEY_COLUMNS: json.dumps(list(step.key))}


def properties_of(step: CreateTable) -> dict[str, str]:
    """The properties by which a table that is made by a step says whose it is."""
    ours = {
        GENERATION: step.generation,
        KEY_COLUMNS: json.dumps(list(step.key)),
        FOLDER: step.folder,
        DETECTION: step.detection,
    }
    if step.replace:
        ours[RESEEDED] = "true"
    if step.required:
        ours[REQUIRED] = json.dumps(list(step.required))
    if needs_mapping(step.schema):
        ours["delta.columnMapping.mode"] = "name"
    return ours
