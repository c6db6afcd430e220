"""Rows that are found by their key, in files beside a table: what its consumer remembers.

The files are those of a Delta table without a log: data files and deletion vectors, named by add
actions. Which of them count is told by whoever keeps them (`state`), so that they change all at
once. Nothing is ever written into a file that is there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from mirrorlake.delta.lookup.key_lookup import candidates, find_rows
from mirrorlake.delta.schema import TableSchema
from mirrorlake.delta.write.compact import compact
from mirrorlake.delta.write.rewrite import taken_out, written
from mirrorlake.mirror.compaction import small_files
from mirrorlake.model.arrow import arrow_schema
from mirrorlake.model.table import Column, Schema

Adds = tuple[Mapping[str, Any], ...]
"""Add actions, as Delta has them."""

THREADS = 2


@dataclass(frozen=True, slots=True)
class KeyedFiles:
    """Rows with these columns in these files of a folder. key: by which they are ordered."""

    folder: Path
    schema: TableSchema
    key: tuple[str, ...]
    files: Adds = ()

    @classmethod
    def of(
        cls, folder: Path, columns: Sequence[Column], key: Sequence[str], files: Adds
    ) -> KeyedFiles:
        names = tuple(column.name for column in columns)
        schema = TableSchema(Schema.of(columns), names, (None,) * len(names))
        return cls(folder, schema, tuple(key), files)

    @property
    def arrow(self) -> pa.Schema:
        return arrow_schema(self.schema.schema)

    def find(self, keys: pa.Table) -> pa.Table:
        """The rows that have one of these keys, distinct, in some of the columns."""
        searched = candidates(self.files, self.schema, keys)
        return find_rows(self.folder, searched, self.schema, keys, THREADS).rows

    def put(self, rows: pa.Table, instead_of: pa.Table | None = None) -> KeyedFiles:
        """With these rows, in the place of all that have one of some keys (distinct)."""
        self.folder.mkdir(parents=True, exist_ok=True)
        actions = written(self.folder, self.schema, rows, list(self.key))
        if instead_of is not None:
            searched = candidates(self.files, self.schema, instead_of)
            found = find_rows(self.folder, searched, self.schema, instead_of, THREADS)
            actions += taken_out(self.folder, searched, found)
        return self._with(actions)

    def compacted(self) -> KeyedFiles:
        """With fewer files, where there are many small ones."""
        chosen = small_files.choose(self.files)
        if not chosen:
            return self
        return self._with(compact(self.folder, chosen, self.schema, self.key))

    def _with(self, actions: Sequence[Mapping[str, Any]]) -> KeyedFiles:
        gone = {one["remove"]["path"] for one in actions if "remove" in one}
        left = [add for add in self.files if add["path"] not in gone]
        added = [one["add"] for one in actions if "add" in one]
        return replace(self, files=(*left, *added))


def sweep(folder: Path, used: Collection[str]) -> None:
    """Remove the files of a folder that nothing names. used: names of files."""
    if not folder.exists():
        return
    for file in folder.iterdir():
        if file.suffix in {".parquet", ".bin"} and file.name not in used:
            file.unlink(missing_ok=True)
