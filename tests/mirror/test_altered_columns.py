"""What a plan does about columns that were altered in the source, and types that became wider."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from mirrorlake.delta.schema import FeedMode
from mirrorlake.errors import SchemaMergeFailure
from mirrorlake.mirror.batch_limits import BatchLimits
from mirrorlake.mirror.steps import AddColumns, AlterColumns, ApplyFiles
from mirrorlake.model.change import Alteration, SchemaChangeKind
from mirrorlake.model.table import Column
from mirrorlake.model.types import INTEGER, LONG, STRING, DataType
from tests.mirror.planning import (
    PATH,
    TABLE,
    Situation,
    altering,
    batch,
    changes,
    columns,
    foreign,
    kinds,
    made,
)

RENAMED = columns(id="integer", remark="string")
COPIED = Alteration({"remark": "note"})
WIDER = columns(id="long", note="string")
NOTHING: frozenset[SchemaChangeKind] = frozenset()


def filled(**values: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({name: pa.array([v]) for name, v in values.items()})


def test_a_renamed_column_gets_the_values_of_the_old_one() -> None:
    planned = Situation({2: altering(COPIED, RENAMED), 3: changes(RENAMED)}, progress=made(1))
    steps = planned.plan().steps
    assert [type(step) for step in steps] == [AddColumns, AlterColumns, ApplyFiles]
    assert steps[1] == AlterColumns(TABLE, PATH, 2, {"remark": "note"}, None, {})
    assert batch(planned.plan()) == (2, 3)


def test_files_before_an_alteration_are_applied_first() -> None:
    found = {2: changes(), 3: altering(COPIED, RENAMED)}
    planned = Situation(found, progress=made(1)).plan()
    assert (kinds(planned), batch(planned)) == ([ApplyFiles], (2, 2))


def test_a_transaction_that_alters_columns_is_applied_in_parts() -> None:
    found = {2: changes(), 3: changes(complete=False), 4: altering(COPIED, RENAMED)}
    assert batch(Situation(found, progress=made(1)).plan()) == (2, 2)
    del found[2]
    assert batch(Situation(found, progress=made(2)).plan()) == (3, 3)


def test_a_recorded_alteration_is_not_repeated() -> None:
    after = columns(id="integer", note="string", remark="string")
    progress = replace(made(1, after), altered=2)
    planned = Situation({2: altering(COPIED, RENAMED)}, progress=progress).plan()
    assert kinds(planned) == [ApplyFiles]


def test_a_crash_after_adding_a_column_leaves_its_values_to_be_written() -> None:
    after = columns(id="integer", note="string", remark="string")
    planned = Situation({2: altering(COPIED, RENAMED)}, progress=made(1, after)).plan()
    assert kinds(planned) == [AlterColumns, ApplyFiles]


def test_a_default_fills_rows_and_null_only_existing_columns() -> None:
    more = columns(id="integer", note="string", more="long")
    given = Alteration(filled=filled(more=7))
    planned = Situation({2: altering(given, more)}, progress=made(1)).plan()
    step = planned.steps[1]
    assert isinstance(step, AlterColumns)
    assert step.filled is not None
    assert step.filled.to_pydict() == {"more": [7]}
    null = Alteration(filled=pa.record_batch({"more": pa.array([None], pa.int64())}))
    planned = Situation({2: altering(null, more)}, progress=made(1)).plan()
    assert kinds(planned) == [AddColumns, ApplyFiles]
    planned = Situation({2: altering(null, more)}, progress=made(1, more)).plan()
    assert kinds(planned) == [AlterColumns, ApplyFiles]


def test_a_name_in_another_case_is_the_same_column() -> None:
    given = Alteration({"NOTE": "note"})
    other = columns(id="integer", NOTE="string")
    assert kinds(Situation({2: altering(given, other)}, progress=made(1)).plan()) == [ApplyFiles]


def test_a_column_that_is_not_there_stops_the_table() -> None:
    given = Alteration({"remark": "lost"})
    planned = Situation({2: altering(given, RENAMED)}, progress=made(1)).plan()
    assert isinstance(planned.error, SchemaMergeFailure)
    assert (kinds(planned), planned.error.column) == ([], "lost")


def test_a_wider_type_of_a_source_is_written_before_its_file() -> None:
    found = {2: changes(), 3: changes(WIDER), 4: changes(WIDER)}
    situation = Situation(found, progress=made(1), stops_at=NOTHING)
    assert (kinds(situation.plan()), batch(situation.plan())) == ([ApplyFiles], (2, 2))
    del found[2]
    steps = Situation(found, progress=made(2), stops_at=NOTHING).plan().steps
    assert steps[0] == AlterColumns(TABLE, PATH, 3, {}, None, {"id": LONG})
    assert isinstance(steps[1], ApplyFiles)
    assert steps[1].last == 4


def test_a_wider_type_stops_the_table_unless_the_project_says_otherwise() -> None:
    stops = frozenset({SchemaChangeKind.TYPE_WIDENED})
    planned = Situation({2: changes(WIDER)}, progress=made(1), stops_at=stops).plan()
    assert isinstance(planned.error, SchemaMergeFailure)


RETYPED = columns(id="integer", note="integer")
SAVED = Alteration(saved={"note": "note_before_1"})


def test_a_column_that_gets_another_type_keeps_its_values_under_another_name() -> None:
    planned = Situation({2: changes(), 3: altering(SAVED, RETYPED)}, progress=made(1)).plan()
    assert (kinds(planned), batch(planned)) == ([ApplyFiles], (2, 2))
    steps = Situation({3: altering(SAVED, RETYPED)}, progress=made(2)).plan().steps
    assert [type(step) for step in steps] == [AddColumns, AlterColumns, ApplyFiles]
    assert steps[0] == AddColumns(TABLE, PATH, (Column("note_before_1", STRING),))
    copied, converted = {"note_before_1": "note"}, frozenset({"note"})
    types: dict[str, DataType] = {"note": INTEGER}
    assert steps[1] == AlterColumns(TABLE, PATH, 3, copied, None, types, converted)


def test_values_of_a_renamed_column_are_kept_too() -> None:
    told = Alteration({"size": "note"}, saved={"size": "note_before_1"})
    found = {2: altering(told, columns(id="integer", size="integer"))}
    step = Situation(found, progress=made(1)).plan().steps[1]
    assert isinstance(step, AlterColumns)
    assert step.copied == {"size": "note", "note_before_1": "note"}
    assert (step.types, step.converted) == ({}, {"size"})


def test_saved_values_are_dropped_after_the_table_was_read_again() -> None:
    saved = columns(id="integer", note="integer", note_before_1="string")
    dropped = Alteration(dropped=("note_before_1",))
    planned = Situation({2: altering(dropped, RETYPED)}, progress=made(1, saved)).plan()
    steps = planned.steps
    assert steps[0] == AlterColumns(TABLE, PATH, 2, {}, None, {}, dropped=("note_before_1",))
    assert [type(step) for step in steps] == [AlterColumns, ApplyFiles]
    done = Situation({2: altering(dropped, RETYPED)}, progress=made(1, RETYPED)).plan()
    assert kinds(done) == [ApplyFiles]


GONE = Alteration({"remark": "note"}, gone=("note",))
PLAIN = FeedMode.IMAGES.properties
FAST = {**PLAIN, "delta.enableDeletionVectors": "true"}
MAPPED = {**PLAIN, "delta.columnMapping.mode": "name"}


@pytest.mark.parametrize(
    ("properties", "maps"), [(FAST, True), (FAST | MAPPED, False), (MAPPED, False)]
)
def test_columns_that_are_gone_are_dropped_by_column_mapping(
    properties: dict[str, str], *, maps: bool
) -> None:
    progress = replace(made(1), properties=properties)
    planned = Situation({2: altering(GONE, RENAMED)}, progress=progress, drops=True).plan()
    step = AlterColumns(TABLE, PATH, 2, {"remark": "note"}, None, {}, dropped=("note",), maps=maps)
    assert planned.steps[1] == step


@pytest.mark.parametrize(("properties", "drops"), [(PLAIN, True), (FAST, False)])
def test_columns_that_are_gone_stay(properties: dict[str, str], *, drops: bool) -> None:
    progress = replace(made(1), properties=properties)
    planned = Situation({2: altering(GONE, RENAMED)}, progress=progress, drops=drops).plan()
    assert planned.steps[1] == AlterColumns(TABLE, PATH, 2, {"remark": "note"}, None, {})


def test_a_column_that_is_gone_and_there_again_stays() -> None:
    told = Alteration(gone=("note",)).then(Alteration({"note": "id"}))
    again = columns(id="integer", note="string")
    progress = replace(made(1), properties=FAST)
    planned = Situation({2: altering(told, again)}, progress=progress, drops=True).plan()
    assert planned.steps[0] == AlterColumns(TABLE, PATH, 2, {"note": "id"}, None, {})


def test_new_columns_may_be_ignored_and_renamed_ones_are_not() -> None:
    more = columns(id="integer", note="string", more="long")
    assert kinds(Situation({2: foreign(more)}, progress=made(1), ignores=True).plan()) == [
        ApplyFiles
    ]
    told = Alteration({"remark": "note", "other": "more"}, filled(flag=1))
    later = columns(id="integer", remark="string", other="long", flag="integer")
    steps = Situation({2: altering(told, later)}, progress=made(1), ignores=True).plan().steps
    assert steps[0] == AddColumns(TABLE, PATH, (Column("remark", STRING),))
    assert steps[1] == AlterColumns(TABLE, PATH, 2, {"remark": "note"}, None, {})


def test_a_column_that_takes_the_name_of_another_from_an_ignored_one_begins_with_null() -> None:
    told = Alteration({"remark": "note", "note": "more"})
    later = columns(id="integer", remark="string", note="string")
    planned = Situation({2: altering(told, later)}, progress=made(1), ignores=True).plan()
    step = planned.steps[1]
    assert isinstance(step, AlterColumns)
    assert step.copied == {"remark": "note"}
    assert step.filled is not None
    assert step.filled.to_pydict() == {"note": [None]}


@pytest.mark.clause("LZ-223")
def test_a_wider_type_of_another_publisher_stops_the_table_whatever_the_project_says() -> None:
    planned = Situation({2: foreign(WIDER)}, progress=made(1), stops_at=NOTHING).plan()
    assert isinstance(planned.error, SchemaMergeFailure)


def test_a_narrower_type_stops_the_table_whatever_the_project_says() -> None:
    progress = made(1, columns(id="long", note="string"))
    planned = Situation({2: changes()}, progress=progress, stops_at=NOTHING).plan()
    assert isinstance(planned.error, SchemaMergeFailure)


def test_a_new_column_may_stop_the_table() -> None:
    more = columns(id="integer", note="string", more="long")
    stops = frozenset({SchemaChangeKind.COLUMN_ADDED})
    found = {2: foreign(), 3: foreign(more)}
    planned = Situation(found, progress=made(1), stops_at=stops).plan()
    assert batch(planned) == (2, 2)
    assert isinstance(planned.error, SchemaMergeFailure)
    assert "mirror.schema_change" in planned.error.what
    made_new = Situation({1: foreign(more)}, stops_at=stops).plan()
    assert made_new.error is None


def test_each_file_that_alters_columns_begins_a_batch() -> None:
    back = Alteration({"note": "remark"})
    found = {2: altering(COPIED, RENAMED), 3: altering(back), 4: changes()}
    situation = Situation(found, progress=made(1), limits=BatchLimits())
    assert batch(situation.plan()) == (2, 2)
