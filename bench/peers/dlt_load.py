"""dlt: `sql_table` with ConnectorX into the filesystem destination, as a Delta table.

Settings, after dlt's page on the SQL source: backend `connectorx`, binary protocol, Arrow tables;
types reflected with their precision; the table read whole, or in a part per core by its key
(`partition_on`, `partition_num`). No state is synchronised and telemetry is off, so that nothing
but the load is timed. The write disposition is `append` to a table that does not exist.
"""

from __future__ import annotations

import os
from pathlib import Path

from bench import payments
from bench.rounds import timed

NAME = "dlt + ConnectorX to Delta"
IN_PARTS = "dlt + ConnectorX to Delta, partitioned"

os.environ.update(
    {
        "RUNTIME__DLTHUB_TELEMETRY": "false",
        "RUNTIME__LOG_LEVEL": "ERROR",
        "RESTORE_FROM_DESTINATION": "false",
        "LOAD__DELETE_COMPLETED_JOBS": "true",
    }
)


def load(url: str, folder: Path, parts: int = 1) -> tuple[float, Path]:
    """Load the table from nothing. parts: that are read at once. Returns the seconds, and where the
    Delta table is."""
    import dlt
    from dlt.sources.sql_database import sql_table

    schema, table = payments.TABLE.split(".")
    destination = dlt.destinations.filesystem(bucket_url=(folder / "lake").as_uri())
    pipeline = dlt.pipeline(
        "bench", pipelines_dir=str(folder / "work"), destination=destination, dataset_name="bench"
    )
    partitions = {"partition_on": payments.KEY, "partition_num": parts} if parts > 1 else {}
    with timed() as watch:
        rows = sql_table(
            credentials=url.replace("postgresql:", "postgresql+psycopg:", 1),
            schema=schema,
            table=table,
            backend="connectorx",
            reflection_level="full_with_precision",
            backend_kwargs={"conn": url, **partitions},
        )
        pipeline.run(rows, table_format="delta", write_disposition="append")
    return watch.seconds, folder / "lake" / "bench" / table
