"""The rows of a mirrored table at one version, by ranges of its key, without a JVM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.app.changes.cut import TableVersion
from mirrorlake.app.verification.comparison import aligned, lacking
from mirrorlake.delta.deletion_vectors import BrokenVector
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.delta.lookup.key_lookup import live_rows
from mirrorlake.delta.lookup.key_range import overlapping
from mirrorlake.delta.schema import TableSchema, parse
from mirrorlake.delta.workspace import OutsideTable, TableWorkspace, open_workspace
from mirrorlake.errors import BadFile
from mirrorlake.model.arrow import arrow_schema
from mirrorlake.model.change import ROW_DELETED
from mirrorlake.model.keys import KeyRange


class MirroredRows:
    """A version of a table. Rows that are marked as deleted are not among its rows."""

    def __init__(self, version: TableVersion, workspace: TableWorkspace) -> None:
        snapshot = TableLog(version.location, version.options).snapshot_at(version.version)
        self._schema: TableSchema = parse(snapshot.metadata)
        self._files = list(snapshot.files.values())
        self._table = version.table
        self._workspace = workspace

    def within(self, key: Sequence[str], keys: KeyRange) -> pa.Table:
        """The rows with a key in the range, in any order; all rows for no key. Reads the files
        that can have some. Raises TableError for another key or a damaged file,
        FileNotFoundError, LostFile, Unreachable."""
        columns = arrow_schema(self._schema.schema)
        self._check(columns, key, keys)
        found = [columns.empty_table()]
        files = overlapping(self._files, self._schema, key, keys) if key else self._files
        for add in files:
            rows = self._rows_of(add)
            if ROW_DELETED in rows.column_names:
                rows = rows.filter(pc.invert(pc.fill_null(rows[ROW_DELETED], False)))
            if key:
                rows = rows.filter(pa.array(keys.contains(rows)))
            found.append(rows)
        return pa.concat_tables(found)

    def _rows_of(self, add: Mapping[str, Any]) -> pa.Table:
        """The rows of a data file. Raises BadFile when it is damaged, or not one of the table."""
        try:
            self._workspace.fetch([add])
            return live_rows(self._workspace.folder, add, self._schema)
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException, OutsideTable, BrokenVector) as error:
            raise BadFile(
                f"a data file of the mirror cannot be read: {error}",
                table=self._table,
                file=str(add["path"]),
                hint=f"`mirrorlake reset {self._table}` loads the table anew.",
            ) from error

    def _check(self, columns: pa.Schema, key: Sequence[str], keys: KeyRange) -> None:
        """Raises TableError where the rows have no such key."""
        for name in key:
            if name not in columns.names:
                raise lacking(self._table, name)
        for bound in (bound for bound in (keys.low, keys.high) if bound is not None):
            for name in bound.column_names:
                aligned(bound[name], columns.field(name).type, self._table, name)


@contextmanager
def opened(version: TableVersion) -> Iterator[MirroredRows]:
    """The rows of a version. Raises FileNotFoundError, BrokenLog when it is no longer kept."""
    with open_workspace(version.location, version.options) as workspace:
        yield MirroredRows(version, workspace)
