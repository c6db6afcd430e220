"""The raw drain of a slot: PostgreSQL's own `pg_recvlogical`, to a file, with nothing decoded.

What the server sends, taken by a C program message by message. Messages are of the same plugin and
protocol as ours. `read` decodes the file afterwards, outside the clock, to compare it.
"""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench.rounds import timed
from bench.server import program

NAME = "raw drain of the slot"
OP = "__op"


def drain(url: str, slot: str, publication: str, until: str, path: Path) -> float:
    """Write all messages up to the place `until` in the log. Returns the seconds."""
    command = [str(program("pg_recvlogical")), "--dbname", url, "--slot", slot, "--start"]
    command += ["--no-loop", "--endpos", until, "--file", str(path), "--fsync-interval", "0"]
    command += ["--option", "proto_version=1", "--option", f"publication_names={publication}"]
    with timed() as watch:
        subprocess.run(command, check=True)
    return watch.seconds


def read(path: Path, columns: Sequence[str], target: Path) -> Path:
    """Decode a drained file into a Parquet file of texts, with the kind of change as `OP`."""
    rows = list(_changes(path.read_bytes()))
    kinds = pa.array([kind for kind, _ in rows])
    values = [pa.array([row[i] for _, row in rows], pa.string()) for i in range(len(columns))]
    pq.write_table(pa.table([kinds, *values], names=[OP, *columns]), target)
    return target


def _changes(content: bytes) -> Iterator[tuple[str, list[str | None]]]:
    """Kind and values of each change: the new row, or the key of a deleted one.

    The program writes a line feed after each message, which says its own length.
    """
    at = 0
    while at < len(content):
        kind = chr(content[at])
        if kind in "IUD":
            at += 5  # kind and number of the table
            marker, row, at = _tuple(content, at)
            if kind == "U" and marker != "N":  # the old row comes first
                _, row, at = _tuple(content, at)
            yield kind, row
        elif kind == "R":
            at = _relation(content, at)
        else:
            at += {"B": 21, "C": 26}[kind]
        at += 1


def _tuple(content: bytes, at: int) -> tuple[str, list[str | None], int]:
    marker, (count,) = chr(content[at]), struct.unpack_from("!H", content, at + 1)
    at += 3
    row: list[str | None] = []
    for _ in range(count):
        if content[at] == ord("t"):
            (length,) = struct.unpack_from("!I", content, at + 1)
            row.append(content[at + 5 : at + 5 + length].decode())
            at += 5 + length
        else:
            row.append(None)
            at += 1
    return marker, row, at


def _relation(content: bytes, at: int) -> int:
    """The place after a description of a table."""
    at = content.index(b"\0", at + 5) + 1  # schema
    at = content.index(b"\0", at) + 1  # table
    (count,) = struct.unpack_from("!H", content, at + 1)
    at += 3
    for _ in range(count):
        at = content.index(b"\0", at + 1) + 1 + 8
    return at
