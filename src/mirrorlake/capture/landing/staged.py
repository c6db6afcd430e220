"""A Parquet file under construction: staged, with its footer written last."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from mirrorlake.model.landed import Footer
from mirrorlake.storage.store import Store


class StagedFile:
    """Writes rows as they arrive; `finish` makes the file durable under its staged name."""

    def __init__(self, store: Store, path: str, schema: pa.Schema) -> None:
        self.path = path
        self._context: AbstractContextManager[BinaryIO] = store.stage(path)
        self._store = store
        file = self._context.__enter__()
        try:
            self._writer = pq.ParquetWriter(
                file,
                schema,
                compression="zstd",
                compression_level=1,
                use_dictionary=False,  # files are read once, completely
                write_statistics=False,
                write_page_checksum=True,
                store_schema=False,  # other readers do not need Arrow's schema
            )
        except BaseException as error:
            self._context.__exit__(type(error), error, error.__traceback__)
            raise

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        try:
            self._writer.write(rows)
        except BaseException as error:
            self._give_up(error)
            raise

    def finish(self, footer: Footer | None) -> None:
        """Close the file. footer: None for rows that are rewritten before they are published."""
        try:
            if footer is not None:
                self._writer.add_key_value_metadata(footer.encode())
            self._writer.close()
        except BaseException as error:
            self._give_up(error)
            raise
        self._context.__exit__(None, None, None)

    def drop(self) -> None:
        """Discard the file, finished or not."""
        self._give_up(_Dropped())
        self._store.delete(self.path)

    def _give_up(self, error: BaseException) -> None:
        # Otherwise the writer would write its footer into a closed file when garbage collected.
        self._writer.is_open = False
        self._context.__exit__(type(error), error, error.__traceback__)


class _Dropped(Exception):
    """Makes the store discard the file."""
