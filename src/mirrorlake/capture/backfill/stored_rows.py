"""The rows of a table without ranges that does not fit into memory, in a file, by their hashes.

The file has no name, and is gone with the process.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import IO

import numpy as np
import pyarrow as pa

from mirrorlake.errors import StorageUnavailable
from mirrorlake.model.row_hashes import HASHES, HashRange

_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")
_BLOCK = 64 << 20
"""Bytes in memory that are written together: each hash gets its part of them."""


class StoredRows:
    """The rows with a hash in a range."""

    def __init__(self, hashes: HashRange, schema: pa.Schema) -> None:
        self._hashes, self._schema = hashes, schema
        self._file: IO[bytes] | None = None
        self._parts: list[list[tuple[int, int]]] = [[] for _hash in range(HASHES)]
        self._sizes = [0] * HASHES

    def add(self, rows: pa.Table) -> None:
        """Store those of these rows that are in the range. Raises StorageUnavailable."""
        count = max(rows.num_rows * _BLOCK // max(rows.nbytes, _BLOCK), 1)
        for begin in range(0, rows.num_rows, count):
            self._add(rows.slice(begin, count))

    def _add(self, rows: pa.Table) -> None:
        found = self._hashes.of(rows)
        order = np.argsort(found, kind="stable")
        ends = np.searchsorted(found[order], np.arange(HASHES + 1))
        rows = rows.take(pa.array(order)).combine_chunks()
        for number in range(self._hashes.first, self._hashes.end):
            begin, end = int(ends[number]), int(ends[number + 1])
            if begin < end:
                self._write(number, rows.slice(begin, end - begin))

    def _write(self, number: int, rows: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._schema, options=_OPTIONS) as writer:
            writer.write_table(rows)
        content = sink.getvalue()
        with _explained():
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115  (`close`)
            self._parts[number].append((self._file.tell(), content.size))
            self._file.write(content)
        self._sizes[number] += rows.nbytes

    def ranges(self, size: int) -> Iterator[tuple[HashRange, int]]:
        """Ranges of hashes, which together are all of them, and the bytes in memory of their rows:
        at most `size`, unless these are of one hash."""
        first, taken = self._hashes.first, 0
        for number in range(self._hashes.first, self._hashes.end):
            own = self._sizes[number]
            if taken and taken + own > size:
                yield replace(self._hashes, first=first, end=number), taken
                first, taken = number, 0
            taken += own
        yield replace(self._hashes, first=first), taken

    def read(self, hashes: HashRange) -> pa.Table:
        """The rows of a part of the range. Raises StorageUnavailable."""
        found = [self._schema.empty_table()]
        for number in range(hashes.first, hashes.end):
            for offset, size in self._parts[number]:
                assert self._file is not None
                with _explained():
                    self._file.seek(offset)
                    content = self._file.read(size)
                found.append(pa.ipc.open_stream(content).read_all())
        return pa.concat_tables(found)

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageUnavailable.of_temporary(
            error,
            "the rows of a table that has no ranges of a key cannot be kept in a temporary file",
            "Free space there, or set TMPDIR to a folder with more. It is tried again.",
        ) from error
