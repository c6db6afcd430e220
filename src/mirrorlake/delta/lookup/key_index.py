"""Key indexes: locate keys in a data file without reading its key columns.

An index belongs to one data file. It contains, for each row, 32 bits of the hash of its key and the
row number, sorted by hash: 8 bytes per row, which are searched in the memory-mapped file. The rows
that it finds have to be compared with the key; if it finds nothing, the file does not contain the
key. So an index is used only if it is complete (a checksum) and was built from this file (its name,
size, number of rows and checksum of the footer), these key columns and this hash function.

Indexes may be deleted at any time; a lookup that needs one builds it again. They are in
`_mirrorlake/keys` of the table, which readers and VACUUM ignore, and are deleted after their data
files (`sweep`).
"""

from __future__ import annotations

import json
import os
import struct
import uuid
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlparse

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from isal.isal_zlib import crc32

from mirrorlake.delta.lookup import key_hash
from mirrorlake.delta.schema import TableSchema

FOLDER = "_mirrorlake/keys"
SUFFIX = ".keys"

MIN_ROWS = 65_536
"""Minimum number of rows of a file with an index: the keys of smaller files are read faster."""

MAX_ROWS = 16_000_000
"""Maximum number of rows of a file with an index: its keys are hashed and sorted in memory, which
takes 60 to 90 bytes per row."""

CACHED = 512
"""Number of verified indexes that stay mapped into memory."""

_MAGIC = b"MLKEYS01"
_ROW = np.uint64(0xFFFFFFFF)
"""The bits of an entry with the row number; no data file has more rows."""


class LookupKeys:
    """Keys to find in many files, sorted by hash. code: the row number of the key; least: the
    smallest possible index entry of the key, uint64."""

    def __init__(self, code: np.ndarray, least: np.ndarray) -> None:
        self.code, self.least = code, least

    @classmethod
    def of(cls, keys: pa.Table, schema: TableSchema) -> LookupKeys:
        hashes = key_hash.hash_keys(keys, schema) & ~_ROW
        code = np.argsort(hashes)
        return cls(code, hashes[code])

    def select(self, codes: np.ndarray | None) -> LookupKeys:
        """The keys with these row numbers; all keys for None."""
        if codes is None or len(codes) == len(self.code):
            return self
        chosen = np.zeros(len(self.code), bool)
        chosen[codes] = True
        kept = chosen[self.code]
        return LookupKeys(self.code[kept], self.least[kept])


class KeyIndex:
    """A verified index. entries: uint64, ascending; the upper 32 bits are the hash, the lower 32
    bits the row number."""

    def __init__(self, entries: np.ndarray) -> None:
        self._entries = entries

    def find(self, sought: LookupKeys) -> tuple[np.ndarray, np.ndarray]:
        """The rows that may have one of the keys, as two int64 arrays: the row number of the key,
        and the row number in the file."""
        first = np.searchsorted(self._entries, sought.least)
        near = self._entries[np.minimum(first, len(self._entries) - 1)]
        # Most keys are in other files, and most keys of this file occur once.
        hit = near & ~_ROW == sought.least
        code, first, least = sought.code[hit], first[hit], sought.least[hit]
        count = np.searchsorted(self._entries, least | _ROW, side="right") - first
        begins = np.cumsum(count) - count
        entries = np.repeat(first - begins, count) + np.arange(int(count.sum()))
        rows = self._entries[entries] & _ROW
        return np.repeat(code, count), rows.astype(np.int64)


def open_index(
    table: Path, add: Mapping[str, Any], schema: TableSchema, key: Sequence[str]
) -> KeyIndex | None:
    """The index of a data file; None if there is no valid one."""
    index, data = index_path(table, add), _data(table, add)
    if index is None or data is None:
        return None
    try:
        facts, data_facts = index.stat(), data.stat()
        identity = (
            facts.st_ino,
            facts.st_size,
            facts.st_mtime_ns,
            data_facts.st_size,
            data_facts.st_mtime_ns,
        )
        return _verified(str(index), str(data), _definition(schema, key), identity)
    except (OSError, ValueError):
        return None


def build_index(
    table: Path, add: Mapping[str, Any], schema: TableSchema, key: Sequence[str]
) -> KeyIndex | None:
    """Build the index of a data file.

    None if that is not possible, because the table is read-only, or the file lacks a key column or
    cannot be read.
    """
    index, data = index_path(table, add), _data(table, add)
    if index is None or data is None:
        return None
    try:
        hashes = key_hash.hash_file(str(data), schema, key)
    except (duckdb.Error, OSError):
        return None  # reading the rows of the file will report the error
    if hashes is None or not len(hashes):
        return None
    entries = hashes & ~_ROW | np.arange(len(hashes), dtype=np.uint64)
    entries.sort()
    try:
        _write(index, _header(data, len(entries), _definition(schema, key)), entries)
    except (OSError, ValueError):
        return None
    return KeyIndex(entries)


def index_path(table: Path, add: Mapping[str, Any]) -> Path | None:
    """The path of the index of a data file; None if the data file is outside the table."""
    path = add["path"]
    if urlparse(path).scheme:
        return None
    inner = PurePosixPath(unquote(path))
    if inner.is_absolute() or ".." in inner.parts:
        return None
    return table / FOLDER / f"{inner}{SUFFIX}"


def sweep(table: Path) -> int:
    """Remove the indexes whose data files no longer exist. Returns the number of removed files."""
    root, gone = table / FOLDER, 0
    for index in root.rglob(f"*{SUFFIX}*"):
        data = table / index.relative_to(root).with_name(index.name.split(SUFFIX)[0])
        if index.is_file() and (index.suffix != SUFFIX or not data.exists()):
            index.unlink(missing_ok=True)
            gone += 1
    return gone


def _data(table: Path, add: Mapping[str, Any]) -> Path:
    return table / unquote(add["path"])


def _definition(schema: TableSchema, key: Sequence[str]) -> str:
    """The key columns and the hash function of an index, as text."""
    columns = [[schema.physical_of(name), str(schema.schema[name].type)] for name in key]
    return json.dumps({"columns": columns, "hash": key_hash.name(schema, key)})


def _header(data: Path, rows: int, about: str) -> bytes:
    """The header of an index, which identifies its data file. Raises OSError, ValueError."""
    size = data.stat().st_size
    with data.open("rb") as file:
        file.seek(max(size - 8, 0))
        length = struct.unpack("<I", file.read(4))[0]
        file.seek(max(size - 8 - length, 0))
        footer = crc32(file.read())
    facts = {"data": data.name, "size": size, "rows": rows, "footer": footer, "of": about}
    return json.dumps(facts).encode()


def _write(index: Path, header: bytes, entries: np.ndarray) -> None:
    """Write an index atomically. It is not flushed: its checksum detects what a crash destroys."""
    index.parent.mkdir(parents=True, exist_ok=True)
    aside = index.with_name(f"{index.name}.{uuid.uuid4().hex}")
    content = entries.data
    try:
        with aside.open("wb") as file:
            file.write(_MAGIC + struct.pack("<II", len(header), crc32(content)) + header)
            file.write(b"\0" * (-file.tell() % 8))
            file.write(content)
        aside.replace(index)
    finally:
        aside.unlink(missing_ok=True)


@lru_cache(maxsize=CACHED)
def _verified(index: str, data: str, about: str, _facts: tuple[int, ...]) -> KeyIndex:
    """Open and verify an index. Raises OSError, and ValueError if the index is damaged or does not
    belong to this data file."""
    with Path(index).open("rb") as file:
        head = file.read(16)
        if len(head) < 16 or not head.startswith(_MAGIC):
            raise ValueError(f"{index} is not a key index")
        length, checksum = struct.unpack("<II", head[8:])
        header = file.read(length)
        start = file.tell() + -file.tell() % 8
        size = os.fstat(file.fileno()).st_size - start
    rows = pq.read_metadata(data).num_rows
    if header != _header(Path(data), rows, about) or size != 8 * rows:
        raise ValueError(f"{index} belongs to another file")
    entries = np.memmap(index, np.uint64, "r", start, (rows,))
    if crc32(entries.data) != checksum:
        raise ValueError(f"{index} is damaged")
    return KeyIndex(entries)
