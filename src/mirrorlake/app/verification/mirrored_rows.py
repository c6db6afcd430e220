"""The rows of a mirrored table at one version, by ranges of its key, without a JVM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.app.changes.cut import TableVersion
from mirrorlake.app.verification.comparison import aligned, lacking
from mirrorlake.capture.backfill.reading import ChunkLimits
from mirrorlake.delta.deletion_vectors import BrokenVector
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.delta.lookup.key_lookup import live_rows
from mirrorlake.delta.lookup.key_range import overlapping
from mirrorlake.delta.schema import TableSchema, parse
from mirrorlake.delta.workspace import OutsideTable, TableWorkspace, open_workspace
from mirrorlake.errors import BadFile, TableError
from mirrorlake.landing.parquet.reader import match_columns
from mirrorlake.model.arrow import arrow_schema
from mirrorlake.model.change import ROW_DELETED
from mirrorlake.model.keys import KeyRange

_TOLERANCE = 2
"""How often the memory of the source's rows, or of its limits, the rows of a range may take."""


class MirroredRows:
    """A version of a table. Rows that are marked as deleted are not among its rows."""

    def __init__(self, version: TableVersion, workspace: TableWorkspace) -> None:
        snapshot = TableLog(version.location, version.options).snapshot_at(version.version)
        self._schema: TableSchema = parse(snapshot.metadata)
        self._files = list(snapshot.files.values())
        self._table = version.table
        self._workspace = workspace

    def within(
        self, source: pa.Table, key: Sequence[str], keys: KeyRange, limits: ChunkLimits
    ) -> pa.Table:
        """The rows with a key in the range, in any order, with the columns of `source`, which are
        its rows there. Reads the files that can have some. Raises TableError for other columns, a
        damaged file, and far more rows than the source has there; FileNotFoundError, LostFile,
        Unreachable."""
        names = self._names(source.column_names)
        own = [names[name] for name in key]
        hashes = keys.hashes
        keys = KeyRange(_renamed(keys.low, names), _renamed(keys.high, names), keys.is_closed)
        self._check(keys)
        if hashes is not None:
            own_columns = tuple(names[name] for name in hashes.columns)
            keys = KeyRange(hashes=replace(hashes, columns=own_columns))
        most = _TOLERANCE * max(source.nbytes, limits.size if key else limits.whole)
        found = [arrow_schema(self._schema.schema).empty_table().select(list(names.values()))]
        size = 0
        for add in overlapping(self._files, self._schema, own, keys) if key else self._files:
            rows = self._rows_of(add)
            if ROW_DELETED in rows.column_names:
                rows = rows.filter(pc.invert(pc.fill_null(rows[ROW_DELETED], False)))
            rows = rows.select(list(names.values()))
            found.append(rows.filter(pa.array(keys.contains(rows))))
            size += found[-1].nbytes
            if size > most:
                raise self._far_more(source, found)
        return pa.concat_tables(found).rename_columns(source.column_names)

    def _names(self, columns: Sequence[str]) -> Mapping[str, str]:
        """The columns of the source with their names here (LZ-156). Raises TableError."""
        names = match_columns(list(columns), arrow_schema(self._schema.schema).names)
        for name in columns:
            if name not in names:
                raise lacking(self._table, name)
        return names

    def _far_more(self, source: pa.Table, found: Sequence[pa.Table]) -> TableError:
        rows = sum(part.num_rows for part in found)
        return TableError(
            "the mirror has far more rows than the source in a range of the key: at least "
            f"{rows:,} instead of {source.num_rows:,}",
            table=self._table,
            hint=f"`mirrorlake reset {self._table}` loads the table anew.",
        )

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

    def _check(self, keys: KeyRange) -> None:
        """Raises TableError where the columns of the key cannot have the bounds."""
        columns = arrow_schema(self._schema.schema)
        for bound in (bound for bound in (keys.low, keys.high) if bound is not None):
            for name in bound.column_names:
                aligned(bound[name], columns.field(name).type, self._table, name)


def _renamed(bound: pa.Table | None, names: Mapping[str, str]) -> pa.Table | None:
    return (
        None
        if bound is None
        else bound.rename_columns([names[name] for name in bound.column_names])
    )


@contextmanager
def opened(version: TableVersion) -> Iterator[MirroredRows]:
    """The rows of a version. Raises FileNotFoundError, BrokenLog when it is no longer kept."""
    with open_workspace(version.location, version.options) as workspace:
        yield MirroredRows(version, workspace)
