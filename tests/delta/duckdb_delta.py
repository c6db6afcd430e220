"""Reads Delta tables with DuckDB's Delta extension, in a process of its own: the extension exists
for another version of DuckDB than the one of the product.

As a program: reads one query per line, as JSON, and writes the rows of each in Arrow's stream
format, after their number of bytes; or 0, and the message of an error as JSON.
"""

from __future__ import annotations

import atexit
import functools
import json
import struct
import subprocess
import sys
from pathlib import Path

import pyarrow as pa

PACKAGES = Path(sys.prefix, "duckdb-delta")
"""Where `make setup` installs that DuckDB with its extension."""
_SIZE = struct.Struct("<q")


class QueryFailed(Exception):
    """DuckDB refused a query."""


def query(text: str) -> pa.Table:
    """The result of a query, which may use `delta_scan(FOLDER)`. Raises QueryFailed."""
    process = _started()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(text).encode() + b"\n")
    process.stdin.flush()
    (size,) = _SIZE.unpack(process.stdout.read(_SIZE.size))
    if not size:
        raise QueryFailed(json.loads(process.stdout.readline()))
    return pa.ipc.open_stream(process.stdout.read(size)).read_all()


@functools.cache
def _started() -> subprocess.Popen[bytes]:
    """One process for all queries: loading the extension takes longer than most of them."""
    process = subprocess.Popen(
        [sys.executable, __file__, str(PACKAGES)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    atexit.register(process.kill)
    return process


def _answer(packages: str) -> None:
    sys.path.insert(0, packages)
    import duckdb

    connection = duckdb.connect()
    version = duckdb.__version__
    extension = f"duckdb_extension_delta/extensions/v{version}/delta.duckdb_extension"
    connection.execute(f"load '{packages}/{extension}'")
    connection.execute("set TimeZone = 'UTC'")
    for line in sys.stdin:
        sink = pa.BufferOutputStream()
        try:
            rows = connection.sql(json.loads(line)).to_arrow_table()
            with pa.ipc.new_stream(sink, rows.schema) as writer:
                writer.write_table(rows)
            answer = sink.getvalue().to_pybytes()
            sys.stdout.buffer.write(_SIZE.pack(len(answer)) + answer)
        except duckdb.Error as error:
            sys.stdout.buffer.write(_SIZE.pack(0) + json.dumps(str(error)).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    _answer(sys.argv[1])
