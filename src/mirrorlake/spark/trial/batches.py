"""Batches of a few rows for the self-test, landed in its own files."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mirrorlake.landing.scan import Landed
from mirrorlake.mirror.steps import ApplyFiles
from mirrorlake.model.arrow import arrow_schema
from mirrorlake.model.change import MARKER_COLUMN, Marker
from mirrorlake.model.landed import FileName
from mirrorlake.model.table import Schema, TableId
from mirrorlake.storage.store import Store

Change = tuple[Marker, *tuple[Any, ...]]
"""A marker, and a value for each column."""

KEY = ("id",)
LANDED = "landed"


def batch(
    store: Store,
    table: str,
    schema: Schema,
    number: int,
    changes: Sequence[Change],
    *,
    truncated: bool = False,
) -> ApplyFiles:
    """Land changes in the file with this number. Returns the step that applies it."""
    markers, *columns = zip(*changes, strict=True)
    fields = arrow_schema(schema)
    values = [pa.array(some, field.type) for some, field in zip(columns, fields, strict=True)]
    marked = pa.array([int(marker) for marker in markers], pa.int8())
    rows = pa.table(values, fields).append_column(MARKER_COLUMN, marked)
    file, folder, content = FileName(number), f"{LANDED}/{table}", io.BytesIO()
    pq.write_table(rows, content)
    store.replace(f"{folder}/{file}", content.getvalue())
    landed = Landed(file, folder, len(content.getvalue()), 0.0, "")
    step = TableId("", table), f"Tables/{table}", table, (landed,), number, number
    return ApplyFiles(*step, key=KEY, default=Marker.INSERT, truncated=truncated)
