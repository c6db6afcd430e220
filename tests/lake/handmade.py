"""A Delta table made by hand: commits are written as they are given, without Delta and without
care for other writers, and its rows are read file by file."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mirrorlake.lake import vectors
from mirrorlake.lake.datafile import CHANGE_TYPE
from mirrorlake.lake.log import TableLog
from mirrorlake.lake.probe import path_of
from mirrorlake.lake.rewrite import Rewritten, rewrite
from mirrorlake.lake.schema import TableSchema, parse
from mirrorlake.model.arrow import arrow_schema
from mirrorlake.model.net import NetChanges
from mirrorlake.model.table import Schema
from tests.histories import rows_of
from tests.reference import Row, plain

PROTOCOL = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["deletionVectors", "columnMapping"],
    "writerFeatures": ["deletionVectors", "columnMapping", "changeDataFeed", "appendOnly"],
}


class HandmadeTable:
    """The table at `path`, which is made when there is a schema for it.

    mapped: its columns have other names in files (column mapping).
    """

    def __init__(
        self,
        path: Path,
        schema: Schema | None = None,
        *,
        mapped: bool = False,
        properties: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.path, self.log = path, TableLog(path)
        if schema is not None:
            (path / "_delta_log").mkdir(parents=True)
            described = metadata(schema, mapped=mapped)
            described["configuration"] |= properties
            self.commit([{"protocol": PROTOCOL}, {"metaData": described}])

    @property
    def schema(self) -> TableSchema:
        return parse(self.log.snapshot().metadata)

    @property
    def files(self) -> list[dict[str, Any]]:
        return list(self.log.snapshot().files.values())

    def commit(self, actions: Sequence[Mapping[str, Any]], **said: Any) -> int:
        """Write the next version, with what its commitInfo says; returns it."""
        version = self.log.snapshot().version + 1
        info = {"commitInfo": {"operation": "BY HAND", "timestamp": version, **said}}
        # Without escapes, as Delta writes it: not every reader understands all of them.
        lines = [json.dumps(action, ensure_ascii=False) for action in [info, *actions]]
        self.log.commit_file(version).write_text("\n".join(lines) + "\n", encoding="utf-8")
        return version

    def apply(self, net: NetChanges, threads: int = 1) -> Rewritten:
        """Carry net changes into the table."""
        done = rewrite(self.path, self.files, self.schema, net, threads)
        self.commit(done.actions)
        return done

    def rows(self) -> list[Row]:
        return [row for add in self.files for row in self._rows_of(add)]

    def feed(self, version: int) -> Counter[tuple[str, Row]]:
        """The change feed of one commit: its change files, or what its data files say."""
        actions = self.log.actions(version)
        images = [action["cdc"] for action in actions if "cdc" in action]
        if images:
            rows = [row for cdc in images for row in rows_of(self._read(cdc))]
            return Counter((row[-1], plain(row[:-1])) for row in rows)
        feed: Counter[tuple[str, Row]] = Counter()
        for action in actions:
            for name, kind in (("add", "insert"), ("remove", "delete")):
                if name in action and action[name]["dataChange"]:
                    feed.update((kind, plain(row)) for row in self._rows_of(action[name]))
        return feed

    def _rows_of(self, add: Mapping[str, Any]) -> list[Row]:
        """The live rows of a data file."""
        table = self._read(add)
        live = np.ones(table.num_rows, bool)
        if add.get("deletionVector"):
            live[vectors.read(self.path, add["deletionVector"])] = False
        return rows_of(table.filter(pa.array(live)))

    def _read(self, action: Mapping[str, Any]) -> pa.Table:
        """A file with the columns of the table, and the kind of change at their end."""
        path = path_of(self.path, action)
        # Spark writes moments as INT96, in nanoseconds, which end in 2262.
        table = pq.read_table(path, coerce_int96_timestamp_unit="us", partitioning=None)
        schema = self.schema
        columns = [
            table[name].cast(field.type)
            if name in table.column_names
            else pa.nulls(table.num_rows, field.type)
            for name, field in zip(schema.physical, arrow_schema(schema.schema), strict=True)
        ]
        names = list(schema.schema.names)
        if CHANGE_TYPE in table.column_names:
            columns.append(table[CHANGE_TYPE])
            names.append(CHANGE_TYPE)
        return pa.table(columns, names=names)


def metadata(schema: Schema, *, mapped: bool = False) -> dict[str, Any]:
    """The metaData action of a table with this schema."""
    fields = [
        {
            "name": column.name,
            "type": str(column.type),
            "nullable": column.nullable,
            "metadata": {
                "delta.columnMapping.id": number,
                "delta.columnMapping.physicalName": f"col-{number}",
            }
            if mapped
            else {},
        }
        for number, column in enumerate(schema, start=1)
    ]
    mapping = {
        "delta.columnMapping.mode": "name",
        "delta.columnMapping.maxColumnId": str(len(fields)),
    }
    return {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": {
            "delta.enableDeletionVectors": "true",
            "delta.enableChangeDataFeed": "true",
        }
        | (mapping if mapped else {}),
        "createdTime": 0,
    }
