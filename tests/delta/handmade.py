"""A Delta table made by hand: commits are written as they are given, without Delta and without
care for other writers, and its rows are read file by file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mirrorlake.delta import deletion_vectors
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.delta.lookup.key_lookup import path_of
from mirrorlake.delta.schema import TableSchema, parse
from mirrorlake.delta.write.commit import write_commit
from mirrorlake.delta.write.data_files import CHANGE_TYPE
from mirrorlake.delta.write.rewrite import Rewritten, rewrite
from mirrorlake.delta.write.table_metadata import PROTOCOL, metadata
from mirrorlake.model.arrow import arrow_schema
from mirrorlake.model.net_changes import NetChanges
from mirrorlake.model.table import Schema
from mirrorlake.storage.urls import addressed, is_url
from tests.histories import rows_of
from tests.reference import Row, plain


class HandmadeTable:
    """The table at `location`, which is made when there is a schema for it.

    A URL is reached as the environment says. mapped: its columns have other names in files (column
    mapping). partitions: the columns that it is partitioned by.
    """

    def __init__(
        self,
        location: Path | str,
        schema: Schema | None = None,
        *,
        mapped: bool = False,
        partitions: Sequence[str] = (),
        properties: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.location, self.log = location, TableLog(location)
        if schema is not None:
            described = metadata(
                schema, mapped=mapped, partitions=partitions, properties=properties
            )
            self.commit([{"protocol": PROTOCOL}, {"metaData": described}])

    @property
    def path(self) -> Path:
        """The files of the table; those of objects are copied, by no way of ours."""
        if not is_url(self.location):
            return Path(self.location)
        store, key = addressed(str(self.location))
        self._copies = TemporaryDirectory(prefix="handmade-")
        for page in store._client.list(f"{key}/"):
            for meta in page:
                copy = Path(self._copies.name, meta["path"].removeprefix(f"{key}/"))
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(store._client.get(meta["path"]).bytes())
        return Path(self._copies.name)

    @property
    def schema(self) -> TableSchema:
        return parse(self.log.snapshot().metadata)

    @property
    def files(self) -> list[dict[str, Any]]:
        return list(self.log.snapshot().files.values())

    def commit(self, actions: Sequence[Mapping[str, Any]], **said: Any) -> int:
        """Write the next version, with what its commitInfo says; returns it."""
        version = self.log.snapshot().version + 1
        info = {"operation": "BY HAND", "timestamp": version, **said}
        assert write_commit(str(self.location), version, actions, **info)
        return version

    def apply(self, net: NetChanges, threads: int = 1) -> Rewritten:
        """Carry net changes into the table."""
        done = rewrite(self.path, self.files, self.schema, net, threads)
        self.commit(done.actions)
        return done

    def rows(self) -> list[Row]:
        table = self.path
        return [row for add in self.files for row in self.rows_in(table, add)]

    def feed(self, version: int) -> Counter[tuple[str, Row]]:
        """The change feed of one commit: its change files, or what its data files say."""
        actions = self.log.actions(version)
        images = [action["cdc"] for action in actions if "cdc" in action]
        if images:
            rows = [row for cdc in images for row in rows_of(self._read(self.path, cdc))]
            return Counter((row[-1], plain(row[:-1])) for row in rows)
        feed: Counter[tuple[str, Row]] = Counter()
        table = self.path
        for action in actions:
            for name, kind in (("add", "insert"), ("remove", "delete")):
                if name in action and action[name]["dataChange"]:
                    feed.update((kind, plain(row)) for row in self.rows_in(table, action[name]))
        return feed

    def rows_in(self, table: Path, add: Mapping[str, Any]) -> list[Row]:
        """The live rows of a data file."""
        # Data files that Delta's MERGE writes have the kind of change as well, without a value.
        found = self._read(table, add).select(self.schema.schema.names)
        live = np.ones(found.num_rows, bool)
        if add.get("deletionVector"):
            live[deletion_vectors.read(table, add["deletionVector"])] = False
        return rows_of(found.filter(pa.array(live)))

    def _read(self, table: Path, action: Mapping[str, Any]) -> pa.Table:
        """A file with the columns of the table, and the kind of change at their end."""
        path = path_of(table, action)
        # Spark writes moments as INT96, in nanoseconds, which end in 2262.
        found = pq.read_table(path, coerce_int96_timestamp_unit="us", partitioning=None)
        schema = self.schema
        values = action.get("partitionValues") or {}
        columns = [
            pa.array([values[name]] * found.num_rows, pa.string()).cast(field.type)
            if name in values
            else found[name].cast(field.type)
            if name in found.column_names
            else pa.nulls(found.num_rows, field.type)
            for name, field in zip(schema.physical, arrow_schema(schema.schema), strict=True)
        ]
        names = list(schema.schema.names)
        if CHANGE_TYPE in found.column_names:
            columns.append(found[CHANGE_TYPE])
            names.append(CHANGE_TYPE)
        return pa.table(columns, names=names)
