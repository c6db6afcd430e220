"""Creates and alters tables through Delta's public interface."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from mirrorlake.apply.table_definitions import properties_of
from mirrorlake.delta import tables
from mirrorlake.delta.log.first_commit import is_begun, is_free
from mirrorlake.delta.schema import VECTORS
from mirrorlake.delta.write.table_metadata import metadata
from mirrorlake.errors import UnsupportedColumn
from mirrorlake.mirror.batch_limits import CHECKPOINT_EVERY
from mirrorlake.mirror.schema_evolution import needs_mapping
from mirrorlake.mirror.settings import TableTemplate
from mirrorlake.mirror.steps import AddColumns, CreateTable
from mirrorlake.mirror.strategy import APPEND_ONLY, StrategyName
from mirrorlake.mirror.table.progress import Progress, table_name
from mirrorlake.model.crash_points import CrashHook, no_crash
from mirrorlake.model.table import Schema, TableId
from mirrorlake.root import DROPPED
from mirrorlake.spark.committer import SparkCommitter
from mirrorlake.spark.errors import refused_by_delta
from mirrorlake.spark.maintenance.checkpoint import Checkpoints, leave_to_delta
from mirrorlake.spark.maintenance.vacuum import vacuum
from mirrorlake.spark.session.internals import MISSING, report_missing
from mirrorlake.spark.session.thread_sessions import Sessions
from mirrorlake.spark.sql_text import quoted
from mirrorlake.storage.store import Store
from mirrorlake.storage.urls import is_url

PROPERTIES = {
    "delta.enableChangeDataFeed": "true",  # in the CREATE, so that version 0 is covered (CF-142)
    VECTORS: "true",
    "delta.enableInCommitTimestamps": "true",  # a copied table keeps its times (CF-143)
    # Delta writes checkpoints within a commit, which then takes a second longer. Ours are written
    # between commits (`mirror/batch_limits.py`); this is for other writers of the table.
    "delta.checkpointInterval": "10000",
}


DEFAULTS = "spark.databricks.delta.properties.defaults."

AGAINST_DEFAULTS = {
    APPEND_ONLY: "false",
    "delta.enableRowTracking": "false",
    "delta.enableIcebergCompatV1": "false",
    "delta.enableIcebergCompatV2": "false",
}
"""What new tables say where the session has defaults. By these no update or deletion would be
possible, only Delta could write the table, or it could not be created."""

COMPATIBLE = {**PROPERTIES, VECTORS: "false"}


class SparkTables:
    """A `TableDefinitions` on a session.

    committer: creates tables, alone or in the commit of their first rows, with a tested Delta.
    clock: monotonic, in seconds.
    template: of the tables that it creates.
    """

    def __init__(
        self,
        spark: SparkSession,
        store: Store,
        clock: Callable[[], float] = time.monotonic,
        committer: SparkCommitter | None = None,
        template: TableTemplate = TableTemplate.FAST,
        reached: CrashHook = no_crash,
    ) -> None:
        self._spark, self._store, self._template = spark, store, template
        self._sessions = Sessions(spark)
        # `direct` writes tables of the other template.
        self._committer = committer if template is TableTemplate.FAST else None
        self._properties = PROPERTIES if template is TableTemplate.FAST else COMPATIBLE
        self._checkpoints = Checkpoints(spark, clock, reached)

    def metadata_of(self, step: CreateTable) -> Mapping[str, Any] | None:
        # Delta refuses rows in the commit that creates a table with mapped columns and a feed.
        can = self._committer is not None and not needs_mapping(step.schema)
        if not (can and is_free(self._store, step.path)) or has_defaults(self._spark):
            return None
        return self._metadata(step)

    def _metadata(self, step: CreateTable) -> dict[str, Any]:
        described = metadata(step.schema, properties=self._properties_of(step))
        return described | {"createdTime": int(time.time() * 1000)}

    def _properties_of(self, step: CreateTable) -> dict[str, str]:
        against = AGAINST_DEFAULTS if has_defaults(self._spark) else {}
        return {**against, **self._properties, **properties_of(step)}

    def create(self, step: CreateTable) -> None:
        location = self._store.location(step.path)
        self._check_names(step.table, step.schema)
        with refused_by_delta(step.table), self._sessions.active() as session:
            if step.replace:
                self._remove(step.path)
            if (committer := self._creator(location)) and self._is_free(step.path):
                committer.create(location, self._metadata(step))
                return
            # The name is the path, with backticks doubled; the builder needs the location too.
            named = DeltaTable.createIfNotExists(session).tableName(_name(location))
            builder = named.location(location)
            for column in step.schema:
                builder = builder.addColumn(column.name, str(column.type))
            for name, value in self._properties_of(step).items():
                builder = builder.property(name, value)
            builder.execute()

    def add_columns(self, step: AddColumns, known: Progress) -> None:
        new = [column for column in step.columns if column.name not in known.schema]
        if not new:
            return
        table = _name(self._store.location(step.path))
        if known.properties.get(VECTORS) != "true":  # the table may have the other template
            self._check_names(step.table, Schema.of(new))
        mapped = needs_mapping(Schema.of(new)) and not needs_mapping(known.schema)
        columns = ", ".join(f"{quoted(column.name)} {column.type}" for column in new)
        with refused_by_delta(step.table), self._sessions.active() as session:
            if mapped:
                mode = "'delta.columnMapping.mode' = 'name'"
                session.sql(f"alter table {table} set tblproperties ({mode})")
            session.sql(f"alter table {table} add columns ({columns})")

    def set_properties(self, path: str, properties: Mapping[str, str]) -> None:
        table = _name(self._store.location(path))
        given = ", ".join(
            f"{_literal(key)} = {_literal(value)}" for key, value in properties.items()
        )
        table_id = TableId.parse(table_name(path))
        with refused_by_delta(table_id), self._sessions.active() as session:
            session.sql(f"alter table {table} set tblproperties ({given})")

    def put_aside(self, path: str) -> None:
        with refused_by_delta(TableId.parse(table_name(path))):
            tables.put_aside(self._store, path, f"{DROPPED}/{path}")
            self._forget(path)

    def vacuum(self, path: str, retention: timedelta, before: Callable[[], None]) -> None:
        location, options = self._store.location(path), self._store.options(path)
        with refused_by_delta(TableId.parse(table_name(path))):
            vacuum(self._spark, location, options, retention, before)

    def checkpoint(self, path: str, known: Progress, strategy: StrategyName) -> None:
        location = self._store.location(path)
        table = TableId.parse(table_name(path))
        with refused_by_delta(table), self._sessions.active() as session:
            if strategy is StrategyName.MERGE:
                leave_to_delta(session, location, known.properties, CHECKPOINT_EVERY)
            else:
                self._checkpoints.write(location)

    def _check_names(self, table: TableId, schema: Schema) -> None:
        """Raises UnsupportedColumn for a name that a table of this template cannot have."""
        if self._template is TableTemplate.FAST or not needs_mapping(schema):
            return
        name = next(column.name for column in schema if needs_mapping(Schema.of([column])))
        raise UnsupportedColumn(
            f"column {name} has a name that needs column mapping, which template compatible leaves "
            "out",
            table=str(table),
            column=name,
            hint="Rename the column at the source, leave it out, or set mirror.template: fast.",
        )

    def _creator(self, location: str) -> SparkCommitter | None:
        """What creates a table at a location; None for Delta's builder, which refuses a folder with
        the files of an earlier attempt."""
        return self._committer or (SparkCommitter(self._spark) if is_begun(location) else None)

    def _is_free(self, path: str) -> bool:
        """Whether there is nothing of others; otherwise Delta decides what to do."""
        if is_url(self._store.location(path)):
            return not tables.has_files(self._store, path)
        return is_free(self._store, path)

    def _remove(self, path: str) -> None:
        """Remove a table, if it exists. Delta cannot replace a table that is named by its path."""
        if is_url(self._store.location(path)):
            tables.remove(self._store, path)  # moving would only add a copy of each object
        else:
            tables.put_aside(self._store, path, f"{DROPPED}/{path}")
            self._store.delete_folder(f"{DROPPED}/{path}")
        self._forget(path)

    def _forget(self, path: str) -> None:
        """Invalidate what the session has cached of a table. Delta would notice at its next look
        that the log is gone, or another one."""
        location = self._store.location(path)
        try:
            jvm: Any = self._spark._jvm  # noqa: SLF001
            log = jvm.org.apache.spark.sql.delta.DeltaLog
            folder = jvm.org.apache.hadoop.fs.Path(location)
            log.invalidateCache(self._spark._jsparkSession, folder)  # noqa: SLF001
        except MISSING as error:
            report_missing("DeltaLog.invalidateCache", "refreshByPath", error)
            self._spark.catalog.refreshByPath(location)


def has_defaults(spark: SparkSession) -> bool:
    """Whether Delta adds properties of the session to new tables, such as column mapping, so that
    only a table that is there tells how its files are written."""
    try:  # at once: `getAll` takes requests for each setting
        names = str(spark.conf._jconf.getAllAsJava().keySet().toString())  # noqa: SLF001
    except MISSING as error:
        report_missing("RuntimeConfig.getAllAsJava", "RuntimeConfig.getAll", error)
        names = " ".join(spark.conf.getAll)
    return DEFAULTS in names


def _literal(text: str) -> str:
    """An SQL string literal, in which backslashes are escape characters."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _name(location: str) -> str:
    return f"delta.{quoted(location)}"
