"""Writes rows to staged files: complete and checked, under underscore names, not visible yet."""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Self, cast

import pyarrow as pa

from mirrorlake.errors import BadFile
from mirrorlake.publisher.describe import Description
from mirrorlake.publisher.encoding.encoders import Codec, check_file, encoder_of
from mirrorlake.publisher.locations import Workshop
from mirrorlake.publisher.shaping import operations_of
from mirrorlake.publisher.state import DataFile
from mirrorlake.storage.store import Store


@dataclass
class Measured:
    """A sink that measures and hashes what is written through it."""

    below: BinaryIO
    size: int = 0
    closed: bool = False

    def __post_init__(self) -> None:
        self.digest = hashlib.sha256()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        # An abandoned encoder still writes to its file when it is garbage-collected.
        self.below = io.BytesIO()

    def write(self, data: bytes | pa.Buffer) -> int:
        view = memoryview(data)
        self.below.write(view)
        self.digest.update(view)
        self.size += view.nbytes
        return view.nbytes

    def flush(self) -> None:
        """Nothing is buffered here."""

    def close(self) -> None:
        """The underlying handle is closed by its owner."""

    def tell(self) -> int:
        return self.size

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False


@dataclass
class Staging:
    """Writes the files of one batch.

    file_bytes: approximate size at which the next file begins; keep: called often, raises if the
    lease is lost; on_progress: called with the number of rows written so far; after: called after
    each file.
    """

    store: Store
    workshop: Workshop
    description: Description
    codec: Codec
    file_bytes: int
    keep: Callable[[], None]
    on_progress: Callable[[int], None]
    after: Callable[[], None]

    def write(
        self, first: int, rows: Iterator[pa.Table], *, empty_file: bool
    ) -> tuple[DataFile, ...]:
        """Stage the rows under numbers from `first`; a new file begins if the columns change.

        empty_file: whether to write a file if there are no rows (LZ-141, LZ-142). Raises BadFile,
        and errors of the iterator.
        """
        self._written = 0
        files: list[DataFile] = []
        empty: pa.Table | None = None
        filled = self._filled(rows)
        table = next(filled, None)
        while table is not None:
            file, table = self._file(first + len(files), table, filled)
            files.append(file)
        if not files and empty_file and (empty := self._empty) is not None:
            files.append(self._file(first, empty, iter(()))[0])
        return tuple(files)

    def _filled(self, rows: Iterator[pa.Table]) -> Iterator[pa.Table]:
        self._empty: pa.Table | None = None
        for table in rows:
            self.keep()
            if table.num_rows:
                yield table
            else:
                self._empty = table

    def _file(
        self, number: int, table: pa.Table, following: Iterator[pa.Table]
    ) -> tuple[DataFile, pa.Table | None]:
        """Write one file. Returns it, and the first rows of the next file, if any."""
        name, schema = self.description.file_name(number), table.schema
        counts: Counter[str] = Counter()
        with self.store.stage(self.workshop.paths(name)[0]) as handle, Measured(handle) as sink:
            encoder = encoder_of(
                cast("BinaryIO", sink),
                schema,
                self.description.text,
                self.codec,
                self.file_bytes,
                table=str(self.description.table),
            )
            held: pa.Table | None = table
            while held is not None and held.schema == schema:
                encoder.write(held)
                counts += operations_of(held)
                self._written += held.num_rows
                self.on_progress(self._written)
                held = next(following, None)
                if sink.size >= self.file_bytes:  # each file has rows, even if the limit is small
                    break
            encoder.close()
        rows = {kind: count for kind, count in sorted(counts.items()) if count}
        file = DataFile(number, name, sink.size, sink.digest.hexdigest(), rows)
        self._check(file, schema.names)
        self.after()
        return file, held

    def _check(self, file: DataFile, names: list[str]) -> None:
        """Read back what was written before it becomes visible (LZ-133)."""
        path, digest = self.workshop.paths(file.name)[0], hashlib.sha256()
        table = str(self.description.table)
        with self.store.open(path) as handle:
            while part := handle.read(1 << 20):
                digest.update(part)
        if digest.hexdigest() != file.sha256 or not file.size:
            raise BadFile(
                "the stored file differs from what was written",
                table=table,
                file=file.name,
                hint="Nothing was published. Check the storage, and try again.",
            )
        with self.store.open(path) as handle:
            check_file(handle, file, self.description.text, self.codec, names, table=table)
