"""Whatever has rows can be published, and none of it is held whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.errors import UnsupportedColumn, UsageError
from mirrorlake.publisher import Publisher
from mirrorlake.publisher.input import rows as sources
from mirrorlake.publisher.input.rows import row_blocks
from tests.publisher.mirrored_zone import Zone

ROWS = [{"id": 1, "v": "a"}, {"id": 2, "v": None}]
TABLE = pa.table({"id": [1, 2], "v": ["a", None]})


class Exporting:
    """A frame that only has the Arrow PyCapsule interface, as that of Polars or Spark."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return TABLE.__arrow_c_stream__(requested_schema)


class OlderFrame:
    """A frame with a method of its own."""

    def to_arrow(self) -> pa.Table:
        return TABLE


class OlderSparkFrame:
    def toArrow(self) -> pa.Table:  # noqa: N802
        return TABLE


class SparkFrameWithTimes(OlderSparkFrame):
    """A frame of Spark 4.2, whose stream fails on timestamps."""

    dtypes = (("id", "bigint"), ("at", "array<timestamp>"))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        raise AssertionError


def generated() -> Iterator[dict[str, Any]]:
    yield from ROWS


SOURCES: dict[str, Callable[[], Any]] = {
    "pandas": lambda: pd.DataFrame({"id": [1, 2], "v": ["a", None]}),
    "polars": lambda: pl.DataFrame({"id": [1, 2], "v": ["a", None]}),
    "capsule": Exporting,
    "to_arrow": OlderFrame,
    "toArrow": OlderSparkFrame,
    "toArrow for times": SparkFrameWithTimes,
    "duckdb": lambda: duckdb.sql("from (values (1::bigint, 'a'), (2, null)) t(id, v)"),
    "table": lambda: TABLE,
    "reader": TABLE.to_reader,
    "batch": lambda: TABLE.to_batches()[0],
    "batches": lambda: iter(TABLE.to_batches()),
    "tables": lambda: [TABLE.slice(0, 1), TABLE.slice(1)],
    "dataset": lambda: ds.dataset(TABLE),
    "scanner": lambda: ds.dataset(TABLE).scanner(),
    "dicts": lambda: ROWS,
    "tuple": lambda: tuple(ROWS),
    "generator": generated,
}


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_gives_its_rows(zone: Zone, publisher: Publisher, source: str) -> None:
    publisher.load("t", SOURCES[source](), key="id")
    assert zone.rows("t") == ROWS


def test_one_dict_is_one_row(zone: Zone, publisher: Publisher) -> None:
    publisher.load("t", ROWS[0], key="id")
    assert zone.rows("t") == ROWS[:1]


class TestPolars:
    def test_types_of_its_own_are_those_that_can_be_landed(
        self, zone: Zone, publisher: Publisher
    ) -> None:
        frame = pl.DataFrame(
            {
                "id": pl.Series([1], dtype=pl.UInt8),
                "of_few": pl.Series(["a"], dtype=pl.Categorical),
                "of_these": pl.Series(["b"], dtype=pl.Enum(["a", "b"])),
                "no_one": pl.Series([None], dtype=pl.Categorical),
                "raw": [b"x"],
                "at": pl.Series(
                    [datetime(2026, 1, 1, tzinfo=UTC)], dtype=pl.Datetime("ns", "Europe/Rome")
                ),
                "list": [["a", None]],
            }
        )
        publisher.load("t", frame, key="id")
        assert zone.rows("t") == [
            {
                "id": 1,
                "of_few": "a",
                "of_these": "b",
                "no_one": None,
                "raw": b"x",
                "at": datetime(2026, 1, 1, tzinfo=UTC),
                "list": '["a",null]',
            }
        ]

    def test_a_type_that_arrow_does_not_know_is_reported(self, publisher: Publisher) -> None:
        frame = pl.DataFrame({"id": pl.Series([1], dtype=pl.Int128)})
        with pytest.raises(UsageError, match="a type that Arrow does not support") as refused:
            publisher.load("t", frame, key="id")
        assert "Convert that column" in (refused.value.hint or "")

    def test_a_lazy_frame_is_to_be_collected_first(self, publisher: Publisher) -> None:
        with pytest.raises(UsageError, match="a LazyFrame is not a table of rows") as refused:
            publisher.load("t", pl.LazyFrame({"id": [1]}), key="id")
        assert "collect()" in (refused.value.hint or "")


class TestPandas:
    def test_an_index_with_a_name_is_a_column(self, zone: Zone, publisher: Publisher) -> None:
        frame = pd.DataFrame({"id": [1, 2], "v": ["a", None]}).set_index("id")
        publisher.load("t", frame, key="id")
        assert zone.rows("t") == ROWS

    def test_one_without_a_name_is_none(self, zone: Zone, publisher: Publisher) -> None:
        frame = pd.DataFrame({"id": [1, 2], "v": ["a", None]}, index=[7, 9])
        publisher.load("t", frame, key="id")
        assert zone.rows("t") == ROWS

    def test_whole_numbers_with_gaps_stay_whole(self, zone: Zone, publisher: Publisher) -> None:
        publisher.load("t", pd.DataFrame({"id": [1, 2], "n": [5, 6]}), key="id")
        gaps = pd.DataFrame({"id": [1, 2], "n": [7, None]})  # pandas makes floats of it
        publisher.publish("t", gaps, operation="upsert")
        assert zone.rows("t") == [{"id": 1, "n": 7}, {"id": 2, "n": None}]

    def test_times_are_instants(self, zone: Zone, publisher: Publisher) -> None:
        frame = pd.DataFrame({"at": pd.to_datetime(["2026-05-01 12:00:00", None])})
        publisher.load("t", frame, key=())
        at = datetime(2026, 5, 1, 12, tzinfo=UTC)
        assert zone.rows("t") == [{"at": None}, {"at": at}]


class TestDicts:
    def test_columns_are_those_of_all_rows(self, zone: Zone, publisher: Publisher) -> None:
        publisher.load("t", [{"id": 1}, {"id": 2, "v": "x"}], key="id")
        assert zone.rows("t") == [{"id": 1, "v": None}, {"id": 2, "v": "x"}]

    def test_a_type_is_that_of_all_rows(self, zone: Zone, publisher: Publisher) -> None:
        publisher.load("t", [{"id": 1, "v": 1}, {"id": 2, "v": 2.5}], key="id")
        assert zone.rows("t") == [{"id": 1, "v": 1.0}, {"id": 2, "v": 2.5}]

    def test_a_column_may_come_late(
        self, zone: Zone, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sources, "ROWS", 2)
        rows = iter([{"id": n} if n < 5 else {"id": n, "v": n} for n in range(8)])
        done = publisher.load("t", rows, key="id")
        assert len(done.files) == 2
        assert [row["v"] for row in zone.rows("t")] == [None] * 5 + [5, 6, 7]

    def test_values_without_a_common_type_are_refused(self, publisher: Publisher) -> None:
        with pytest.raises(UnsupportedColumn, match="do not have a common type"):
            publisher.load("t", [{"v": 1}, {"v": "x"}], key=())

    def test_a_number_that_no_type_holds_is_refused(self, publisher: Publisher) -> None:
        with pytest.raises(UnsupportedColumn):
            publisher.load("t", [{"v": 2**70}, {"v": "x"}], key=())


@pytest.mark.parametrize("rows", [None, 5, "text", b"bytes", object(), [1, 2], ["x"]])
def test_what_has_no_rows_is_refused(zone: Zone, publisher: Publisher, rows: Any) -> None:
    with pytest.raises(UsageError):
        publisher.load("t", rows, key=())
    assert zone.names("t") == []


def test_publishing_no_rows_writes_no_file(zone: Zone, publisher: Publisher) -> None:
    publisher.load("t", ROWS, key="id")
    done = publisher.publish("t", [], operation="upsert", batch="empty")
    assert done.files == ()
    publisher.publish("t", TABLE.slice(0, 0), operation="upsert")
    assert zone.numbers("t") == [1]


@given(st.lists(st.integers(0, 5), max_size=6), st.integers(1, 4))
def test_pieces_are_the_rows_in_their_order(sizes: list[int], limit: int) -> None:
    total = sum(sizes)
    whole = pa.table({"n": pa.array(range(total), pa.int64())})
    starts = [sum(sizes[:n]) for n in range(len(sizes))]
    parts = [whole.slice(start, size) for start, size in zip(starts, sizes, strict=True)]
    table = pa.concat_tables([whole.slice(0, 0), *parts])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sources, "ROWS", limit)
        found = list(row_blocks(table, table="t"))
    assert [n for block in found for n in block.rows["n"].to_pylist()] == list(range(total))
    assert [block.before for block in found] == [
        sum(p.rows.num_rows for p in found[:n]) for n in range(len(found))
    ]
    assert all(block.rows.num_rows <= limit for block in found)
    assert found


def test_large_input_is_not_held(tmp_path: Path) -> None:
    """More rows than would fit: each batch is gone before the next one is made."""
    held: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for n in range(40):
            held.append(pa.total_allocated_bytes())
            yield pa.record_batch({"id": pa.array(range(n * 50_000, (n + 1) * 50_000))})

    schema = pa.schema([("id", pa.int64())])
    reader = pa.RecordBatchReader.from_batches(schema, batches())
    with Publisher(tmp_path, file_bytes=1 << 20) as publisher:
        done = publisher.load("t", reader, key="id")
    assert done.rows == {"insert": 2_000_000}
    assert max(held) - held[0] < 8 << 20  # of 16 MB in all
    numbers = [
        pq.read_metadata(tmp_path / "Files/LandingZone/t" / f.name).num_rows for f in done.files
    ]
    assert sum(numbers) == 2_000_000
