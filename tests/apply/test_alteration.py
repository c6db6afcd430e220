"""Columns that are altered in a table, where the random lives do not come by."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from mirrorlake import read_feed
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.delta.lookup.key_index import MIN_ROWS
from mirrorlake.delta.schema import MAPPING, TYPE_WIDENING
from mirrorlake.errors import SchemaMergeFailure, UnsupportedTable
from mirrorlake.mirror.faults import TableFault
from mirrorlake.mirror.steps import AlterColumns, RenameColumns
from mirrorlake.model import types
from mirrorlake.model.types import DataType
from mirrorlake.storage.local import LocalStore
from tests.conformance.apply.scenario import delete, insert, update
from tests.conformance.mirrored import Mirrored
from tests.doubles.handmade_engine import HandmadeReader, in_process_engine
from tests.histories import Shape

SHAPE = Shape.of(
    ["id"], id=types.INTEGER, n=types.INTEGER, d=types.decimal(9, 2), f=types.FLOAT, t=types.STRING
)


@pytest.fixture
def table(store: LocalStore) -> Mirrored:
    made = Mirrored(in_process_engine(store), store, HandmadeReader(store), SHAPE).create()
    made.apply([insert(1, 10, None, 0.5, "a"), insert(2, None, None, None, None)])
    made.apply([insert(3, 30, None, 1.5, "7"), update(1, 11, None, 0.5, "b")])
    made.apply([delete(2, None, None, None, None)])
    return made


def altering(
    table: Mirrored, types: dict[str, DataType] | None = None, **copied: str
) -> AlterColumns:
    number = table.recorded + 1
    return AlterColumns(table.table, table.path, number, copied, None, types or {})


WIDER = {"id": types.LONG, "n": types.DOUBLE, "d": types.decimal(12, 3), "f": types.DOUBLE}


def test_wider_types_are_not_in_the_feed(table: Mirrored) -> None:
    before = table.reader.feed(table.path)
    table.engine.alter_columns(altering(table, WIDER), lambda: None)
    progress = table.engine.progress(table.path)
    assert [str(c.type) for c in progress.schema] == [
        *("long", "double", "decimal(12,3)", "double", "string")
    ]
    assert sorted(table.rows()) == [(1, 11.0, None, 0.5, "b"), (3, 30.0, None, 1.5, "7")]
    assert len(table.reader.feed(table.path)) == len(before)
    log = TableLog(table.store.location(table.path))
    actions = [one for kind in ("add", "remove") for a in log.actions(4) if (one := a.get(kind))]
    assert actions
    assert not any(action["dataChange"] for action in actions)
    assert table.recorded == progress.recorded == 3


def test_the_feed_is_read_across_wider_types(table: Mirrored) -> None:
    table.engine.alter_columns(altering(table, WIDER), lambda: None)
    shape = Shape.of(["id"], **{c.name: WIDER.get(c.name, c.type) for c in SHAPE.schema})
    after = Mirrored(table.engine, table.store, table.reader, shape, recorded=3)
    after.apply([insert(2**40, 1.5, None, 1e300, "x")])
    feed = read_feed(
        Path(table.store.location(table.path)), from_version=0, on_schema_change="unite"
    ).to_arrow()
    assert feed.schema.field("id").type == pa.int64()
    inserted = [row for row in feed.to_pylist() if row["_change_type"] == "insert"]
    assert {row["id"] for row in inserted} == {1, 2, 3, 2**40}


def test_a_commit_records_the_alteration_and_no_batch(table: Mirrored) -> None:
    table.engine.alter_columns(altering(table, t="t", n="id"), lambda: None)
    said = json.loads(table.reader.commit(table.path, 4)["userMetadata"])
    assert said["altered"] == {"before_file": 4, "columns": ["t", "n"]}
    assert "files" not in said
    progress = table.engine.progress(table.path)
    assert (progress.recorded, progress.altered) == (3, 4)
    assert progress.batch is not None
    assert progress.batch.version == 3


def test_a_value_that_does_not_fit_leaves_the_table_as_it_was(table: Mirrored) -> None:
    with pytest.raises(SchemaMergeFailure, match="does not fit"):
        table.engine.alter_columns(altering(table, n="t"), lambda: None)
    assert table.engine.progress(table.path).version == 3


def test_without_permission_to_commit_nothing_is_committed(table: Mirrored) -> None:
    def refused() -> None:
        raise UnsupportedTable("no", table="t", hint="")

    with pytest.raises(UnsupportedTable):
        table.engine.alter_columns(altering(table, n="id"), refused)
    assert table.engine.progress(table.path).version == 3


def test_a_commit_of_another_writer_is_detected(table: Mirrored) -> None:
    def meanwhile() -> None:
        table.apply([insert(9, 9, None, None, "x")])

    with pytest.raises(TableFault, match="another writer"):
        table.engine.alter_columns(altering(table, n="id"), meanwhile)
    assert table.engine.progress(table.path).altered == 0


def test_a_table_that_only_delta_can_write_stops(store: LocalStore) -> None:
    engine = in_process_engine(store, merges=True)
    table = Mirrored(engine, store, HandmadeReader(store), SHAPE).create()
    table.apply([insert(1, 10, None, 0.5, "a")])
    with pytest.raises(UnsupportedTable, match="only Delta can write"):
        engine.alter_columns(altering(table, n="id"), lambda: None)


@pytest.fixture
def renaming(table: Mirrored) -> RenameColumns:
    """Two columns of a table with column mapping exchange their names."""
    table.engine.set_properties(table.path, {MAPPING: "name"})
    return RenameColumns(table.table, table.path, table.recorded + 1, {"n": "id", "id": "n"})


def test_a_commit_records_the_new_names(table: Mirrored, renaming: RenameColumns) -> None:
    before = table.rows()
    table.engine.rename_columns(renaming, lambda: None)
    said = json.loads(table.reader.commit(table.path, 5)["userMetadata"])
    assert said["renamed"] == {"before_file": 4, "columns": {"n": "id", "id": "n"}}
    progress = table.engine.progress(table.path)
    assert (progress.renamed_before, progress.renamed) == (4, renaming.names)
    assert progress.schema.names[:2] == ["n", "id"]
    assert table.rows() == before
    table.engine.rename_columns(renaming, lambda: None)
    assert table.engine.progress(table.path).version == 5


def test_names_stay_without_permission_to_commit(table: Mirrored, renaming: RenameColumns) -> None:
    def refused() -> None:
        raise UnsupportedTable("no", table="t", hint="")

    with pytest.raises(UnsupportedTable):
        table.engine.rename_columns(renaming, refused)
    assert table.engine.progress(table.path).schema.names == SHAPE.schema.names


def test_names_stay_when_another_writer_commits_first(
    table: Mirrored, renaming: RenameColumns
) -> None:
    def meanwhile() -> None:
        table.apply([insert(9, 9, None, None, "x")])

    with pytest.raises(TableFault, match="another writer"):
        table.engine.rename_columns(renaming, meanwhile)
    assert table.engine.progress(table.path).renamed_before == 0


@pytest.mark.parametrize("names", [{"lost": "found"}, {"n": "m", "lost": "found"}])
def test_names_stay_when_a_column_is_no_longer_there(
    table: Mirrored, renaming: RenameColumns, names: dict[str, str]
) -> None:
    with pytest.raises(TableFault, match="another writer"):
        table.engine.rename_columns(replace(renaming, names=names), lambda: None)
    assert table.engine.progress(table.path).schema.names == SHAPE.schema.names


def test_names_stay_without_column_mapping(table: Mirrored) -> None:
    """Otherwise the values would be lost: they stand under the former names in data files."""
    step = RenameColumns(table.table, table.path, 4, {"n": "m"})
    with pytest.raises(TableFault):
        table.engine.rename_columns(step, lambda: None)
    assert table.engine.progress(table.path).schema.names == SHAPE.schema.names


def test_a_wider_type_is_told_readers_and_leaves_the_files(table: Mirrored) -> None:
    wider = {"id": types.LONG, "d": types.decimal(12, 3)}
    log = TableLog(table.store.location(table.path))
    before = set(log.snapshot().files)
    table.engine.set_properties(table.path, {TYPE_WIDENING: "true"})
    step = replace(altering(table, wider), widened=frozenset(wider))
    table.engine.alter_columns(step, lambda: None)
    assert sorted(table.rows()) == [(1, 11, None, 0.5, "b"), (3, 30, None, 1.5, "7")]
    assert set(log.snapshot().files) == before
    protocol = log.snapshot().protocol
    assert "typeWidening" in protocol["readerFeatures"]
    assert "typeWidening" in protocol["writerFeatures"]
    assert type_changes(log) == {
        "id": [{"fromType": "integer", "toType": "long"}],
        "d": [{"fromType": "decimal(9,2)", "toType": "decimal(12,3)"}],
    }
    assert not table.engine.progress(table.path).delegated


def test_the_types_of_rewritten_files_are_told_no_longer(table: Mirrored) -> None:
    log = TableLog(table.store.location(table.path))
    table.engine.set_properties(table.path, {TYPE_WIDENING: "true"})
    wider = {"id": types.LONG, "n": types.LONG}
    step = replace(altering(table, wider), widened=frozenset(wider))
    table.engine.alter_columns(step, lambda: None)
    text = replace(altering(table, {"n": types.STRING}, n="n"), number=step.number + 1)
    table.engine.alter_columns(text, lambda: None)
    assert [*type_changes(log)] == ["id"]
    assert sorted(row[:2] for row in table.rows()) == [(1, "11"), (3, "30")]


@pytest.mark.full
def test_keys_of_a_large_file_are_found_by_their_wider_values(store: LocalStore) -> None:
    """Its key index was built for the former type."""
    shape = Shape.of(["id", "d"], id=types.SHORT, d=types.decimal(9, 2), n=types.INTEGER)
    one, many = Decimal("0.25"), 3 * MIN_ROWS
    made = Mirrored(in_process_engine(store), store, HandmadeReader(store), shape).create()
    made.apply([insert(i % 30_000, one + i, i) for i in range(many)])
    made.apply([update(5, one + 5, 0), delete(6, one + 6, None)])
    wider = {"id": types.LONG, "d": types.decimal(14, 4)}
    made.engine.set_properties(made.path, {TYPE_WIDENING: "true"})
    step = replace(altering(made, wider), widened=frozenset(wider))
    made.engine.alter_columns(step, lambda: None)
    after = Shape.of(["id", "d"], **wider, n=types.INTEGER)
    again = Mirrored(made.engine, store, made.reader, after, made.path, made.recorded)
    again.apply([update(5, one + 5, 1), delete(7, one + 7, None), insert(2**40, one, 2)])
    found = {row[0]: row[2] for row in again.rows() if row[1] < 10 or row[0] > many}
    assert found == {**{i: i for i in range(10) if i not in {5, 6, 7}}, 5: 1, 2**40: 2}
    assert len(again.rows()) == many - 1


def type_changes(log: TableLog) -> dict[str, Any]:
    """What the log says of columns that were widened, by column."""
    fields = json.loads(log.snapshot().metadata["schemaString"])["fields"]
    found = {field["name"]: field["metadata"].get("delta.typeChanges") for field in fields}
    return {name: changes for name, changes in found.items() if changes}
