"""Add actions in columns, as they are sent to tasks.

The add actions of 100,000 files contain tens of megabytes of statistics. As dictionaries they take
seconds to send to each task; as columns they take a few megabytes, and a task decodes only the
actions of the files that may contain its keys.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, overload

import pyarrow as pa
import pyarrow.compute as pc

Action = Mapping[str, Any]

MANY = 1_000
"""Number of files from which columns are smaller and faster than dictionaries."""

_SCHEMA = pa.schema(
    [
        ("path", pa.large_string()),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats", pa.large_string()),
        ("others", pa.large_string()),
    ]
)
_COLUMNS = frozenset(_SCHEMA.names[:-1])


class FileList(Sequence[Action]):
    """Add actions that are decoded when accessed, without their null members, but always with
    `partitionValues`.

    columns: one row per file; `others` is the JSON of all members without a column, null if these
    are only empty `partitionValues`.
    """

    def __init__(self, columns: pa.RecordBatch) -> None:
        self._columns = columns

    @classmethod
    def of(cls, files: Sequence[Action]) -> FileList:
        """Raises ValueError, TypeError or KeyError for actions that do not fit into columns."""
        members = [[add.get(name) for add in files] for name in _SCHEMA.names[:-1]]
        return cls(pa.record_batch([*members, [_others(add) for add in files]], schema=_SCHEMA))

    def __len__(self) -> int:
        return int(self._columns.num_rows)

    @overload
    def __getitem__(self, index: int) -> Action: ...

    @overload
    def __getitem__(self, index: slice) -> FileList: ...

    def __getitem__(self, index: int | slice) -> Action | FileList:
        if isinstance(index, slice):
            return self.chosen(range(*index.indices(len(self))))
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        return _decoded(self._columns.slice(index % len(self), 1).to_pylist()[0])

    def __iter__(self) -> Iterator[Action]:
        for start in range(0, len(self), MANY):
            yield from map(_decoded, self._columns.slice(start, MANY).to_pylist())

    def __reduce__(self) -> tuple[Callable[[bytes], FileList], tuple[bytes]]:
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_stream(sink, _SCHEMA, options=options) as writer:
            writer.write_batch(self._columns)
        return _received, (sink.getvalue().to_pybytes(),)

    def chosen(self, indexes: Sequence[int]) -> FileList:
        """The actions with these indexes."""
        return FileList(self._columns.take(pa.array(indexes, pa.int64())))

    @property
    def sizes(self) -> pa.Array:
        """The size of each file."""
        return self._columns["size"]

    @property
    def stats(self) -> pa.Array:
        """The statistics of each file as JSON; null if it has none."""
        return self._columns["stats"]

    @property
    def bytes(self) -> int:
        """The total size of the files."""
        return int(pc.sum(self._columns["size"]).as_py() or 0)


def in_columns(files: Sequence[Action]) -> Sequence[Action]:
    """The actions as a FileList if there are at least `MANY` and they fit into columns; otherwise
    unchanged."""
    if len(files) < MANY:
        return files
    try:
        return FileList.of(files)
    except (ValueError, TypeError, KeyError, OverflowError):  # Arrow's errors derive from these
        return files


def total_bytes(files: Sequence[Action]) -> int:
    """The total size of data files."""
    return files.bytes if isinstance(files, FileList) else sum(int(add["size"]) for add in files)


def chosen(files: Sequence[Action], indexes: Sequence[int]) -> Sequence[Action]:
    """The actions with these indexes. Of a FileList no others are decoded."""
    return list(
        files.chosen(indexes) if isinstance(files, FileList) else map(files.__getitem__, indexes)
    )


def sizes(files: Sequence[Action], indexes: Sequence[int]) -> list[int]:
    """The sizes of the files with these indexes."""
    if isinstance(files, FileList):
        return list(files.sizes.take(pa.array(indexes, pa.int64())).to_pylist())
    return [int(files[index]["size"]) for index in indexes]


def _others(add: Action) -> str | None:
    names = add.keys() - _COLUMNS
    if names == {"partitionValues"} and add["partitionValues"] == {}:
        return None
    return json.dumps({name: add[name] for name in names})


def _decoded(row: dict[str, Any]) -> Action:
    others = row.pop("others")
    rest = {"partitionValues": {}} if others is None else json.loads(others)
    return {name: value for name, value in row.items() if value is not None} | rest


def _received(content: bytes) -> FileList:
    with pa.ipc.open_stream(content) as reader:
        return FileList(reader.read_next_batch())
