"""The staged files of a load, as any process writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa

from mirrorlake.capture.landing.files.staged_data_file import StagedDataFile
from mirrorlake.capture.origins import as_of, with_metadata
from mirrorlake.capture.staged.staged_file import StagedFile, left_of
from mirrorlake.delta.write.data_files import has_huge
from mirrorlake.model.arrow import arrow_schema
from mirrorlake.model.landed import FileKind, Footer
from mirrorlake.model.position import Position
from mirrorlake.model.table import Schema
from mirrorlake.storage.store import Store
from mirrorlake.storage.urls import is_url

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)


@dataclass(frozen=True, slots=True)
class LoadFiles:
    """Writes the files of one table. metadata: whether rows have metadata columns."""

    store: Store
    schema: Schema
    position: Position
    stream: str
    stream_id: str
    metadata: bool = False

    def write(
        self,
        path: str,
        batches: Iterable[pa.RecordBatch | pa.Table],
        *,
        complete: bool = False,
        compact: bool = False,
        written: Callable[[int], None] = lambda _rows: None,
    ) -> int:
        """Write one staged file, without a marker column (LZ-093): every row is an insert. Returns
        the number of rows. compact: not as a data file of the table; written: called with the
        number of rows of each batch."""
        # Over a network, fewer bytes count more than what it takes to decode them.
        is_compact = compact or complete or is_url(self.store.location(path))
        kind = StagedFile if is_compact else StagedDataFile
        file, position = kind(self.store, path, self._staged_schema()), str(self.position)
        rows = 0
        try:
            for batch in batches:
                file.write(self._with_metadata(batch))
                rows += batch.num_rows
                written(batch.num_rows)
        except BaseException:
            file.drop()
            raise
        file.finish(
            Footer(
                stream=self.stream,
                kind=FileKind.LOAD,
                first=position,
                last=position,
                complete=complete,
                rows={"0": rows} if rows else {},
                stream_id=self.stream_id,
            )
        )
        return rows

    def left(self, path: str, mask: np.ndarray) -> Iterator[pa.Table]:
        """The rows of a staged file for which the mask is true. Raises DamagedStagedFile."""
        schema = self._staged_schema()
        for batch in left_of(self.store, path, mask):
            yield pa.Table.from_batches([batch]).cast(schema)

    def _staged_schema(self) -> pa.Schema:
        return self._with_metadata(arrow_schema(self.schema).empty_table()).schema

    def _with_metadata(self, rows: Rows) -> Rows | pa.Table:
        """Rows of a staged file have it already."""
        if not self.metadata or rows.num_columns > len(self.schema.columns):
            return rows
        found = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        return with_metadata(found, as_of(str(self.position), rows.num_rows))


def groups(batches: Iterator[pa.RecordBatch], size: int) -> Iterator[Iterator[pa.RecordBatch]]:
    """Groups of batches for one file each, of about `size` bytes in memory. Each group must be
    consumed. A file that begins without huge texts has none (`StagedDataFile`)."""
    waiting: list[pa.RecordBatch] = []

    def one_file(first: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        held, begins_huge = first.nbytes, _has_huge(first)
        yield first
        while held < size:
            batch = next(batches, None)
            if batch is None:
                return
            if _has_huge(batch) and not begins_huge:
                waiting.append(batch)
                return
            held += batch.nbytes
            yield batch

    while (first := waiting.pop() if waiting else next(batches, None)) is not None:
        yield one_file(first)


def _has_huge(batch: pa.RecordBatch) -> bool:
    return any(map(has_huge, batch.columns))
