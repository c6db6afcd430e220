"""What a plan does about columns that were altered in the source, and types that became wider."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from mirrorlake.errors import SchemaMergeFailure
from mirrorlake.mirror.batch_limits import BatchLimits
from mirrorlake.mirror.steps import AddColumns, AlterColumns, ApplyFiles
from mirrorlake.model.change import Alteration, SchemaChangeKind
from mirrorlake.model.types import LONG
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


def test_a_renamed_column_gets_what_the_other_one_had_before_its_file() -> None:
    planned = Situation({2: altering(COPIED, RENAMED), 3: changes(RENAMED)}, progress=made(1))
    steps = planned.plan().steps
    assert [type(step) for step in steps] == [AddColumns, AlterColumns, ApplyFiles]
    assert steps[1] == AlterColumns(TABLE, PATH, 2, {"remark": "note"}, None, {})
    assert batch(planned.plan()) == (2, 3)


def test_files_from_before_are_applied_before() -> None:
    found = {2: changes(), 3: altering(COPIED, RENAMED)}
    planned = Situation(found, progress=made(1)).plan()
    assert (kinds(planned), batch(planned)) == ([ApplyFiles], (2, 2))


def test_a_transaction_that_alters_columns_is_applied_in_parts() -> None:
    found = {2: changes(), 3: changes(complete=False), 4: altering(COPIED, RENAMED)}
    assert batch(Situation(found, progress=made(1)).plan()) == (2, 2)
    del found[2]
    assert batch(Situation(found, progress=made(2)).plan()) == (3, 3)


def test_what_was_done_is_not_done_again() -> None:
    after = columns(id="integer", note="string", remark="string")
    progress = replace(made(1, after), altered=2)
    planned = Situation({2: altering(COPIED, RENAMED)}, progress=progress).plan()
    assert kinds(planned) == [ApplyFiles]


def test_a_crash_between_the_column_and_its_values_leaves_the_values_to_do() -> None:
    after = columns(id="integer", note="string", remark="string")
    planned = Situation({2: altering(COPIED, RENAMED)}, progress=made(1, after)).plan()
    assert kinds(planned) == [AlterColumns, ApplyFiles]


def test_a_default_fills_and_a_null_only_what_was_there() -> None:
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


def test_other_letters_in_a_name_are_the_same_column() -> None:
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
    planned = Situation({2: changes(WIDER)}, progress=made(1)).plan()
    assert isinstance(planned.error, SchemaMergeFailure)


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
