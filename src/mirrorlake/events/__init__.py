"""Event files: envelope, metadata of each source, unified types, Avro schema, paths; and columns
of events as the bytes of files.

Nothing in here knows a network or Spark.
"""

from __future__ import annotations

from mirrorlake.events import (
    avro_schema,
    change_types,
    envelope,
    maps,
    metadata,
    paths,
    rows,
    types,
)
from mirrorlake.events.encode import container, json_lines

__all__ = [
    "avro_schema",
    "change_types",
    "container",
    "envelope",
    "json_lines",
    "maps",
    "metadata",
    "paths",
    "rows",
    "types",
]
