"""A table that the engine keeps looks the same to Spark, delta-rs and DuckDB."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from hashlib import md5
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from delta.tables import DeltaTable
from hypothesis import HealthCheck, Phase, given, settings
from structlog.testing import capture_logs

from mirrorlake.apply.engine import STRATEGY
from mirrorlake.delta.write import compression
from mirrorlake.mirror.compaction import small_files as compaction
from mirrorlake.mirror.engine import Applied
from mirrorlake.model import types
from mirrorlake.model.change import Marker
from mirrorlake.model.table import Schema
from mirrorlake.spark.engine import spark_engine
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.storage.local import LocalStore
from tests.conformance.apply.histories import apply_together
from tests.conformance.mirrored import Mirrored, marked
from tests.delta.readers import feed_by_delta_rs, rows_by_delta_rs, rows_by_duckdb
from tests.histories import DECIMAL, SHAPES, Shape, counted, histories
from tests.profiles import tries
from tests.reference import Row
from tests.spark import reading
from tests.spark.plain_delta.plain import new_session
from tests.spark.test_apply import SparkReader

pytestmark = pytest.mark.spark

MAPPED = Shape.of(
    ["the key"],
    **{"the key": types.STRING, "a=b;c": DECIMAL, "d e": types.TIMESTAMP, "f": types.DOUBLE},
)
PARTITIONED = Shape.of(
    ["id", "day"], id=types.LONG, day=types.DATE, amount=DECIMAL, name=types.STRING
)
PARTITIONED_AND_MAPPED = Shape.of(
    ["day"], **{"a key": types.LONG, "amount": DECIMAL, "day": types.DATE}
)
FEW = settings(
    max_examples=tries(3),
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    database=None,
)
_numbers = itertools.count(1)
Make = Callable[[Shape], Mirrored]


@pytest.fixture
def make(spark: Spark, store: LocalStore) -> Make:
    engine, reader = spark_engine(spark, store), SparkReader(new_session(spark), store)
    return lambda shape: Mirrored(
        engine, store, reader, shape, f"Tables/t{next(_numbers)}"
    ).create()


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two small files are many, so that every table is compacted again and again."""
    monkeypatch.setattr(compaction, "FANOUT", 2)
    monkeypatch.setattr(compaction, "SMALLEST", 2)


def replayed(feed: dict[int, Counter[tuple[str, Row]]]) -> Counter[Row]:
    """The rows that a change feed from version 0 adds up to."""
    rows: Counter[Row] = Counter()
    for changes in feed.values():
        for (kind, row), count in changes.items():
            rows[row] += count if kind in {"insert", "update_postimage"} else -count
    return Counter({row: count for row, count in rows.items() if count})


def agree(table: Mirrored) -> None:
    """Rows through all readers are equal."""
    path = table.store.location(table.path)
    rows = counted(table.rows())
    assert counted(rows_by_delta_rs(path)) == rows
    assert counted(rows_by_duckdb(path)) == rows


@pytest.mark.clause("LZ-261", "LZ-264", "CF-081")
@FEW
@given(history=histories(SHAPES.values(), batches=4))
def test_all_readers_see_the_same_rows_and_the_same_feed(soon: None, make: Make, history) -> None:
    shape, landings = history
    table = make(shape)
    apply_together([table], [landings], compacting=True)
    agree(table)
    path, feed = table.store.location(table.path), table.reader.feed(table.path)
    assert feed_by_delta_rs(path) == feed
    assert replayed(feed) == counted(table.rows())


@pytest.mark.full
def test_all_readers_see_the_rows_of_files_that_are_compressed_in_part(make: Make) -> None:
    shape = Shape.of(["id"], id=types.LONG, digest=types.STRING, same=types.STRING)
    table = make(shape)
    count = compression.MIN_ROWS + 1
    rows = [(n, md5(str(n).encode()).hexdigest(), "paid") for n in range(count)]
    table.apply(marked(shape.arrow(rows), Marker.INSERT))
    table.apply(marked(shape.arrow([(n, text, "late") for n, text, _same in rows[1:]])))
    folder = Path(table.store.location(table.path))
    files = [pq.ParquetFile(path).metadata.row_group(0) for path in folder.glob("*.parquet")]
    assert {(f.column(1).compression, f.column(2).compression) for f in files} == {
        ("UNCOMPRESSED", "SNAPPY")
    }
    agree(table)
    feed = table.reader.feed(table.path)
    assert feed_by_delta_rs(folder) == feed
    assert replayed(feed) == counted(table.rows())


@pytest.mark.full
@FEW
@given(history=histories([PARTITIONED, PARTITIONED_AND_MAPPED], batches=4))
def test_all_readers_see_the_same_of_a_partitioned_table(
    soon: None, spark: Spark, make: Make, history
) -> None:
    shape, landings = history
    table = partitioned(spark, make(shape), ["day", "amount"])
    assert table.engine.progress(table.path).delegated == ""
    with capture_logs() as logs:
        apply_together([table], [landings], compacting=True)
    assert not [log for log in logs if log["event"] == STRATEGY]  # all of it by `direct`
    path, feed = table.store.location(table.path), table.reader.feed(table.path)
    if shape is PARTITIONED:
        agree(table)
        assert feed_by_delta_rs(path) == feed
    else:  # where DuckDB reads NULL for partition columns, also of what Delta itself has written
        assert counted(rows_by_delta_rs(path)) == counted(table.rows())
    assert replayed(feed) == counted(table.rows())


def partitioned(spark: Spark, made: Mirrored, columns: list[str]) -> Mirrored:
    """A table beside one that an engine has made: the same, with partitions."""
    return beside(spark, made, {}, *columns)


def beside(spark: Spark, made: Mirrored, properties: dict[str, str], *partitions: str) -> Mirrored:
    """A table beside one that an engine has made: the same, with other properties or partitions."""
    table = replace(made, path=f"{made.path}-beside")
    like = DeltaTable.forPath(spark.session, made.store.location(made.path))
    builder = DeltaTable.create(spark.session).location(table.store.location(table.path))
    builder = builder.addColumns(like.toDF().schema).partitionedBy(*partitions)
    told = like.detail().collect()[0]["properties"] | properties
    for name, value in told.items():
        if name != "delta.columnMapping.maxColumnId":  # which Delta counts itself
            builder = builder.property(name, value)
    builder.execute()
    return table


@pytest.mark.full
@pytest.mark.clause("LZ-261")
@FEW
@given(history=histories([MAPPED], batches=4))
def test_all_readers_see_the_rows_of_a_table_with_column_mapping(
    soon: None, make: Make, history
) -> None:
    shape, landings = history
    table = make(shape)
    apply_together([table], [landings], compacting=True)
    agree(table)
    assert replayed(table.reader.feed(table.path)) == counted(table.rows())


@pytest.mark.full
@FEW
@given(history=histories([SHAPES["long"]], batches=4))
def test_columns_that_are_mapped_by_id_are_found_after_a_change_of_name(
    soon: None, spark: Spark, make: Make, history
) -> None:
    shape, landings = history
    table, model = beside(spark, make(shape), {"delta.columnMapping.mode": "id"}), shape.table()
    path, half = table.store.location(table.path), len(landings) // 2
    feeds: dict[int, Counter[tuple[str, Row]]] = {}
    found: dict[int, Counter[tuple[str, Row]]] = {}
    for number, landing in enumerate(landings):
        if number == half:
            found = reading.feed(spark.session, path)
            renamed = rename(spark, table, "name", "the name")
        assert table.engine.progress(table.path).delegated == ""
        outcome = table.run(table.step_of(landing))
        assert isinstance(outcome, Applied), outcome
        feed = model.truncate() if landing.truncate else Counter()
        feeds[outcome.version] = feed + model.apply(landing.changes)
        table.compact()
    found |= reading.feed(spark.session, path, first=renamed)
    assert found == {version: feed for version, feed in feeds.items() if feed}
    assert counted(table.rows()) == counted(model.rows)
    agree(table)


def rename(spark: Spark, table: Mirrored, old: str, new: str) -> int:
    """Give a column another name. Returns the version that does so."""
    name = reading.sql_name(table.store.location(table.path))
    spark.session.sql(f"alter table {name} rename column `{old}` to `{new}`").collect()
    columns = [replace(one, name=new) if one.name == old else one for one in table.shape.schema]
    table.shape = Shape(Schema.of(columns), table.shape.key)
    return table.engine.progress(table.path).version
