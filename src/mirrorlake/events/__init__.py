"""Event files: envelope, metadata of each source, unified types, Avro schema, paths; columns of
events as the bytes of files, and the files of anybody as columns.

Nothing in here knows a network or Spark.
"""

from __future__ import annotations

from mirrorlake.events import (
    avro_schema,
    change_types,
    checks,
    envelope,
    maps,
    metadata,
    paths,
    reading,
    rows,
    types,
)
from mirrorlake.events.encode import container, json_lines

__all__ = [
    "avro_schema",
    "change_types",
    "checks",
    "container",
    "envelope",
    "json_lines",
    "maps",
    "metadata",
    "paths",
    "reading",
    "rows",
    "types",
]
