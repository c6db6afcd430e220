"""Event files: the envelope, the metadata of each source, unified types, Avro schemas and paths;
encoding columns of events as files, and decoding anyone's event files into columns.

Nothing in this package uses the network or Spark.
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
