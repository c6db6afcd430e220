"""A Parquet file under construction: staged, its footer written last."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from mirrorlake.model.landed import Footer
from mirrorlake.storage.store import Store


class StagedFile:
    """Rows go in as they come; `finish` makes the file durable under its staged name."""

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
                use_dictionary=False,  # files are read once, whole
                write_statistics=False,
                write_page_checksum=True,
                store_schema=False,  # other readers need none of Arrow's own notes
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

    def finish(self, footer: Footer) -> None:
        try:
            self._writer.add_key_value_metadata(footer.encode())
            self._writer.close()
        except BaseException as error:
            self._give_up(error)
            raise
        self._context.__exit__(None, None, None)

    def drop(self) -> None:
        """Give up the file, finished or not."""
        self._give_up(_Dropped())
        self._store.delete(self.path)

    def _give_up(self, error: BaseException) -> None:
        # The writer would write the end of the file when it is collected, into a closed one.
        self._writer.is_open = False
        self._context.__exit__(type(error), error, error.__traceback__)


class _Dropped(Exception):
    """Tells the store that a file is not wanted."""
