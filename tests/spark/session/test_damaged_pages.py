"""A bit that changed in a file of a table stops it also in a session that is handed in and does not
verify the checksums of pages: what Spark reads for mirrorlake is verified."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.delta.log.checkpoint import write
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.errors import ForeignTable
from mirrorlake.mirror.compaction import small_files as compaction
from mirrorlake.mirror.engine import Failed, Outcome
from mirrorlake.mirror.settings import TableTemplate
from mirrorlake.mirror.strategy import StrategySetting
from mirrorlake.model import types
from mirrorlake.model.change import Marker
from mirrorlake.spark.engine import spark_engine
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.spark.session.thread_sessions import VERIFYING
from mirrorlake.spark.tables import SparkTables
from mirrorlake.storage.local import LocalStore
from tests.conformance.mirrored import Mirrored
from tests.delta.lookup.test_page_checksums import flipped
from tests.histories import Shape
from tests.reference import UNCHANGED, Row
from tests.spark.test_apply import SparkReader

pytestmark = [pytest.mark.spark, pytest.mark.full]

SHAPE = Shape.of(["id"], id=types.LONG, name=types.STRING)


@pytest.fixture
def given(spark: Spark) -> Iterator[Spark]:
    """A session of a context without the setting, as one that is handed in."""
    context: Any = spark.session.sparkContext._jsc
    for name in VERIFYING:
        context.hadoopConfiguration().unset(name)
    yield Spark.given(spark.session.newSession())
    for name, value in VERIFYING.items():
        context.hadoopConfiguration().set(name, value)


@pytest.fixture
def table(given: Spark, store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> Mirrored:
    """Two files, which are joined at once, without deletion vectors: a changed row rewrites its
    file."""
    monkeypatch.setattr(compaction, "FANOUT", 2)
    strategy, template = StrategySetting.MERGE, TableTemplate.COMPATIBLE
    engine = spark_engine(given, store, strategy=strategy, template=template)
    table = Mirrored(engine, store, SparkReader(given.session, store), SHAPE).create()
    table.apply([(Marker.INSERT, (1, "first")), (Marker.INSERT, (2, "second"))])
    table.apply([(Marker.INSERT, (3, "third"))])
    return table


@pytest.fixture
def damaged(table: Mirrored) -> Path:
    """The file of two rows, with another bit in one. Nobody notices in the given session."""
    (path,) = (path for path in data_files(table) if b"second" in path.read_bytes())
    flipped(path, b"second")
    path.with_name(f".{path.name}.crc").unlink()  # of Hadoop, for local files alone
    assert (2, "recond") in table.rows()
    return path


def data_files(table: Mirrored) -> list[Path]:
    location = table.store.location(table.path)
    return [Path(location, file["path"]) for file in TableLog(location).snapshot().files.values()]


def updated(row: Row) -> Callable[[Mirrored], Outcome | None]:
    return lambda table: table.run(table.step([(Marker.UPDATE, row)]))


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(updated((1, "other")), id="a row beside it is updated"),
        pytest.param(updated((2, UNCHANGED)), id="its value is taken over"),
        pytest.param(Mirrored.compact, id="its file is joined with another"),
    ],
)
def test_a_damaged_row_is_not_written_again(
    table: Mirrored, damaged: Path, work: Callable[[Mirrored], Outcome | None]
) -> None:
    before, content = table.engine.progress(table.path).version, damaged.read_bytes()
    outcome = work(table)
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, ForeignTable)
    assert f"{damaged.name}: a page does not match its checksum" in str(outcome.error)
    assert "econd" not in str(outcome.error)
    assert table.engine.progress(table.path).version == before
    assert damaged.read_bytes() == content


def test_a_vacuum_by_a_damaged_checkpoint_deletes_nothing(given: Spark, table: Mirrored) -> None:
    """To Delta, a data file under another name is one that no version needs."""
    location, files = Path(table.store.location(table.path)), data_files(table)
    write(location)
    (checkpoint,) = location.glob("_delta_log/*.checkpoint.parquet")
    flipped(checkpoint, files[0].name[-40:-30].encode())
    for path in files:
        os.utime(path, (0, 0))
    logs: Any = given.session._jvm
    logs.org.apache.spark.sql.delta.DeltaLog.clearCache()  # as in another process
    tables = SparkTables(given.session, table.store)
    with pytest.raises(ForeignTable, match=f"{checkpoint.name}: a page does not match"):
        tables.vacuum(table.path, timedelta(0), lambda: None)
    assert all(path.exists() for path in files)
