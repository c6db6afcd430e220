"""The plan for one table: what is created, applied and moved aside, in this order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirrorlake.delta.schema import FeedMode
from mirrorlake.errors import (
    BadFile,
    FileTooLarge,
    MissingFile,
    SchemaMergeFailure,
    UnsupportedColumn,
    UnsupportedTable,
)
from mirrorlake.landing.parquet.reader import Inspected
from mirrorlake.landing.text.format import TextFormat
from mirrorlake.mirror.batch_limits import BatchLimits
from mirrorlake.mirror.plan import nested
from mirrorlake.mirror.row_checks import RowChecks
from mirrorlake.mirror.settings import MirrorSettings, TableOptions
from mirrorlake.mirror.steps import AddColumns, ApplyFiles, CleanUp, CreateTable, SetFeed, SetKey
from mirrorlake.mirror.strategy import StrategyName, StrategySetting
from mirrorlake.mirror.table.known_table import CutTarget
from mirrorlake.mirror.table.refusals import refusal
from mirrorlake.model.change import Marker
from mirrorlake.model.state import TableState
from mirrorlake.model.table import Schema, TableId
from tests.mirror.planning import (
    FOLDER,
    NEW,
    PATH,
    PLAIN,
    TABLE,
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
    moved_aside,
    of_ours,
    truncation,
)

BAD = BadFile("it is damaged", table=str(TABLE), file="3")
FIVE = {number: changes() for number in range(1, 6)}


class TestSize:
    def test_a_run_ends_before_a_file_that_takes_too_much_memory(self) -> None:
        files = {1: foreign(), 2: foreign(rows=1_000_000), 3: foreign()}
        planned = Situation(files, row_checks=RowChecks(file_bytes=1_000)).plan()
        assert batch(planned) == (1, 1)
        assert isinstance(planned.error, FileTooLarge)
        assert planned.error.file == "00000000000000000002.parquet"


class TestCreation:
    @pytest.mark.clause("LZ-141")
    def test_the_first_file_creates_the_table(self) -> None:
        planned = Situation({1: foreign(rows=0)}).plan()
        assert kinds(planned) == [CreateTable, ApplyFiles]

    def test_the_table_has_the_columns_of_its_first_files_and_the_key(self) -> None:
        wider = columns(id="integer", more="long")
        create = Situation({1: foreign(), 2: foreign(wider)}).plan().steps[0]
        assert create == CreateTable(
            table=TABLE,
            path=PATH,
            folder=FOLDER,
            schema=columns(id="integer", note="string", more="long"),
            key=("id",),
            generation=NEW,
        )

    @pytest.mark.clause("LZ-219")
    def test_non_null_columns_of_the_first_file_are_recorded(self) -> None:
        declared = Schema.of([replace(column, nullable=False) for column in PLAIN])
        create = Situation({1: foreign(declared), 2: foreign()}).plan().steps[0]
        assert isinstance(create, CreateTable)
        assert create.required == ("id", "note")
        assert all(column.nullable for column in create.schema)

    def test_a_table_of_ours_has_the_generation_of_its_zone(self) -> None:
        create = Situation({1: changes()}, metadata=of_ours("ours", "id")).plan().steps[0]
        assert isinstance(create, CreateTable)
        assert create.generation == "ours"

    @pytest.mark.clause("LZ-040")
    def test_without_metadata_the_table_waits(self) -> None:
        planned = Situation({1: foreign()}, metadata=None).plan()
        assert (planned.state, planned.steps) == (TableState.INITIALIZED, ())
        assert "_metadata.json" in planned.waiting

    @pytest.mark.clause("LZ-040")
    def test_without_metadata_the_table_only_grows_when_so_configured(self) -> None:
        planned = Situation({1: foreign()}, metadata=None, metadata_required=False).plan()
        assert (kinds(planned), applied(planned).key) == ([CreateTable, ApplyFiles], ())

    @pytest.mark.clause("LZ-275")
    def test_without_files_it_waits_for_the_first(self) -> None:
        planned = Situation().plan()
        assert (planned.state, planned.steps, planned.error) == (TableState.SNAPSHOTTING, (), None)
        assert planned.is_idle

    @pytest.mark.clause("LZ-039")
    def test_a_key_that_appears_later_is_recorded(self) -> None:
        planned = Situation({2: changes()}, progress=made(1, key=())).plan()
        assert kinds(planned) == [SetKey, ApplyFiles]
        assert applied(planned).key == ("id",)

    def test_a_table_is_not_created_before_its_first_transaction_is_complete(self) -> None:
        planned = Situation({1: changes(complete=False)}).plan()
        assert (planned.state, planned.steps) == (TableState.SNAPSHOTTING, ())
        assert planned.waiting == "the files of its last transaction are incomplete"


class TestApplying:
    def test_files_after_the_recorded_one_are_applied(self) -> None:
        planned = Situation({2: changes(), 3: changes(), 4: changes()}, progress=made(2)).plan()
        assert batch(planned) == (3, 4)

    def test_what_is_recorded_is_not_applied_again(self) -> None:
        planned = Situation({1: changes(), 2: changes()}, progress=made(2)).plan()
        assert planned.is_idle

    @pytest.mark.clause("LZ-048", "LZ-094")
    def test_the_default_operation_may_be_an_upsert(self) -> None:
        upsert = keyed("id", upsert_default=True)
        step = applied(Situation({1: foreign(marker=False)}, metadata=upsert).plan())
        assert (step.default, step.is_load) == (Marker.UPSERT, False)

    @pytest.mark.clause("LZ-105")
    def test_with_an_upsert_as_default_no_load_is_simply_appended(self) -> None:
        upsert = keyed("id", upsert_default=True)
        assert not applied(Situation({1: load()}, metadata=upsert).plan()).is_load

    @pytest.mark.clause("LZ-091", "LZ-104")
    def test_the_default_operation_is_an_insert(self) -> None:
        planned = Situation({6: foreign(marker=False)}, progress=made(5)).plan()
        assert (kinds(planned), applied(planned).default) == ([ApplyFiles], Marker.INSERT)

    def test_a_batch_has_its_rows_and_positions(self) -> None:
        found = {1: changes(rows=3, first="0/1:1"), 2: changes(rows=4, last="0/9:9")}
        step = applied(Situation(found).plan())
        assert (step.estimate.rows, step.evidence.positions) == (7, ("0/1:1", "0/9:9"))

    def test_files_of_others_have_no_positions(self) -> None:
        assert applied(Situation({1: foreign()}).plan()).evidence.positions is None

    def test_files_of_a_load_are_applied_apart(self) -> None:
        situation = Situation({1: load(complete=False), 2: load(), 3: changes()})
        step = applied(situation.plan())
        assert (step.first, step.last, step.is_load) == (1, 2, True)

    def test_changes_after_a_load_are_not_a_load(self) -> None:
        situation = Situation({2: load(), 3: changes()}, progress=made(2))
        assert not applied(situation.plan()).is_load

    def test_files_before_a_truncation_are_not_read(self) -> None:
        found = {1: changes(), 2: truncation(), 3: changes(), 4: truncation(), 5: changes()}
        step = applied(Situation(found).plan())
        assert (step.first, step.last, step.truncated) == (1, 5, True)
        assert [file.number for file in step.files] == [5]

    def test_a_truncation_at_the_end_leaves_no_file_to_read(self) -> None:
        step = applied(Situation({1: changes(), 2: truncation()}).plan())
        assert (step.last, step.truncated, step.files) == (2, True, ())

    def test_pending_counts_all_readable_files(self) -> None:
        assert Situation(FIVE, limits=BatchLimits(rows=2)).plan().pending == 5


class TestCuts:
    def test_a_batch_ends_at_the_cut_and_names_it(self) -> None:
        step = applied(Situation(FIVE, target=CutTarget(3, 17)).plan())
        assert (step.last, step.evidence.cut) == (3, 17)

    def test_a_batch_that_does_not_reach_the_cut_does_not_name_it(self) -> None:
        situation = Situation(FIVE, target=CutTarget(5, 17), limits=BatchLimits(rows=2))
        step = applied(situation.plan())
        assert (step.last, step.evidence.cut) == (2, None)

    def test_without_cuts_everything_is_applied(self) -> None:
        step = applied(Situation(FIVE).plan())
        assert (step.last, step.evidence.cut) == (5, None)

    def test_a_table_beyond_the_cut_is_not_applied(self) -> None:
        situation = Situation(FIVE, progress=made(4), target=CutTarget(3, 17))
        assert situation.plan().is_idle


class TestBrokenTables:
    @pytest.mark.clause("LZ-117")
    def test_files_before_a_gap_are_applied_and_the_gap_is_reported(self) -> None:
        planned = Situation({1: changes(), 2: changes(), 4: changes()}).plan()
        assert batch(planned) == (1, 2)
        assert (planned.state, type(planned.error)) == (TableState.FAILED, MissingFile)

    @pytest.mark.clause("LZ-119")
    def test_the_first_file_is_waited_for(self) -> None:
        planned = Situation({2: changes()}).plan()
        assert (planned.steps, type(planned.error)) == ((), MissingFile)

    @pytest.mark.clause("LZ-276")
    def test_files_before_a_bad_file_are_applied(self) -> None:
        planned = Situation({1: changes(), 2: changes(), 3: BAD, 4: changes()}).plan()
        assert batch(planned) == (1, 2)
        assert (planned.state, planned.error) == (TableState.FAILED, BAD)

    def test_a_transaction_that_ends_in_a_bad_file_is_not_applied(self) -> None:
        found = {1: changes(), 2: changes(complete=False), 3: BAD}
        assert batch(Situation(found).plan()) == (1, 1)

    @pytest.mark.clause("LZ-221")
    def test_files_before_a_changed_type_are_applied(self) -> None:
        retyped = columns(id="string")
        planned = Situation({1: changes(), 2: changes(retyped), 3: changes()}).plan()
        assert batch(planned) == (1, 1)
        assert isinstance(planned.error, SchemaMergeFailure)

    @pytest.mark.clause("LZ-211")
    def test_new_columns_are_added_before_their_file(self) -> None:
        wider = columns(id="integer", more="long")
        planned = Situation({2: changes(wider)}, progress=made(1)).plan()
        assert kinds(planned) == [AddColumns, ApplyFiles]
        assert planned.steps[0] == AddColumns(TABLE, PATH, columns(more="long").columns)

    def test_columns_of_later_batches_are_added_later(self) -> None:
        wider = columns(id="integer", more="long")
        situation = Situation(
            {2: changes(), 3: changes(wider)}, progress=made(1), limits=BatchLimits(rows=1)
        )
        assert kinds(situation.plan()) == [ApplyFiles]

    def test_an_error_of_the_folder_is_the_error_of_the_table(self) -> None:
        planned = Situation({1: changes()}, error=BAD).plan()
        assert (planned.steps, planned.error) == ((), BAD)


class TestCleanup:
    @pytest.mark.clause("LZ-243", "LZ-251")
    def test_applied_files_are_moved_except_the_last(self) -> None:
        assert moved_aside(Situation(FIVE, progress=made(3)).plan()) == [1, 2]

    def test_cleaning_up_comes_last(self) -> None:
        found = {number: changes() for number in range(1, 4)}
        assert kinds(Situation(found, progress=made(2)).plan()) == [ApplyFiles, CleanUp]

    @pytest.mark.clause("LZ-251")
    def test_a_bad_file_stays(self) -> None:
        found = {2: changes(), 3: BAD, 4: changes()}
        planned = Situation(found, progress=made(2)).plan()
        assert (moved_aside(planned), planned.error) == ([], BAD)

    def test_a_table_that_is_only_cleaned_up_is_idle(self) -> None:
        planned = Situation({1: changes(), 2: changes()}, progress=made(2)).plan()
        assert (kinds(planned), planned.is_idle) == ([CleanUp], True)

    def test_files_that_were_moved_too_early_are_found(self) -> None:
        situation = Situation({5: changes()}, moved={3: changes(), 4: changes()}, progress=made(2))
        step = applied(situation.plan())
        assert (step.first, step.last) == (3, 5)
        assert [file.path.rpartition("/")[0] for file in step.files] == [
            f"{FOLDER}/_FilesReadyToDelete",
            f"{FOLDER}/_FilesReadyToDelete",
            FOLDER,
        ]

    def test_a_file_in_both_places_is_read_in_the_folder(self) -> None:
        situation = Situation({4: changes()}, moved={3: changes(), 4: BAD}, progress=made(2))
        assert batch(situation.plan()) == (3, 4)


class TestStates:
    @pytest.mark.clause("LZ-099")
    def test_a_table_is_snapshotting_while_its_first_files_are_loaded(self) -> None:
        assert Situation({1: load()}).plan().state is TableState.SNAPSHOTTING

    @pytest.mark.clause("LZ-098", "LZ-099")
    @pytest.mark.parametrize("marked", [1, 2, 3])
    def test_a_table_is_replicating_once_a_marker_was_found(self, marked: int) -> None:
        files = {number: foreign(marker=number == marked) for number in (1, 2, 3)}
        planned = Situation(files).plan()
        assert (batch(planned), planned.state) == ((1, 3), TableState.REPLICATING)
        without = {number: foreign(marker=False) for number in files}
        assert Situation(without).plan().state is TableState.SNAPSHOTTING

    @pytest.mark.clause("LZ-099")
    def test_a_table_is_replicating_when_nothing_is_left_to_load(self) -> None:
        planned = Situation({1: load()}, progress=made(1)).plan()
        assert planned.state is TableState.REPLICATING


class TestNesting:
    def test_nested_tables_are_reported_in_both_directions(self) -> None:
        outer, inner, apart = TableId("", "sales"), TableId("sales", "orders"), TableId("", "s")
        paths = {outer: "Tables/sales", inner: "Tables/sales/orders", apart: "Tables/s"}
        assert nested(paths) == {outer: inner, inner: outer}

    def test_two_tables_of_one_path_are_nested(self) -> None:
        one, other = TableId("", "orders"), TableId("dbo", "orders")
        paths = dict.fromkeys([one, other], "Tables/dbo/orders")
        assert nested(paths) == {one: other, other: one}

    def test_paths_with_a_common_prefix_are_not_nested(self) -> None:
        paths = {TableId("", name): f"Tables/{name}" for name in ("a", "a b", "ab", "a-b", "a.b")}
        assert nested(paths) == {}

    def test_an_outer_table_is_found_among_its_neighbours(self) -> None:
        names = ["sales", "sales-eu", "sales/orders", "sales.x", "zebra"]
        found = nested({TableId("", name): f"Tables/{name}" for name in names})
        assert {str(table) for table in found} == {"sales", "sales/orders"}


def test_a_table_keeps_its_columns_when_files_lack_them() -> None:
    planned = Situation({2: changes(columns(id="integer"))}, progress=made(1, PLAIN)).plan()
    assert kinds(planned) == [ApplyFiles]


class TestTexts:
    @pytest.mark.clause("LZ-042")
    def test_a_text_without_metadata_is_not_read_whatever_is_configured(self) -> None:
        known = Situation({1: foreign()}, metadata=None, metadata_required=False).known
        text = replace(known.scan.files[0], text=TextFormat())
        waits = replace(known, scan=replace(known.scan, files=(text,)))
        assert (known.awaits_metadata, waits.awaits_metadata) == (False, True)

    def test_estimated_rows_are_marked_as_estimates(self) -> None:
        step = applied(Situation({1: foreign(), 2: replace(foreign(), is_exact=False)}).plan())
        assert not step.estimate.is_exact


class TestWay:
    def test_a_batch_of_an_ordinary_table_uses_direct(self) -> None:
        choice = applied(Situation({1: foreign()}, progress=made(0)).plan()).estimate.choice
        assert choice is not None
        assert choice.strategy is StrategyName.DIRECT

    def test_a_table_that_only_delta_can_write_uses_merge_with_the_reason(self) -> None:
        progress = replace(made(0), delegated="it is partitioned")
        choice = applied(Situation({1: foreign()}, progress=progress).plan()).estimate.choice
        assert choice is not None
        assert (choice.strategy, choice.reason) == (StrategyName.MERGE, "it is partitioned")

    @pytest.mark.parametrize("has_marker", [True, False])
    def test_files_without_markers_only_insert(self, has_marker: bool) -> None:
        file = replace(foreign(), has_marker=has_marker)
        step = applied(Situation({1: file}, progress=made(0)).plan())
        assert step.estimate.choice is not None
        assert (step.appends, step.estimate.choice.appends) == (not has_marker, not has_marker)

    def test_a_table_that_needs_another_strategy_is_refused(self) -> None:
        progress = replace(made(0), delegated="it is partitioned")
        known = replace(
            Situation({1: foreign()}, progress=progress).known,
            settings=MirrorSettings(strategy=StrategySetting.DIRECT),
        )
        error = refusal(known)
        assert isinstance(error, UnsupportedTable)
        assert "partitioned" in error.what


class TestChangeFeed:
    @pytest.mark.clause("CF-008")
    def test_is_on_unless_the_project_says_no(self) -> None:
        for options, mode in ((TableOptions(), FeedMode.IMAGES), (OFF, FeedMode.OFF)):
            planned = Situation({1: foreign()}, options=options).plan()
            (create,) = [step for step in planned.steps if isinstance(step, CreateTable)]
            assert create.feed is mode

    @pytest.mark.clause("CF-015", "CF-016")
    @pytest.mark.parametrize("files", [{}, {2: changes()}], ids=["idle", "busy"])
    def test_of_a_table_that_is_there_becomes_what_the_project_says(
        self, files: dict[int, Inspected]
    ) -> None:
        for options, was in ((TableOptions(), FeedMode.OFF), (OFF, FeedMode.REPLACE)):
            planned = Situation(files, progress=made(1, feed=was), options=options).plan()
            assert planned.steps[0] == SetFeed(TABLE, PATH, options.feed)
            assert kinds(planned)[1:] == [ApplyFiles] * len(files)
            assert not planned.is_idle
            same = Situation(files, progress=made(1, feed=options.feed), options=options).plan()
            assert SetFeed not in kinds(same)

    @pytest.mark.clause("CF-014")
    def test_a_column_with_a_name_of_the_feed_stops_the_table_before_anything_is_written(
        self,
    ) -> None:
        reserved = foreign(columns(id="integer", _Commit_Version="long"))
        planned = Situation({1: reserved}).plan()
        assert (planned.steps, planned.state) == ((), TableState.FAILED)
        error = planned.error
        assert isinstance(error, UnsupportedColumn)
        assert error.column == "_Commit_Version"
        assert "Rename the column at the source" in error.hint
        assert "mirror.tables: {sales.orders: {change_feed: false}}" in error.hint
        assert kinds(Situation({1: reserved}, options=OFF).plan()) == [CreateTable, ApplyFiles]

    @pytest.mark.clause("CF-147")
    def test_leaves_out_what_changes_nothing_where_the_project_says_so(self) -> None:
        for suppresses in (False, True):
            options = TableOptions(suppress_unchanged=suppresses)
            planned = Situation({1: foreign()}, options=options).plan()
            assert applied(planned).suppress_unchanged is suppresses

    @pytest.mark.clause("CF-145")
    def test_is_not_replaced_where_only_delta_may_write(self) -> None:
        options = TableOptions(FeedMode.REPLACE)
        progress = replace(made(1), delegated="it has no deletion vectors")
        planned = Situation({2: changes()}, progress=progress, options=options).plan()
        assert isinstance(planned.error, UnsupportedTable)
        assert "apply: replace" in planned.error.what


OFF = TableOptions(FeedMode.OFF)
