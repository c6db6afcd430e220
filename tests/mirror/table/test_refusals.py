"""Tables that the plan does not touch, keys that must not change, and tables that begin anew."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirrorlake.errors import (
    ForeignTable,
    KeyColumnMissing,
    KeyColumnsChanged,
    TableRestored,
    UnsupportedTable,
)
from mirrorlake.mirror.steps import ApplyFiles, CreateTable, TablePlan
from mirrorlake.mirror.strategy import REFUSED_PROPERTIES
from mirrorlake.mirror.table.progress import Progress
from mirrorlake.model.state import TableState
from tests.mirror.planning import (
    Situation,
    applied,
    batch,
    changes,
    columns,
    foreign,
    keyed,
    kinds,
    load,
    made,
    of_ours,
)

FILES = {number: changes() for number in range(1, 5)}
FOREIGN = Progress(version=7, schema=columns(id="integer"))


def refused(planned: TablePlan, kind: type) -> bool:
    return (planned.steps, planned.state) == ((), TableState.FAILED) and isinstance(
        planned.error, kind
    )


class TestRefusals:
    def test_a_foreign_table_is_not_changed(self) -> None:
        assert refused(Situation(FILES, progress=FOREIGN).plan(), ForeignTable)

    @pytest.mark.parametrize("name", REFUSED_PROPERTIES)
    def test_a_property_that_prevents_writing_is_named_with_the_way_to_unset_it(
        self, name: str
    ) -> None:
        planned = Situation(FILES, progress=replace(made(2), unsupported=f"{name} is set")).plan()
        assert refused(planned, UnsupportedTable)
        assert planned.error is not None
        assert f"unset tblproperties ('{name}')" in planned.error.hint

    def test_a_restored_table_is_not_changed(self) -> None:
        restored = replace(made(2), restored=9)
        planned = Situation(FILES, progress=restored).plan()
        assert refused(planned, TableRestored)
        assert "version 9" in str(planned.error)

    def test_a_table_with_an_unknown_feature_is_not_changed(self) -> None:
        unsupported = replace(made(2), unsupported="it is partitioned")
        planned = Situation(FILES, progress=unsupported).plan()
        assert refused(planned, UnsupportedTable)
        assert "it is partitioned" in str(planned.error)

    @pytest.mark.parametrize("progress", [FOREIGN, replace(made(2), restored=9)])
    def test_files_of_a_refused_table_are_not_inspected(self, progress: Progress) -> None:
        assert Situation(FILES, progress=progress).candidates().files == ()

    @pytest.mark.parametrize(
        "progress", [replace(made(2), restored=9), replace(made(2), unsupported="partitioned")]
    )
    def test_every_refusal_has_a_hint(self, progress: Progress) -> None:
        error = Situation(FILES, progress=progress).plan().error
        assert error is not None
        assert "mirrorlake reset sales.orders" in error.hint


class TestKeys:
    @pytest.mark.clause("LZ-036", "LZ-038")
    @pytest.mark.parametrize("later", [("note",), ("id", "note"), ()])
    def test_a_key_that_changed_stops_the_table(self, later: tuple[str, ...]) -> None:
        planned = Situation(FILES, metadata=keyed(*later), progress=made(2)).plan()
        assert refused(planned, KeyColumnsChanged)
        assert "(id)" in str(planned.error)

    def test_the_letter_case_of_a_key_may_change(self) -> None:
        planned = Situation(FILES, metadata=keyed("ID"), progress=made(2)).plan()
        assert (planned.error, applied(planned).key) == (None, ("id",))

    def test_the_order_of_a_key_may_change(self) -> None:
        both = made(2, key=("id", "note"))
        assert Situation(FILES, metadata=keyed("note", "id"), progress=both).plan().error is None

    def test_a_key_that_appears_applies_from_the_next_file(self) -> None:
        planned = Situation(FILES, metadata=keyed("id"), progress=made(2, key=())).plan()
        assert (batch(planned), applied(planned).key) == ((3, 4), ("id",))

    @pytest.mark.clause("LZ-036")
    def test_a_key_stays_when_its_metadata_was_deleted(self) -> None:
        planned = Situation(FILES, metadata=None, metadata_required=False, progress=made(2)).plan()
        assert applied(planned).key == ("id",)

    @pytest.mark.clause("LZ-046")
    def test_a_key_without_a_column_stops_the_table(self) -> None:
        planned = Situation(FILES, metadata=keyed("id", "number")).plan()
        assert refused(planned, KeyColumnMissing)
        assert planned.error is not None
        assert planned.error.column == "number"

    @pytest.mark.clause("LZ-032", "LZ-046")
    def test_key_columns_are_found_in_any_case(self) -> None:
        found = {1: foreign(columns(Id="integer", C2="string"))}
        assert applied(Situation(found, metadata=keyed("id", "c2")).plan()).key == ("Id", "C2")


class TestReseeding:
    """Our publisher began the table anew: its generation is another."""

    ANEW = of_ours("later", "id")

    @pytest.mark.clause("LZ-234")
    def test_the_table_is_recreated_from_file_one(self) -> None:
        planned = Situation({1: load(), 2: changes()}, metadata=self.ANEW, progress=made(8)).plan()
        create = planned.steps[0]
        assert isinstance(create, CreateTable)
        assert (create.replace, create.generation) == (True, "later")
        assert (batch(planned), planned.state) == ((1, 1), TableState.RESEEDING)

    def test_the_new_files_may_have_other_columns_types_and_keys(self) -> None:
        retyped = columns(number="string", id="string")
        metadata = of_ours("later", "number")
        planned = Situation({1: load(retyped)}, metadata=metadata, progress=made(8)).plan()
        create = planned.steps[0]
        assert isinstance(create, CreateTable)
        assert (create.schema, create.key) == (retyped, ("number",))

    def test_nothing_is_dropped_before_the_first_file_is_there(self) -> None:
        planned = Situation(metadata=self.ANEW, progress=made(8)).plan()
        assert (planned.steps, planned.state) == ((), TableState.RESEEDING)

    def test_the_new_files_are_not_taken_for_applied_ones(self) -> None:
        found = {number: load() for number in (1, 2, 3)}
        planned = Situation(found, metadata=self.ANEW, progress=made(8)).plan()
        assert kinds(planned) == [CreateTable, ApplyFiles]

    @pytest.mark.parametrize(
        "progress", [replace(made(8), restored=9), replace(made(8), unsupported="partitioned")]
    )
    def test_a_recreated_table_replaces_a_damaged_one(self, progress: Progress) -> None:
        planned = Situation({1: load()}, metadata=self.ANEW, progress=progress).plan()
        assert kinds(planned) == [CreateTable, ApplyFiles]

    def test_a_table_of_others_is_not_replaced(self) -> None:
        planned = Situation({1: load()}, metadata=self.ANEW, progress=FOREIGN).plan()
        assert refused(planned, ForeignTable)

    def test_the_same_generation_continues(self) -> None:
        planned = Situation(FILES, metadata=of_ours("g", "id"), progress=made(2)).plan()
        assert (kinds(planned)[0], batch(planned)) == (ApplyFiles, (3, 4))
