"""Every change of the keys that a commit changes several times, in files beside the table.

The table and its feed have the net change of each key. A commit names its file, so that files of
attempts that did not commit are never read.
"""

from __future__ import annotations

import io
from datetime import datetime
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mirrorlake.model.change import MARKER_COLUMN, Marker
from mirrorlake.storage.store import Store

EVERY_CHANGE = "every_change"
"""The member of `userMetadata` with the name of the file; "" if no key was changed several
times."""


class StoredChanges:
    """The files of one table."""

    def __init__(self, store: Store, folder: str) -> None:
        self._store, self._folder = store, folder

    def write(self, rows: pa.Table, deletion: np.ndarray) -> str:
        """Write the changes of a commit, key by key, those of a key in their order. Returns the
        name of the file.

        rows: with the columns of the table; deletion: bool per row.
        """
        marker = np.where(deletion, Marker.DELETE, Marker.UPSERT).astype(np.int32)
        marked = rows.append_column(pa.field(MARKER_COLUMN, pa.int32()), pa.array(marker))
        content, name = io.BytesIO(), f"{uuid4()}.parquet"
        pq.write_table(marked, content, compression="zstd")
        self._store.create(f"{self._folder}/{name}", content.getvalue())
        return name

    def read(self, name: str) -> pa.Table | None:
        """The rows of a file, and MARKER_COLUMN (UPSERT or DELETE) as the last column; None if it
        is no longer there, or damaged. Raises OSError."""
        try:
            return pq.read_table(io.BytesIO(self._store.read(f"{self._folder}/{name}")))
        except (FileNotFoundError, pa.ArrowInvalid):
            return None

    def remove(self, before: datetime) -> None:
        """Remove the files that were written before a moment."""
        for file in self._store.list(self._folder).files:
            if file.modified < before.timestamp():
                self._store.delete(f"{self._folder}/{file.name}")
