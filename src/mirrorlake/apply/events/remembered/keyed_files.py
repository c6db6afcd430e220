"""Files of rows that are looked up by key, in which the consumer keeps its state beside a table.

They are files of a Delta table without a log: data files and deletion vectors, described by add
actions. The owner of the state (`state`) stores the list of current files, so that all change
atomically. Existing files are never modified.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mirrorlake.delta.lookup.key_lookup import KeyedRows, candidates, find_rows, live_rows
from mirrorlake.delta.schema import TableSchema
from mirrorlake.delta.workspace import LostFile, TableWorkspace
from mirrorlake.delta.write.compact import compact
from mirrorlake.delta.write.rewrite import delete_rows, write_data_files
from mirrorlake.mirror.compaction import small_files
from mirrorlake.model.arrow import arrow_schema
from mirrorlake.model.table import Column, Schema

Adds = tuple[Mapping[str, Any], ...]
"""Add actions, as in Delta."""


class DamagedFiles(Exception):
    """A file is missing or cannot be read; the argument is the reason."""


THREADS = 2
"""How many threads read or write at once."""


@dataclass(frozen=True, slots=True)
class KeyedFiles:
    """Rows with these columns in these files of a workspace. key: the columns by which they are
    sorted."""

    workspace: TableWorkspace
    schema: TableSchema
    key: tuple[str, ...]
    files: Adds = ()

    @classmethod
    def of(
        cls,
        workspace: TableWorkspace,
        columns: Sequence[Column],
        key: Sequence[str],
        files: Adds,
    ) -> KeyedFiles:
        return cls(workspace, _schema(columns), tuple(key), files)

    @property
    def folder(self) -> Path:
        return self.workspace.folder

    @property
    def arrow(self) -> pa.Schema:
        return arrow_schema(self.schema.schema)

    def find(self, keys: pa.Table, unread: Collection[str] = ()) -> KeyedRows:
        """The rows with one of these distinct keys, given in some of the columns. unread: columns
        that the rows shall not have."""
        searched, schema = candidates(self.files, self.schema, keys), self.schema
        if unread:
            schema = _schema([one for one in schema.schema if one.name not in unread])
        with reading():
            self.workspace.fetch(searched)
            found = find_rows(self.folder, searched, schema, keys, THREADS)
        return KeyedRows(found, searched)

    def put(self, rows: pa.Table, instead_of: KeyedRows | None = None) -> KeyedFiles:
        """With these rows added, which replace those in `instead_of`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        actions = write_data_files(self.folder, self.schema, rows, list(self.key))
        if instead_of is not None:
            actions += delete_rows(self.folder, instead_of.searched, instead_of.matches)
        return self._with(actions)

    def live(self, add: Mapping[str, Any]) -> pa.Table:
        """The rows of one of the files."""
        with reading():
            self.workspace.fetch([add])
            return live_rows(self.folder, add, self.schema)

    def replaced(self, add: Mapping[str, Any], rows: pa.Table) -> KeyedFiles:
        """With these rows in the place of one of the files."""
        left = [file for file in self.files if file["path"] != add["path"]]
        if rows.num_rows:
            actions = write_data_files(self.folder, self.schema, rows, list(self.key))
            left += [action["add"] for action in actions]
        return replace(self, files=tuple(left))

    def compacted(self) -> KeyedFiles:
        """With small files merged, if there are many."""
        chosen = small_files.choose(self.files)
        if not chosen:
            return self
        with reading():
            self.workspace.fetch(chosen)
            return self._with(compact(self.folder, chosen, self.schema, self.key))

    def without(
        self,
        chosen: Callable[[pa.Table], np.ndarray],
        may_have: Callable[[Mapping[str, Any]], bool],
    ) -> KeyedFiles:
        """Without some rows.

        chosen: returns which rows of a file to remove, bool.
        may_have: whether a file may contain such rows, from the minimum of each column.
        """
        found = self
        for add in self.files:
            if may_have(json.loads(add["stats"])["minValues"]):
                rows = self.live(add)
                which = chosen(rows)
                if which.any():
                    found = found.replaced(add, rows.filter(pa.array(~which)))
        return found

    def _with(self, actions: Sequence[Mapping[str, Any]]) -> KeyedFiles:
        gone = {action["remove"]["path"] for action in actions if "remove" in action}
        left = [add for add in self.files if add["path"] not in gone]
        added = [action["add"] for action in actions if "add" in action]
        return replace(self, files=(*left, *added))


def _schema(columns: Sequence[Column]) -> TableSchema:
    names = tuple(column.name for column in columns)
    return TableSchema(Schema.of(columns), names, (None,) * len(names))


@contextmanager
def reading() -> Iterator[None]:
    """Errors of missing and damaged files as DamagedFiles. Other errors of the system, such as a
    full disk, have a number."""
    try:
        yield
    except FileNotFoundError as error:
        raise DamagedFiles(f"{Path(str(error.filename or '')).name} is missing") from error
    except LostFile as error:
        raise DamagedFiles(f"{error} is missing") from error
    except (pa.ArrowException, ValueError) as error:
        raise DamagedFiles(str(error)) from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise DamagedFiles(str(error)) from error
