"""The staged files of a load, as any process writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from mirrorlake.capture.landing.staged import StagedFile
from mirrorlake.capture.origins import as_of, with_metadata
from mirrorlake.model.arrow import arrow_schema
from mirrorlake.model.landed import FileKind, Footer
from mirrorlake.model.position import Position
from mirrorlake.model.table import Schema
from mirrorlake.storage.store import Store

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
        batches: Iterator[pa.RecordBatch],
        *,
        complete: bool = False,
        written: Callable[[int], None] = lambda _rows: None,
    ) -> int:
        """Write one staged file, without a marker column (LZ-093): every row is an insert. Returns
        the number of rows. written: called with that of each batch."""
        schema = self._with_metadata(arrow_schema(self.schema).empty_table()).schema
        file, position = StagedFile(self.store, path, schema), str(self.position)
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

    def _with_metadata(self, rows: Rows) -> Rows | pa.Table:
        if not self.metadata:
            return rows
        found = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        return with_metadata(found, as_of(str(self.position), rows.num_rows))


def groups(batches: Iterator[pa.RecordBatch], size: int) -> Iterator[Iterator[pa.RecordBatch]]:
    """Groups of batches for one file each, of about `size` bytes in memory. Each group must be
    consumed."""

    def one_file(first: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        held = first.nbytes
        yield first
        while held < size:
            batch = next(batches, None)
            if batch is None:
                return
            held += batch.nbytes
            yield batch

    while (first := next(batches, None)) is not None:
        yield one_file(first)
