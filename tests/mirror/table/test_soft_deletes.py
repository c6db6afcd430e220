"""What a plan makes of soft deletes, and which tables it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from mirrorlake.errors import TableError, UnsupportedColumn, UnsupportedTable
from mirrorlake.landing.metadata import Metadata, OurMetadata
from mirrorlake.landing.parquet.reader import Inspected
from mirrorlake.mirror.steps import ApplyFiles, CreateTable
from mirrorlake.mirror.strategy import StrategyName
from mirrorlake.mirror.table.progress import DELETES, SOFT
from mirrorlake.model.change import ROW_DELETED
from tests.mirror.planning import (
    Situation,
    applied,
    batch,
    changes,
    columns,
    foreign,
    load,
    made,
    truncation,
)

COLUMNS = columns(id="integer", note="string", **{ROW_DELETED: "boolean"})


def soft(recorded: int = 0):
    return replace(made(recorded, COLUMNS), properties={DELETES: SOFT})


def situation(
    files: Mapping[int, Inspected | TableError], recorded: int = 0, **more: object
) -> Situation:
    return Situation(files, progress=soft(recorded), soft=True, **more)  # type: ignore[arg-type]


def test_a_table_is_made_with_the_column() -> None:
    create, *_ = Situation({1: load()}, soft=True).plan().steps
    assert isinstance(create, CreateTable)
    assert (create.schema.names, create.soft) == ([*COLUMNS.names], True)
    again, *_ = Situation({1: load()}).plan().steps
    assert isinstance(again, CreateTable)
    assert (ROW_DELETED in again.schema, again.soft) == (False, False)


def test_a_load_is_appended_and_later_rows_are_looked_up() -> None:
    step = applied(Situation({1: load(), 2: changes()}, soft=True).plan())
    assert (step.is_load, step.appends, step.marks) == (True, True, False)
    unmarked = applied(situation({2: foreign(marker=False)}, 1).plan())
    assert (unmarked.is_load, unmarked.appends, unmarked.marks) == (False, False, True)


def test_a_truncation_is_a_batch_by_itself() -> None:
    files = {2: changes(), 3: truncation(), 4: truncation(), 5: changes(), 6: changes()}
    seen = []
    recorded = 1
    while recorded < 6:
        planned = situation(files, recorded).plan()
        seen.append((batch(planned), applied(planned).truncated))
        recorded = applied(planned).last
    assert seen == [((2, 2), False), ((3, 3), True), ((4, 4), True), ((5, 6), False)]


def test_a_truncation_within_a_transaction_does_not_wait_for_its_end() -> None:
    files = {2: changes(complete=False), 3: truncation(complete=False), 4: changes()}
    found, recorded = [], 1
    while recorded < 4:
        step = applied(situation(files, recorded).plan())
        found.append((step.first, step.last))
        recorded = step.last
    assert found == [(2, 2), (3, 3), (4, 4)]


def error_of(found: Situation) -> TableError:
    planned = found.plan()
    assert not [step for step in planned.steps if isinstance(step, ApplyFiles)]
    assert planned.error is not None
    return planned.error


@pytest.mark.parametrize("was_soft", [False, True])
def test_the_setting_of_an_existing_table_cannot_change(was_soft: bool) -> None:
    progress = soft(1) if was_soft else made(1)
    error = error_of(Situation({2: changes()}, progress=progress, soft=not was_soft))
    assert isinstance(error, UnsupportedTable)
    assert "when the table was created and is now" in error.what
    assert "mirrorlake reset" in error.hint


def test_a_table_without_the_column_is_refused() -> None:
    progress = replace(soft(1), schema=made().schema)
    error = error_of(Situation({2: changes()}, progress=progress, soft=True))
    assert f"column {ROW_DELETED}" in error.what


def test_a_table_without_a_key_is_refused() -> None:
    ours = OurMetadata("g", "orders", whole_rows=True)
    error = error_of(Situation({1: load()}, metadata=Metadata(ours=ours), soft=True))
    assert "has no key" in error.what


def test_a_spark_on_which_only_delta_writes_marks_rows_too() -> None:
    step = applied(situation({2: changes()}, 1, platform="it is not known").plan())
    assert step.estimate.choice is not None
    assert (step.estimate.choice.strategy, step.marks) == (StrategyName.MERGE, True)


def test_a_file_with_the_column_of_soft_deletes_is_refused() -> None:
    own = columns(id="integer", **{ROW_DELETED.upper(): "boolean"})
    for found in (Situation({1: changes(own)}, soft=True), situation({2: changes(own)}, 1)):
        assert isinstance(error_of(found), UnsupportedColumn)
