"""Others rewrite the files of a table that is searched by indexes: what is found stays right."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.delta.lookup import key_index, key_join
from mirrorlake.delta.schema import parse
from mirrorlake.mirror.engine import Conflicted
from mirrorlake.mirror.strategy import StrategySetting
from mirrorlake.model import types
from mirrorlake.model.change import Marker
from mirrorlake.spark.engine import spark_engine
from mirrorlake.spark.runner import SparkRunner
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.storage.local import LocalStore
from tests.conformance.mirrored import Mirrored
from tests.delta.lookup_ways import Way, forced
from tests.histories import Shape, counted
from tests.reference import Change, Row, Table
from tests.spark import reading
from tests.spark.test_apply import SparkReader
from tests.spark.test_readers import replayed

pytestmark = [pytest.mark.spark, pytest.mark.full]

INSERT, UPDATE, DELETE, UPSERT = Marker.INSERT, Marker.UPDATE, Marker.DELETE, Marker.UPSERT

BY_NUMBER = Shape.of(["id"], id=types.LONG, name=types.STRING)
BY_BOTH = Shape.of(["code", "id"], id=types.LONG, name=types.STRING, code=types.STRING)
"""Keys of numbers have another hash than all others."""

OPTIMIZE = "optimize {t}"
REWRITES = {
    "joined": (BY_NUMBER, OPTIMIZE),
    "joined in another order": (BY_BOTH, "optimize {t} zorder by (name)"),
    "written without what is gone": (BY_BOTH, "reorg table {t} apply (purge)"),
}


class IndexedRunner(SparkRunner):
    """Tasks find rows by indexes, then pages, however small the files, or not at all."""

    def run(self, work: Callable[[Any], Any], items: Sequence[Any], *more: Any) -> list[Any]:
        def indexed(item: Any) -> Any:
            with forced(Way.INDEX_PAGES) as patch:
                patch.setattr(key_join, "matches", None)
                patch.setattr(key_join, "rows", None)
                return work(item)

        return super().run(indexed, items, *more)


@dataclass
class Searched:
    """A table whose rows are found by indexes, its model, and what its feed should be."""

    spark: Spark
    ours: Mirrored
    model: Table = field(init=False)
    feeds: dict[int, Counter[tuple[str, Row]]] = field(init=False)

    @property
    def path(self) -> Path:
        return Path(self.ours.store.location(self.ours.path))

    def create(self) -> Searched:
        """Three files with rows whose keys lie among each other, and a row without a key."""
        self.ours.create(replace=self.ours.recorded > 0)
        self.ours.recorded, self.model, self.feeds = 0, self.ours.shape.table(), {}
        for first in range(3):
            self.apply([Change(INSERT, self.row(n, "old")) for n in (*range(first, 60, 3), None)])
        return self

    def row(self, number: int | None, name: str) -> Row:
        code = None if number is None or number % 5 == 0 else f"c{number % 7}"
        values = {"id": number, "name": name, "code": code}
        return tuple(values[column.name] for column in self.ours.shape.schema)

    def change(self, number: int) -> None:
        """A batch that seeks keys in each file: some are there, one is NULL, some are new."""
        strategy = {
            UPDATE: [*range(number, 60, 5), None],
            DELETE: range(number, 60, 9),
            UPSERT: range(number + 50, 70, 4),
            INSERT: range(100 * number, 100 * number + 5),
        }
        name = f"batch {number}"
        self.apply([Change(m, self.row(n, name)) for m, some in strategy.items() for n in some])

    def apply(self, changes: list[Change]) -> None:
        applied = self.ours.apply([(change.marker, change.row) for change in changes])
        self.feeds[applied.version] = self.model.apply(changes)

    def by_hand(self, statement: str) -> None:
        self.spark.session.sql(statement.format(t=reading.sql_name(self.path))).collect()

    def files(self) -> set[str]:
        return {add["path"] for add in TableLog(self.path).snapshot().files.values()}

    def indexes(self) -> dict[str, tuple[int, int]]:
        """Which file each index on disk is, by the data file."""
        root = self.path / key_index.FOLDER
        found = {str(file.relative_to(root)): file.stat() for file in root.rglob("*.keys")}
        return {
            name.removesuffix(key_index.SUFFIX): (facts.st_ino, facts.st_mtime_ns)
            for name, facts in found.items()
        }

    def has_good_indexes(self, names: set[str]) -> bool:
        """Whether these data files have indexes that count."""
        snapshot = TableLog(self.path).snapshot()
        adds = [add for add in snapshot.files.values() if add["path"] in names]
        schema, key = parse(snapshot.metadata), self.ours.shape.key
        found = [key_index.open_index(self.path, add, schema, key) for add in adds]
        return len(found) == len(names) and None not in found

    def holds_what_the_model_does(self) -> None:
        rows, feeds = counted(self.ours.rows()), self.ours.reader.feed(self.ours.path)
        assert rows == counted(self.model.rows)
        assert feeds == {version: feed for version, feed in self.feeds.items() if feed}
        assert replayed(feeds) == rows


@pytest.fixture
def make(spark: Spark, store: LocalStore) -> Callable[[Shape], Searched]:
    runner, reader = IndexedRunner(spark.session), SparkReader(spark.session, store)
    engine = spark_engine(
        spark, store, strategy=StrategySetting.DIRECT, runner=runner, compaction=False
    )
    return lambda shape: Searched(spark, Mirrored(engine, store, reader, shape)).create()


@pytest.fixture
def table(make: Callable[[Shape], Searched]) -> Searched:
    """After two batches, by indexes of all its files but the last."""
    table = make(BY_NUMBER)
    table.change(1)
    table.change(2)
    return table


@pytest.mark.parametrize(("shape", "statement"), REWRITES.values(), ids=REWRITES)
def test_files_that_others_have_rewritten_get_indexes_of_their_own(
    make: Callable[[Shape], Searched], shape: Shape, statement: str
) -> None:
    table = make(shape)
    searched = table.files()
    table.change(1)
    before = table.indexes()
    assert searched <= before.keys()
    table.change(2)
    assert before.items() <= table.indexes().items()

    table.by_hand(statement)
    others = table.files() - table.indexes().keys()
    assert others
    table.change(3)
    made = table.indexes()
    assert others <= made.keys()
    table.change(4)
    assert made.items() <= table.indexes().items()
    assert table.has_good_indexes(others)
    table.holds_what_the_model_does()


def empty(_table: Searched, index: Path) -> None:
    """An index in which some keys are not, under a header that says it is good."""
    content = index.read_bytes()
    index.unlink()
    index.write_bytes(content[:-200] + bytes(200))


def swap(_table: Searched, index: Path) -> None:
    """That of a file which is no part of the table any more."""
    old = next(path for path in index.parent.iterdir() if path != index)
    index.unlink()
    shutil.copy(old, index)


def drop(table: Searched, _index: Path) -> None:
    shutil.rmtree(table.path / "_mirrorlake")


def test_an_index_of_a_rewritten_file_that_does_not_count_is_made_again(table: Searched) -> None:
    table.by_hand(OPTIMIZE)
    (joined,) = others = table.files()
    table.change(3)
    for number, harm in enumerate((empty, swap, drop), start=4):
        assert table.has_good_indexes(others)
        harm(table, table.path / key_index.FOLDER / f"{joined}{key_index.SUFFIX}")
        assert not table.has_good_indexes(others)
        table.change(number)
    assert table.has_good_indexes(others)
    table.holds_what_the_model_does()


def test_a_table_that_somebody_restored_is_left_alone_until_it_is_made_anew(
    table: Searched,
) -> None:
    """Files that were joined are back, and their indexes are still there."""
    table.by_hand(OPTIMIZE)
    table.change(3)
    indexes, rows = table.indexes(), table.ours.rows()
    table.by_hand("restore table {t} to version as of 4")
    assert table.ours.engine.progress(table.ours.path).restored is not None
    step = table.ours.step([(UPDATE, table.row(1, "new"))])
    assert isinstance(table.ours.run(step), Conflicted)
    assert table.indexes() == indexes
    assert counted(table.ours.rows()) != counted(rows)
    table.create()
    table.change(1)
    assert table.indexes()
    assert not table.indexes().keys() & indexes.keys()
    table.holds_what_the_model_does()
