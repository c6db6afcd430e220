"""What the stream of a database in memory says of earlier rows when a table was altered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from mirrorlake.model.change import Alteration, SchemaChangeKind
from mirrorlake.model.clock import WallClock
from mirrorlake.model.table import Column, Schema
from mirrorlake.model.types import LONG, STRING
from mirrorlake.sources.chunk import Chunk, SchemaChange, TableDiffers, TableLost
from mirrorlake.sources.memory.database import MemoryDatabase
from mirrorlake.sources.memory.settings import MemorySettings
from mirrorlake.sources.memory.source import MemorySource
from mirrorlake.sources.table import SourceTable

ID, NOTE, TEXT, MORE = (
    Column("id", LONG), Column("note", STRING), Column("text", STRING), Column("more", STRING)
)  # fmt: skip
SAME = ((ID, "id"), (NOTE, "note"), (TEXT, "text"))
Columns = Sequence[tuple[Column, str | None]]


class Shop:
    """A database with one table and a row, and its source."""

    def __init__(self, *, recognises: bool = True) -> None:
        self.database = MemoryDatabase(WallClock())
        self.database.create("shop.orders", Schema.of([ID, NOTE, TEXT]), ["id"])
        self.settings = MemorySettings(self.database, slot=None, recognises=recognises)
        self.source = MemorySource(self.settings)
        (self.table,) = self.source.discover()
        self.since = self.source.current()

    def alter(
        self,
        columns: Columns,
        computed: Mapping[str, Callable[[Any], Any]] | None = None,
        **defaults: Any,
    ) -> None:
        with self.database.transaction() as write:
            write.alter("shop.orders", columns, computed, **defaults)

    def insert(self, key: int, name: str = "id") -> None:
        with self.database.transaction() as write:
            write.insert("shop.orders", **{name: key})

    def read(self, table: SourceTable | None = None) -> Chunk:
        found = self.source.stream([table or self.table], self.since).read(0.0)
        assert found is not None
        return found

    def told(self) -> list[Alteration | None]:
        parts = self.read().parts
        return [part.alteration for part in parts if isinstance(part, SchemaChange)]


@pytest.fixture
def shop() -> Shop:
    return Shop()


def test_it_is_told_before_the_next_row(shop: Shop) -> None:
    shop.alter([*SAME, (MORE, None)], more="x")
    assert shop.told() == []
    shop.insert(1)
    (told,) = shop.told()
    assert told is not None
    assert told.filled is not None
    assert told.filled.to_pylist() == [{"more": "x"}]


def test_several_are_told_as_one(shop: Shop) -> None:
    shop.alter([(ID, "id"), (MORE, "note"), (TEXT, "text")])
    shop.alter([(ID, "id"), (TEXT, "more"), (NOTE, "text")])
    shop.insert(1)
    assert shop.told() == [Alteration({"text": "note", "note": "text"})]


def test_what_is_undone_before_the_next_row_is_not_told(shop: Shop) -> None:
    shop.alter([(ID, "id"), (MORE, "note"), (TEXT, "text")])
    shop.alter([(ID, "id"), (NOTE, "more"), (TEXT, "text")])
    shop.insert(1)
    assert shop.told() == []


def test_a_column_of_a_former_name_is_another_column(shop: Shop) -> None:
    shop.alter([(ID, "id"), (TEXT, "text")])
    shop.insert(1)
    shop.alter([(ID, "id"), (TEXT, "text"), (NOTE, None)])
    shop.insert(2)
    gone, again = shop.told()
    assert gone == Alteration(gone=("note",))
    assert again is not None
    assert again.filled is not None
    assert again.filled.to_pylist() == [{"note": None}]


@pytest.mark.parametrize("column", [NOTE, MORE])
def test_rows_differ_when_values_were_computed(shop: Shop, column: Column) -> None:
    columns = SAME if column == NOTE else (*SAME, (MORE, None))
    shop.alter(columns, {column.name: lambda _row: "x"})
    shop.insert(1)
    (differs,) = [part for part in shop.read().parts if isinstance(part, TableDiffers)]
    kind = SchemaChangeKind.TYPE_CHANGED if column == NOTE else SchemaChangeKind.COLUMN_ADDED
    assert (differs.kinds, differs.saved) == ({kind}, ())


def test_former_values_of_another_type_are_saved(shop: Shop) -> None:
    number = replace(NOTE, type=LONG)
    shop.alter([(ID, "id"), (number, "note"), (TEXT, "text")], {"note": lambda _row: 1})
    shop.insert(1)
    (differs,) = [part for part in shop.read().parts if isinstance(part, TableDiffers)]
    assert (differs.kinds, differs.saved) == ({SchemaChangeKind.TYPE_CHANGED}, ("note_before_1",))
    assert shop.told() == [Alteration(saved={"note": "note_before_1"})]


def test_a_key_has_another_name(shop: Shop) -> None:
    shop.alter([(replace(ID, name="number"), "id"), *SAME[1:]])
    shop.insert(1, "number")
    assert shop.told() == [Alteration({"number": "id"}, gone=("id",), key=("number",))]


def test_what_a_table_was_known_by_is_told_from_there_on(shop: Shop) -> None:
    shop.alter([(ID, "id"), (MORE, "note"), (TEXT, "text")])
    shop.insert(1)
    first = shop.read()
    shop.alter([(ID, "id"), (NOTE, "more"), (TEXT, "text")])
    shop.insert(2)
    known = replace(shop.table, known=first.known[shop.table.table])
    shop.since = first.reached()[-1]
    (told,) = [part for part in shop.read(known).parts if isinstance(part, SchemaChange)]
    assert told.alteration == Alteration({"note": "more"}, gone=("more",))


def test_what_was_before_a_load_is_not_told(shop: Shop) -> None:
    shop.insert(1)
    shop.alter([(ID, "id"), (MORE, "note"), (TEXT, "text")])
    (now,) = shop.source.discover()
    loaded = replace(now, known={**now.known, "loaded": str(shop.source.current())})
    shop.insert(2)
    parts = [part for part in shop.read(loaded).parts if isinstance(part, SchemaChange)]
    assert [(p.table.schema.names[1], p.alteration) for p in parts] == [
        ("note", None),
        ("more", None),
    ]
    assert any(isinstance(part, TableLost) for part in shop.read(now).parts)


def test_a_source_that_does_not_recognise_columns_only_describes_them() -> None:
    shop = Shop(recognises=False)
    shop.alter([(ID, "id"), (MORE, "note"), (TEXT, "text")])
    shop.insert(1)
    assert shop.told() == [None]
    assert shop.read().known == {}
