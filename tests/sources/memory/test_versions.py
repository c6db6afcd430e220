"""Rows of a database in memory have versions, and tables without a key are logged in whole rows."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from mirrorlake.errors import TableAltered
from mirrorlake.model.clock import WallClock
from mirrorlake.model.table import Column
from mirrorlake.model.types import INTEGER, STRING
from mirrorlake.sources.chunk import Changes
from mirrorlake.sources.memory.database import MemoryDatabase
from mirrorlake.sources.memory.settings import MemorySettings
from mirrorlake.sources.memory.snapshot import MemorySnapshot
from mirrorlake.sources.memory.source import MemorySource
from mirrorlake.sources.table import SnapshotPart, SourceTable
from tests.sources.memory.scene import COLUMNS

Version = tuple[str, int]
Values = tuple[int, str | None]


class Tables:
    """A table without a key, and one with a key, read in three parts."""

    def __init__(self) -> None:
        self.database = MemoryDatabase(WallClock())
        self.database.create("s.whole", COLUMNS, whole_rows=True)
        self.database.create("s.keyed", COLUMNS, ["id"])
        settings = MemorySettings(
            self.database, has_versions=True, parts=lambda: 3, rows=lambda left: (left + 1) // 2
        )
        self.source = MemorySource(settings)
        with self.database.transaction() as write:
            for name in ("s.whole", "s.keyed"):
                for key in range(8):
                    write.insert(name, id=key, note="old")
            write.insert("s.whole", id=1, note="old")

    def table(self, name: str) -> SourceTable:
        return next(one for one in self.source.discover() if str(one.table) == f"s.{name}")

    def read(self, name: str) -> list[dict[Version, Values]]:
        """By part, the rows by their versions."""
        snapshot = self.source.snapshot()
        parts = snapshot.parts(self.table(name))
        return [rows_of(snapshot.versioned(part)) for part in parts]


def rows_of(
    batches: Iterator[tuple[pa.RecordBatch, pa.RecordBatch]],
) -> dict[Version, Values]:
    found = {}
    for rows, versions in batches:
        for row, version in zip(rows.to_pylist(), versions.to_pylist(), strict=True):
            found[version["place"], version["write"]] = row["id"], row["note"]
    return found


@pytest.fixture
def tables() -> Tables:
    return Tables()


@pytest.mark.parametrize("name", ["whole", "keyed"])
def test_a_version_stands_for_one_row_and_its_values(tables: Tables, name: str) -> None:
    before = tables.read(name)
    with tables.database.transaction() as write:
        write.update(f"s.{name}", {"id": 2}, note="new")
        write.update(f"s.{name}", {"id": 3}, note="old")
        write.delete(f"s.{name}", id=4)
        write.insert(f"s.{name}", id=4, note="old")
        write.delete(f"s.{name}", id=5)
    for part, now in zip(before, tables.read(name), strict=True):
        assert all(now[version] == row for version, row in part.items() if version in now)
        assert not {2, 3, 4, 5} & {now[version][0] for version in part.keys() & now.keys()}
        assert {0, 1, 6, 7} >= {now[version][0] for version in part.keys() & now.keys()}
        assert len({place for place, _write in now}) == len(now)


@pytest.mark.parametrize("name", ["whole", "keyed"])
def test_only_the_rows_with_some_versions_are_read(tables: Tables, name: str) -> None:
    snapshot = tables.source.snapshot()
    for part in snapshot.parts(tables.table(name)):
        every = rows_of(snapshot.versioned(part))
        versions = snapshot.versions(part)
        assert list(zip(*versions.to_pydict().values(), strict=True)) == [*every]
        some = rows_of(snapshot.only(part, versions.slice(1)))
        assert some == dict([*every.items()][1:])


def facts(snapshot: MemorySnapshot, table: SourceTable) -> list[object]:
    return [snapshot.facts(part) for part in snapshot.parts(table)]


def test_facts_change_with_the_columns_and_the_server(tables: Tables) -> None:
    table = tables.table("whole")
    found = [facts(tables.source.snapshot(), table)]
    with tables.database.transaction() as write:
        write.update("s.whole", {"id": 2}, note="new")
    assert facts(tables.source.snapshot(), table) == found[0]
    with tables.database.transaction() as write:
        columns = [(column, column.name) for column in COLUMNS]
        write.alter("s.whole", [*columns, (Column("more", STRING), None)])
    found.append(facts(tables.source.snapshot(), table))
    tables.database.servers += 1
    found.append(facts(tables.source.snapshot(), table))
    assert len({str(one) for facts in found for one in facts}) == 9


def test_nothing_is_noted_of_another_table(tables: Tables) -> None:
    table = tables.table("whole")
    tables.database.drop("s.whole")
    assert facts(tables.source.snapshot(), table) == [None] * 3
    tables.database.create("s.whole", COLUMNS, whole_rows=True)
    assert facts(tables.source.snapshot(), table) == [None] * 3


def test_a_described_part_is_not_read_with_other_columns(tables: Tables) -> None:
    table = tables.table("whole")
    with tables.database.transaction() as write:
        write.alter("s.whole", [(Column("id", INTEGER), "id"), (Column("text", STRING), "note")])
    snapshot = tables.source.snapshot()
    part = SnapshotPart(table, (0, 1), is_described=True)
    with pytest.raises(TableAltered):
        snapshot.versions(part)
    with pytest.raises(TableAltered):
        next(snapshot.versioned(part))


def test_whole_rows_go_and_come(tables: Tables) -> None:
    since = tables.database.current
    with tables.database.transaction() as write:
        write.delete_one("s.whole", id=1)
        write.update_one("s.whole", {"id": 2}, note="new")
        write.delete("s.whole", id=3, note="old")
    tables.database.slots.clear()
    source = MemorySource(MemorySettings(tables.database, slot=None))
    stream = source.stream([tables.table("whole")], since)
    chunk = stream.read(0)
    assert chunk is not None
    (part,) = chunk.parts
    assert isinstance(part, Changes)
    assert part.marker.tolist() == [2, 2, 0, 2]
    assert part.ordinal.tolist() == [1, 2, 2, 3]
    rows = [tuple(row.values()) for row in part.rows.to_pylist()]
    assert rows == [(1, "old"), (2, "old"), (2, "new"), (3, "old")]
    left = [row for row in tables.database.rows("s.whole") if row["id"] == 1]
    assert len(left) == 1
