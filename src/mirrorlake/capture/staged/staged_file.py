"""A Parquet file under construction: staged, with its footer written last."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import BinaryIO, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mirrorlake.errors import StorageUnavailable
from mirrorlake.model.landed import Footer
from mirrorlake.storage.store import Store


class DamagedStagedFile(StorageUnavailable):
    """The bytes of a staged file have changed since it was written."""

    code: ClassVar[str] = StorageUnavailable.code


class Staged:
    """A file of a store under construction: dropped when anything fails."""

    def __init__(self, store: Store, path: str) -> None:
        self.path, self._store = path, store
        self._context: AbstractContextManager[BinaryIO] = store.stage(path)
        self._file = self._context.__enter__()
        self._writer: pq.ParquetWriter | None = None

    def drop(self) -> None:
        """Discard the file, finished or not."""
        self._give_up(Dropped())
        self._store.delete(self.path)

    @contextmanager
    def _or_give_up(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._give_up(error)
            raise

    def _make_durable(self) -> None:
        self._context.__exit__(None, None, None)

    def _give_up(self, error: BaseException) -> None:
        if self._writer is not None:
            # Otherwise it would write its footer into a closed file when garbage collected.
            self._writer.is_open = False
        self._context.__exit__(type(error), error, error.__traceback__)


class StagedFile(Staged):
    """Writes rows as they arrive; `finish` makes the file durable under its staged name."""

    _writer: pq.ParquetWriter

    def __init__(self, store: Store, path: str, schema: pa.Schema) -> None:
        super().__init__(store, path)
        with self._or_give_up():
            self._writer = pq.ParquetWriter(
                self._file,
                schema,
                compression="zstd",
                compression_level=1,
                use_dictionary=False,  # files are read once, completely
                write_statistics=False,
                write_page_checksum=True,
                store_schema=False,  # other readers do not need Arrow's schema
            )

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        with self._or_give_up():
            self._writer.write(rows)

    def finish(self, footer: Footer | None) -> None:
        """Close the file. footer: None for rows that are rewritten before they are published."""
        with self._or_give_up():
            if footer is not None:
                self._writer.add_key_value_metadata(footer.encode())
            self._writer.close()
        self._make_durable()


class Dropped(Exception):
    """Makes the store discard the file."""


def batches_of(store: Store, path: str) -> Iterator[pa.RecordBatch]:
    """The rows of a staged file, whose page checksums are verified; no batch has rows of several
    row groups, which together may not fit into memory. Raises DamagedStagedFile."""
    with store.open(path) as handle:
        try:
            file = pq.ParquetFile(handle, page_checksum_verification=True)
            for group in range(file.num_row_groups):
                yield from file.iter_batches(row_groups=[group])
        except (pa.ArrowException, OSError) as error:
            if not is_damage(error):
                raise
            raise DamagedStagedFile(
                "a staged file was damaged: a page does not match its checksum",
                where=path,
                hint="Start again: its rows are then read from the source. Check the disk and the "
                "memory of the machine.",
            ) from error


def left_of(store: Store, path: str, mask: np.ndarray) -> Iterator[pa.RecordBatch]:
    """The rows of a staged file for which the mask is true. Raises DamagedStagedFile."""
    start = 0
    for batch in batches_of(store, path):
        yield batch.filter(pa.array(mask[start : start + batch.num_rows]))
        start += batch.num_rows


def is_damage(error: Exception) -> bool:
    """Whether the bytes of a Parquet file are wrong, rather than that its storage failed."""
    return isinstance(error, pa.ArrowException) or "CRC checksum" in str(error)
