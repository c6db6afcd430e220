"""Event files: envelope, metadata of each source, unified types, Avro schema, paths.

Nothing in here knows a network or Spark.
"""

from __future__ import annotations

from mirrorlake.events import avro_schema, change_types, envelope, maps, metadata, paths, types

__all__ = ["avro_schema", "change_types", "envelope", "maps", "metadata", "paths", "types"]
