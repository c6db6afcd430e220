"""Where in a data file a key is, without reading the keys: an index beside the table.

An index belongs to one data file. It holds, for each row, 32 bits of a hash of the key and the
number of the row, in order of the hash: eight bytes a row, to be searched where they lie on disk.
What it finds is where to look, and what is there has to be compared; that it finds nothing is
relied upon. So an index counts only when it is whole (a checksum) and was made of this very file
(its name, size, rows and the checksum of its footer), of these key columns, by this hash.

Any of them may be deleted at any time: it is made again by whoever misses it. They lie in
`_mirrorlake/keys` of the table, where neither readers nor VACUUM look, and go after their data
files (`sweep`).
"""

from __future__ import annotations

import json
import os
import struct
import uuid
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlparse

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mirrorlake.delta.lookup import key_hash
from mirrorlake.delta.schema import TableSchema

FOLDER = "_mirrorlake/keys"
SUFFIX = ".keys"

LEAST_ROWS = 65_536
"""Rows of a file for which an index is worth while: the keys of fewer are read at once."""

MOST_ROWS = 16_000_000
"""Rows of a file whose keys are hashed and sorted in memory, at 60 to 90 bytes each; larger ones
have no index."""

REMEMBERED = 512
"""Indexes that stay mapped into memory after they were checked."""

_MAGIC = b"MLKEYS01"
_ROW = np.uint64(0xFFFFFFFF)
"""The bits of an entry that are the number of a row; no data file has more rows."""


class Sought:
    """Keys to be found in many files. code: which key; least: the first entry it can have."""

    def __init__(self, code: np.ndarray, least: np.ndarray) -> None:
        self.code, self.least = code, least

    @classmethod
    def of(cls, keys: pa.Table, schema: TableSchema) -> Sought:
        hashes = key_hash.of_keys(keys, schema) & ~_ROW
        code = np.argsort(hashes)
        return cls(code, hashes[code])

    def only(self, codes: np.ndarray | None) -> Sought:
        """Some of these keys; all for None."""
        if codes is None or len(codes) == len(self.code):
            return self
        wanted = np.zeros(len(self.code), bool)
        wanted[codes] = True
        kept = wanted[self.code]
        return Sought(self.code[kept], self.least[kept])


class KeyIndex:
    """An index that was checked. entries: uint64, ascending; a hash above, a row number below."""

    def __init__(self, entries: np.ndarray) -> None:
        self._entries = entries

    def find(self, sought: Sought) -> tuple[np.ndarray, np.ndarray]:
        """Rows that may have one of the keys: which key, and the row; int64."""
        first = np.searchsorted(self._entries, sought.least)
        near = self._entries[np.minimum(first, len(self._entries) - 1)]
        # Most keys are in other files, and most of those that are here are here once.
        hit = near & ~_ROW == sought.least
        code, first, least = sought.code[hit], first[hit], sought.least[hit]
        count = np.searchsorted(self._entries, least | _ROW, side="right") - first
        begins = np.cumsum(count) - count
        entries = np.repeat(first - begins, count) + np.arange(int(count.sum()))
        rows = self._entries[entries] & _ROW
        return np.repeat(code, count), rows.astype(np.int64)


def opened(
    table: Path, add: Mapping[str, Any], schema: TableSchema, key: Sequence[str]
) -> KeyIndex | None:
    """The index of a file; None when there is none that counts."""
    index, data = index_path(table, add), _data(table, add)
    if index is None or data is None:
        return None
    try:
        facts, own = index.stat(), data.stat()
        said = (facts.st_ino, facts.st_size, facts.st_mtime_ns, own.st_size, own.st_mtime_ns)
        return _checked(str(index), str(data), _about(schema, key), said)
    except (OSError, ValueError):
        return None


def build(
    table: Path, add: Mapping[str, Any], schema: TableSchema, key: Sequence[str]
) -> KeyIndex | None:
    """Make the index of a file from its keys; None where there can be none.

    A table that cannot be written to has none, and neither has a file that lacks a key column.
    """
    index, data = index_path(table, add), _data(table, add)
    if index is None or data is None:
        return None
    try:
        hashes = key_hash.of_file(str(data), schema, key)
    except (duckdb.Error, OSError):
        return None  # whoever reads the file for its rows says what is wrong with it
    if hashes is None or not len(hashes):
        return None
    entries = hashes & ~_ROW | np.arange(len(hashes), dtype=np.uint64)
    entries.sort()
    try:
        _write(index, _header(data, len(entries), _about(schema, key)), entries)
    except (OSError, ValueError):
        return None
    return KeyIndex(entries)


def index_path(table: Path, add: Mapping[str, Any]) -> Path | None:
    """Where the index of a file lies; None for files that are not the table's own."""
    path = add["path"]
    if urlparse(path).scheme:
        return None
    inner = PurePosixPath(unquote(path))
    if inner.is_absolute() or ".." in inner.parts:
        return None
    return table / FOLDER / f"{inner}{SUFFIX}"


def sweep(table: Path) -> int:
    """Remove the indexes whose data files are gone; returns how many."""
    root, gone = table / FOLDER, 0
    for index in root.rglob(f"*{SUFFIX}*"):
        data = table / index.relative_to(root).with_name(index.name.split(SUFFIX)[0])
        if index.is_file() and (index.suffix != SUFFIX or not data.exists()):
            index.unlink(missing_ok=True)
            gone += 1
    return gone


def _data(table: Path, add: Mapping[str, Any]) -> Path:
    return table / unquote(add["path"])


def _about(schema: TableSchema, key: Sequence[str]) -> str:
    """What the entries are made of."""
    columns = [[schema.physical_of(name), str(schema.schema[name].type)] for name in key]
    return json.dumps({"columns": columns, "hash": key_hash.name(schema, key)})


def _header(data: Path, rows: int, about: str) -> bytes:
    """What an index says of its data file. Raises OSError, ValueError."""
    size = data.stat().st_size
    with data.open("rb") as file:
        file.seek(max(size - 8, 0))
        length = struct.unpack("<I", file.read(4))[0]
        file.seek(max(size - 8 - length, 0))
        footer = zlib.crc32(file.read())
    facts = {"data": data.name, "size": size, "rows": rows, "footer": footer, "of": about}
    return json.dumps(facts).encode()


def _write(index: Path, header: bytes, entries: np.ndarray) -> None:
    """Under its name at once. Not flushed to disk: what a crash leaves of it does not count."""
    index.parent.mkdir(parents=True, exist_ok=True)
    aside = index.with_name(f"{index.name}.{uuid.uuid4().hex}")
    content = entries.data
    try:
        with aside.open("wb") as file:
            file.write(_MAGIC + struct.pack("<II", len(header), zlib.crc32(content)) + header)
            file.write(b"\0" * (-file.tell() % 8))
            file.write(content)
        aside.replace(index)
    finally:
        aside.unlink(missing_ok=True)


@lru_cache(maxsize=REMEMBERED)
def _checked(index: str, data: str, about: str, _facts: tuple[int, ...]) -> KeyIndex:
    """Raises ValueError when it is damaged or not of this file, OSError."""
    with Path(index).open("rb") as file:
        head = file.read(16)
        if len(head) < 16 or not head.startswith(_MAGIC):
            raise ValueError(f"{index} is no index")
        length, checksum = struct.unpack("<II", head[8:])
        header = file.read(length)
        start = file.tell() + -file.tell() % 8
        size = os.fstat(file.fileno()).st_size - start
    rows = pq.read_metadata(data).num_rows
    if header != _header(Path(data), rows, about) or size != 8 * rows:
        raise ValueError(f"{index} is not of this file")
    entries = np.memmap(index, np.uint64, "r", start, (rows,))
    if zlib.crc32(entries.data) != checksum:
        raise ValueError(f"{index} is damaged")
    return KeyIndex(entries)
