"""Making tables and adding columns, by Delta's public interface."""

from __future__ import annotations

import json
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from mirrorlake.delta import tables
from mirrorlake.mirror.progress import (
    DETECTION,
    FOLDER,
    GENERATION,
    KEY_COLUMNS,
    REQUIRED,
    RESEEDED,
)
from mirrorlake.mirror.schema_evolution import needs_mapping
from mirrorlake.mirror.steps import AddColumns, CreateTable, SetKey
from mirrorlake.model.table import Schema
from mirrorlake.root import DROPPED
from mirrorlake.storage.store import Store
from mirrorlake.storage.urls import is_url

PROPERTIES = {
    "delta.enableChangeDataFeed": "true",  # in the CREATE, so that version 0 is covered (CF-142)
    "delta.enableDeletionVectors": "true",
    "delta.enableInCommitTimestamps": "true",  # a copied table keeps its times (CF-143)
    # Delta writes checkpoints within a commit, which then takes a second longer. Ours are written
    # between commits (`mirror/batch_limits.py`); this is for whoever writes the table without us.
    "delta.checkpointInterval": "10000",
}


def create(spark: SparkSession, location: str, step: CreateTable) -> None:
    """Make the table of a step; there may be one already, which is left alone."""
    # The name says where, with its backticks doubled; the builder needs the location beside it.
    named = DeltaTable.createIfNotExists(spark).tableName(_name(location))
    builder = named.location(location)
    for column in step.schema:
        builder = builder.addColumn(column.name, str(column.type))
    ours = {
        GENERATION: step.generation,
        KEY_COLUMNS: json.dumps(list(step.key)),
        FOLDER: step.folder,
        DETECTION: step.detection,
        **({RESEEDED: "true"} if step.replace else {}),
    }
    if step.required:
        ours[REQUIRED] = json.dumps(list(step.required))
    mapping = {"delta.columnMapping.mode": "name"} if needs_mapping(step.schema) else {}
    for name, value in {**PROPERTIES, **mapping, **ours}.items():
        builder = builder.property(name, value)
    builder.execute()


def drop(spark: SparkSession, store: Store, path: str) -> None:
    """Remove a table; there may be none. Delta replaces no table that has a path for its name."""
    if is_url(store.location(path)):
        tables.remove(store, path)  # a copy of each object would be all that moving adds
    else:
        move_aside(store, path)
        store.delete_folder(f"{DROPPED}/{path}")
    _forget(spark, store.location(path))


def put_aside(spark: SparkSession, store: Store, path: str) -> None:
    """Take a table away from where readers look, and from what the session remembers."""
    move_aside(store, path)
    _forget(spark, store.location(path))


def _forget(spark: SparkSession, place: str) -> None:
    jvm: Any = spark._jvm  # noqa: SLF001
    location = jvm.org.apache.hadoop.fs.Path(place)
    jvm.org.apache.spark.sql.delta.DeltaLog.invalidateCache(spark._jsparkSession, location)  # noqa: SLF001


def move_aside(store: Store, path: str) -> None:
    """Move a table to where no reader looks, in the place of one that was put there before."""
    tables.put_aside(store, path, f"{DROPPED}/{path}")


def add_columns(spark: SparkSession, location: str, step: AddColumns, known: Schema) -> None:
    """Add the columns that the table does not have yet."""
    new = [column for column in step.columns if column.name not in known]
    if not new:
        return
    table = _name(location)
    if needs_mapping(Schema.of(new)) and not needs_mapping(known):
        spark.sql(f"alter table {table} set tblproperties ('delta.columnMapping.mode' = 'name')")
    columns = ", ".join(f"{_quoted(column.name)} {column.type}" for column in new)
    spark.sql(f"alter table {table} add columns ({columns})")


def _name(location: str) -> str:
    return f"delta.{_quoted(location)}"


def set_key(spark: SparkSession, location: str, step: SetKey) -> None:
    """Remember the key of a table that had none."""
    # A string literal of SQL: JSON has no single quotes but in names, and backslashes escape.
    key = json.dumps(list(step.key)).replace("\\", "\\\\").replace("'", "\\'")
    spark.sql(
        f"alter table delta.{_quoted(location)} set tblproperties ('{KEY_COLUMNS}' = '{key}')"
    )


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
