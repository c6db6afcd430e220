"""What a plan does about renamed columns where the project wants them renamed in the table too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest

from mirrorlake.errors import UnsupportedColumn
from mirrorlake.landing.parquet.reader import Inspected
from mirrorlake.mirror.steps import AddColumns, AlterColumns, ApplyFiles, RenameColumns, Step
from mirrorlake.mirror.strategy import StrategySetting
from mirrorlake.mirror.table.progress import Progress
from mirrorlake.model.change import Alteration
from mirrorlake.model.table import Column, Schema
from mirrorlake.model.types import INTEGER, LONG, STRING
from tests.mirror.planning import PATH, TABLE, Situation, altering, columns, kinds, made

KNOWN = columns(id="integer", note="string", size="string")
VECTORS = {"delta.enableDeletionVectors": "true"}
MAPPED = {"delta.columnMapping.mode": "name"}


def table(schema: Schema = KNOWN, **properties: str) -> Progress:
    """A table whose readers know column mapping."""
    found = made(1, schema)
    return replace(found, properties={**found.properties, **VECTORS, **properties})


def steps(file: Inspected, progress: Progress | None = None, **given: bool) -> Sequence[Step]:
    """Those before the batch."""
    situation = Situation({2: file}, progress=progress or table(), renames=True, **given)
    planned = situation.plan()
    assert planned.error is None, planned.error
    *before, batch = planned.steps
    assert isinstance(batch, ApplyFiles)
    return before


def renaming(names: dict[str, str], *, maps: bool = True) -> RenameColumns:
    return RenameColumns(TABLE, PATH, 2, names, maps=maps)


REMARK = columns(id="integer", remark="string", size="string")
RENAMED = altering(Alteration({"remark": "note"}, gone=("note",)), REMARK)


def test_a_renamed_column_is_renamed() -> None:
    assert steps(RENAMED) == [renaming({"note": "remark"})]


def test_column_mapping_is_turned_on_once() -> None:
    assert steps(RENAMED, table(**MAPPED)) == [renaming({"note": "remark"}, maps=False)]


def test_two_columns_exchange_their_names() -> None:
    told = Alteration({"note": "size", "size": "note"})
    assert steps(altering(told, KNOWN)) == [renaming({"note": "size", "size": "note"})]


def test_a_column_that_the_table_never_had_gives_another_no_values() -> None:
    """It was added, and exchanged its name with another column, before the next row came."""
    found = columns(id="integer", extra="string", size="string", note="string")
    file = altering(Alteration({"note": "extra", "extra": "note"}), found)
    new = AddColumns(TABLE, PATH, (Column("note", STRING),))
    assert steps(file) == [renaming({"note": "extra"}), new]
    # Between the two, and after both.
    done = replace(
        table(columns(id="integer", extra="string", size="string"), **MAPPED),
        renamed_before=2,
        renamed={"note": "extra"},
    )
    assert steps(file, done) == [new]
    *_, last = steps(file, replace(done, schema=found))
    assert isinstance(last, AlterColumns)
    assert last.copied == {}
    assert last.filled is not None
    assert last.filled.to_pylist() == [{"note": None}]


def test_names_that_were_exchanged_before_a_crash_stay_exchanged() -> None:
    names = {"note": "size", "size": "note"}
    done = replace(table(**MAPPED), renamed_before=2, renamed=names)
    assert steps(altering(Alteration(names), KNOWN), done) == []
    # The names were recorded for a file before: this is another exchange.
    former = replace(done, renamed_before=1)
    assert steps(altering(Alteration(names), KNOWN), former) == [renaming(names, maps=False)]


def test_the_name_of_a_renamed_column_may_be_used_again() -> None:
    told = Alteration({"remark": "note"}, pa.record_batch({"note": pa.array([7])}))
    again = columns(id="integer", size="string", remark="string", note="long")
    rename, add, fill = steps(altering(told, again))
    assert rename == renaming({"note": "remark"})
    assert add == AddColumns(TABLE, PATH, (Column("note", LONG),))
    assert isinstance(fill, AlterColumns)
    assert (dict(fill.copied), fill.dropped) == ({}, ())
    assert fill.filled is not None
    assert fill.filled.to_pydict() == {"note": [7]}


def test_a_column_that_was_renamed_twice_has_its_last_name() -> None:
    told = Alteration({"remark": "note"}).then(Alteration({"word": "remark"}, gone=("remark",)))
    last = columns(id="integer", word="string", size="string")
    assert steps(altering(told, last)) == [renaming({"note": "word"})]


def test_the_key_is_recorded_under_its_new_name() -> None:
    told = Alteration({"code": "id"}, gone=("id",), key=("code",))
    found = steps(altering(told, columns(code="integer", note="string", size="string")))
    assert found[0] == RenameColumns(TABLE, PATH, 2, {"id": "code"}, key=("id",), maps=True)
    assert isinstance(found[1], AlterColumns)
    assert found[1].key == ("code",)


def test_a_renamed_column_may_get_another_type() -> None:
    told = Alteration({"remark": "note"}, saved={"remark": "note_before_1"})
    later = columns(id="integer", remark="integer", size="string")
    rename, add, alter = steps(altering(told, later))
    assert rename == renaming({"note": "remark"})
    assert add == AddColumns(TABLE, PATH, (Column("note_before_1", STRING),))
    assert isinstance(alter, AlterColumns)
    assert alter.copied == {"note_before_1": "remark"}
    assert (alter.types, alter.converted) == ({"remark": INTEGER}, {"remark"})


def test_dropped_columns_are_dropped_beside() -> None:
    told = Alteration({"remark": "note"}, gone=("note", "size"))
    rename, alter = steps(altering(told, columns(id="integer", remark="string")), drops=True)
    assert rename == renaming({"note": "remark"})
    assert alter == AlterColumns(TABLE, PATH, 2, {}, None, {}, dropped=("size",))


LEFT = columns(id="integer", note="string", size="string", remark="string")
COPIED = [AlterColumns(TABLE, PATH, 2, {"remark": "note"}, None, {})]
ADDED = [AddColumns(TABLE, PATH, (Column("remark", STRING),)), *COPIED]


def test_values_are_copied_where_a_dropped_column_still_has_the_name() -> None:
    assert steps(RENAMED, table(LEFT)) == COPIED


def test_values_are_copied_where_readers_do_not_know_column_mapping() -> None:
    assert steps(RENAMED, made(1, KNOWN)) == ADDED


def test_values_are_copied_where_properties_name_columns() -> None:
    found = table()
    named = {**found.properties, "delta.dataSkippingStatsColumns": "note"}
    assert steps(RENAMED, replace(found, properties=named)) == ADDED


def test_values_are_copied_where_only_delta_may_write() -> None:
    assert steps(RENAMED, replace(table(), delegated="it has the constraint c")) == ADDED
    situation = Situation({2: RENAMED}, progress=table(), renames=True)
    known = situation.known
    other = replace(known, settings=replace(known.settings, strategy=StrategySetting.MERGE))
    assert known.renames_columns
    assert not other.renames_columns


def test_values_are_copied_where_new_columns_are_ignored() -> None:
    assert steps(RENAMED, ignores=True) == ADDED


def test_a_name_in_another_case_stays() -> None:
    told = Alteration({"NOTE": "note"})
    assert steps(altering(told, columns(id="integer", NOTE="string", size="string"))) == []


@pytest.mark.parametrize("name", ["__x", "_change_type"])
def test_a_name_that_a_table_cannot_have_stops_it(name: str) -> None:
    later = columns(id="integer", size="string", **{name: "string"})
    file = altering(Alteration({name: "note"}, gone=("note",)), later)
    planned = Situation({2: file}, progress=table(), renames=True).plan()
    assert (kinds(planned), type(planned.error)) == ([], UnsupportedColumn)
