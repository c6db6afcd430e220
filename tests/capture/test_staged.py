"""A file under construction: whole when it is finished, gone when it is not."""

from __future__ import annotations

import gc
import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import MemoryStore as Objects

from mirrorlake.capture.staged.staged_file import StagedFile, batches_of
from mirrorlake.landing.parquet import bounded
from mirrorlake.model import types
from mirrorlake.model.arrow import arrow_type
from mirrorlake.model.landed import FileKind, Footer
from mirrorlake.storage.local import LocalStore
from mirrorlake.storage.objects import ObjectStore
from mirrorlake.storage.store import Store
from tests.conformance.store import names
from tests.doubles.clock import SteppedClock
from tests.doubles.memory_store import MemoryStore

SCHEMA = pa.schema([("id", pa.int64())])
ROWS = pa.table({"id": [1, 2]})
FOOTER = Footer("stream", FileKind.CHANGES, "0/1:1", "0/1:2", complete=True, rows={"0": 2})


@pytest.fixture(params=["local", "memory", "objects"])
def location(request: pytest.FixtureRequest, store: LocalStore) -> Store:
    if request.param == "objects":
        return ObjectStore(Objects(), "memory://")
    return store if request.param == "local" else MemoryStore(SteppedClock())


@pytest.fixture
def file(location: Store) -> StagedFile:
    return StagedFile(location, "t/_stage-1.parquet", SCHEMA)


def test_a_finished_file_holds_rows_and_footer(location: Store, file: StagedFile) -> None:
    file.write(ROWS)
    file.write(ROWS.to_batches()[0])
    file.finish(FOOTER)
    found = pq.ParquetFile(io.BytesIO(location.read("t/_stage-1.parquet")))
    facts = {k.decode(): v.decode() for k, v in found.metadata.metadata.items()}
    assert found.read()["id"].to_pylist() == [1, 2, 1, 2]
    assert Footer.decode(facts) == FOOTER


@pytest.mark.clause("LZ-133")
def test_pages_have_checksums(location: Store, file: StagedFile) -> None:
    file.write(ROWS)
    file.finish(FOOTER)
    content = io.BytesIO(location.read("t/_stage-1.parquet"))
    assert bounded.has_checksums(pq.read_metadata(content), content)


@pytest.mark.clause("LZ-145")
def test_rows_are_compressed_in_a_way_that_every_reader_knows(
    location: Store, file: StagedFile
) -> None:
    file.write(ROWS)
    file.finish(FOOTER)
    found = pq.ParquetFile(io.BytesIO(location.read("t/_stage-1.parquet")))
    assert found.metadata.row_group(0).column(0).compression == "ZSTD"


@pytest.mark.clause("LZ-150")
@pytest.mark.parametrize(
    ("kind", "logical", "physical"),
    [
        (types.BOOLEAN, "None", "BOOLEAN"),
        (types.BYTE, "Int(bitWidth=8, isSigned=true)", "INT32"),
        (types.SHORT, "Int(bitWidth=16, isSigned=true)", "INT32"),
        (types.INTEGER, "None", "INT32"),
        (types.LONG, "None", "INT64"),
        (types.FLOAT, "None", "FLOAT"),
        (types.DOUBLE, "None", "DOUBLE"),
        (types.STRING, "String", "BYTE_ARRAY"),
        (types.BINARY, "None", "BYTE_ARRAY"),
        (types.DATE, "Date", "INT32"),
        (types.TIMESTAMP, "Timestamp(isAdjustedToUTC=true, timeUnit=microseconds", "INT64"),
        (types.decimal(38, 2), "Decimal(precision=38, scale=2)", "FIXED_LEN_BYTE_ARRAY"),
    ],
    ids=str,
)
def test_each_logical_type_stands_on_its_physical_one(
    location: Store, kind: types.DataType, logical: str, physical: str
) -> None:
    schema = pa.schema([("c", arrow_type(kind))])
    file = StagedFile(location, "t/_stage-2.parquet", schema)
    file.write(schema.empty_table())
    file.finish(FOOTER)
    found = pq.ParquetFile(io.BytesIO(location.read("t/_stage-2.parquet"))).schema.column(0)
    assert found.physical_type == physical
    assert str(found.logical_type).startswith(logical)


def test_a_dropped_file_is_gone(location: Store, file: StagedFile) -> None:
    file.write(ROWS)
    file.drop()
    assert names(location, "t") == []


def test_a_finished_file_can_be_dropped(location: Store, file: StagedFile) -> None:
    file.finish(FOOTER)
    file.drop()
    assert names(location, "t") == []


def test_a_file_can_be_dropped_again(location: Store, file: StagedFile) -> None:
    file.drop()
    file.drop()
    assert names(location, "t") == []


def test_rows_that_do_not_fit_leave_nothing(location: Store, file: StagedFile) -> None:
    with pytest.raises(ValueError, match="schema"):
        file.write(pa.table({"other": ["x"]}))
    assert names(location, "t") == []


def test_a_file_that_failed_can_be_dropped(location: Store, file: StagedFile) -> None:
    with pytest.raises(ValueError, match="schema"):
        file.write(pa.table({"other": ["x"]}))
    file.drop()
    del file
    gc.collect()  # nothing is written late, which would warn


@pytest.mark.full
@pytest.mark.parametrize("room", [0, 4, 60, 200])
def test_a_disk_that_fills_up_is_told_as_such(room: int) -> None:
    store = FullDisk(room)

    def write() -> None:
        file = StagedFile(store, "t/_stage-1.parquet", SCHEMA)
        try:
            file.write(ROWS)
            file.finish(FOOTER)
        except OSError:
            file.drop()
            raise

    with pytest.raises(OSError, match="No space left"):
        write()
    gc.collect()
    assert names(store, "t") == []


class FullDisk(MemoryStore):
    """A store that has room for a number of bytes."""

    def __init__(self, room: int) -> None:
        super().__init__(SteppedClock())
        self._room = room

    @contextmanager
    def stage(self, path: str) -> Iterator[BinaryIO]:
        with super().stage(path):
            yield Limited(self._room)


class Limited(io.BytesIO):
    def __init__(self, room: int) -> None:
        super().__init__()
        self._room = room

    def write(self, content: Any) -> int:
        if self.tell() + len(content) > self._room:
            raise OSError(28, "No space left on device")
        return super().write(content)


def test_rows_that_were_written_one_after_another_are_not_read_together(location: Store) -> None:
    """Those of a table with long values would not fit into memory."""
    file = StagedFile(location, "_file", SCHEMA)
    for _ in range(3):
        file.write(ROWS)
    file.finish(FOOTER)
    assert [batch.num_rows for batch in batches_of(location, "_file")] == [2, 2, 2]
