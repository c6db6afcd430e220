"""The plan in timestamp mode: what differs from files with numbers, and nothing more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.errors import BadFile, DetectionChanged, MirrorlakeError, TableError
from mirrorlake.landing.layout import TableFolder
from mirrorlake.landing.metadata import BY_TIME, SEQUENTIAL, Metadata
from mirrorlake.landing.parquet.reader import Inspected
from mirrorlake.landing.scan import Landed, TableScan
from mirrorlake.mirror.batch_limits import BatchLimits
from mirrorlake.mirror.explain import as_fact, explain
from mirrorlake.mirror.plan import candidates, plan
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.mirror.steps import ApplyFiles, CleanUp, CreateTable, TablePlan
from mirrorlake.mirror.table.known_table import KnownTable
from mirrorlake.mirror.table.processed import Processed
from mirrorlake.mirror.table.progress import Progress
from mirrorlake.model.change import Marker
from mirrorlake.model.landed import FreeName
from tests.mirror.planning import (
    FOLDER,
    NEW,
    PATH,
    TABLE,
    Situation,
    applied,
    changes,
    foreign,
    keyed,
    kinds,
    load,
    made,
    truncation,
)

Facts = Inspected | TableError


def by_time(**members: Any) -> Metadata:
    return keyed("id", detection=BY_TIME, **members)


def processed(*batches: tuple[str, ...]) -> Processed:
    found = Processed()
    for number, names in enumerate(batches, 1):
        found.add(number, names)
    return found


def known(
    files: dict[str, Facts], *batches: tuple[str, ...], exists: bool = True, **more: Any
) -> KnownTable:
    """A table whose files stand in the order of their times, and what it has applied."""
    scan = TableScan(
        table=TABLE,
        folder=TableFolder(TABLE, FOLDER),
        metadata=more.pop("metadata", by_time()),
        files=tuple(
            Landed(FreeName(name), FOLDER, 10, float(time), f"etag-{name}")
            for time, name in enumerate(files)
        ),
        error=None,
        moved=lambda: (),
    )
    progress = replace(made(len(batches)), detection=BY_TIME) if exists else Progress()
    settings = MirrorSettings(limits=more.pop("limits", BatchLimits()))
    return KnownTable(
        scan, PATH, more.pop("progress", progress), settings, processed=processed(*batches)
    )


def planned(found: KnownTable, files: dict[str, Facts]) -> TablePlan:
    run = candidates(found)
    return plan(found, run, {f"{FOLDER}/{n}": facts for n, facts in files.items()}, NEW)


def plan_of(files: dict[str, Facts], *batches: tuple[str, ...], **more: Any) -> TablePlan:
    return planned(known(files, *batches, **more), files)


class TestBatches:
    def test_the_first_batch_makes_the_table_and_says_how_files_are_found(self) -> None:
        create, step = plan_of({"z": foreign(), "a": foreign()}, exists=False).steps
        assert isinstance(create, CreateTable)
        assert isinstance(step, ApplyFiles)
        assert (create.detection, step.first, step.last) == (BY_TIME, 1, 1)
        assert step.names == ("z", "a")

    @pytest.mark.clause("LZ-124", "LZ-126")
    def test_older_unprocessed_files_are_applied(self) -> None:
        files = {name: foreign() for name in ("late", "a", "b", "c")}
        step = applied(plan_of(files, ("a",), ("b", "gone")))
        assert (step.names, step.first, step.last) == (("late", "c"), 3, 3)

    @pytest.mark.clause("LZ-127")
    def test_processed_files_are_not_applied_again(self) -> None:
        files = {name: foreign() for name in ("a", "b")}
        assert plan_of(files, ("a", "b")).is_idle

    @given(
        st.lists(st.sampled_from("abcdefgh"), unique=True),
        st.lists(st.sets(st.sampled_from("abcdefghxyz"), min_size=1), max_size=3),
        st.integers(1, 9),
    )
    def test_a_batch_is_the_beginning_of_what_is_new(
        self, order: list[str], batches: list[set[str]], limit: int
    ) -> None:
        files: dict[str, Facts] = {name: foreign() for name in order}
        done = set().union(*batches)
        new = [name for name in order if name not in done][:limit]
        found = plan_of(files, *map(tuple, batches), limits=BatchLimits(files=limit))
        steps = [step for step in found.steps if isinstance(step, ApplyFiles)]
        assert [step.names for step in steps] == ([tuple(new)] if new else [])
        assert [step.last for step in steps] == ([len(batches) + 1] if new else [])

    @pytest.mark.clause("LZ-267")
    def test_a_bad_file_stops_the_table_after_older_files(self) -> None:
        bad = BadFile("it is damaged", table=str(TABLE), file="b")
        found = plan_of({"a": foreign(), "b": bad, "c": foreign()})
        assert (found.error, applied(found).names) == (bad, ("a",))

    def test_footers_of_our_capture_are_ignored(self) -> None:
        files = {"a": load(complete=False), "b": changes(complete=False), "c": foreign()}
        step = applied(plan_of(files))
        assert (step.names, step.is_load, step.evidence.positions) == (("a", "b", "c"), False, None)

    def test_a_truncation_of_our_capture_is_an_error(self) -> None:
        found = plan_of({"a": foreign(), "b": truncation(), "c": foreign()})
        assert (type(found.error), applied(found).names) == (BadFile, ("a",))


class TestCleanup:
    @pytest.mark.clause("LZ-250")
    def test_all_processed_files_are_moved_except_the_last(self) -> None:
        files = {name: foreign() for name in ("new", "z", "late", "b", "a")}
        found = plan_of(files, ("a", "b", "z"), ("late",))
        (aside,) = [step for step in found.steps if isinstance(step, CleanUp)]
        assert applied(found).names == ("new",)
        assert [str(file.name) for file in aside.files] == ["z", "b", "a"]

    @pytest.mark.clause("LZ-251")
    def test_unprocessed_files_are_not_moved(self) -> None:
        assert kinds(plan_of({"a": foreign(), "b": foreign()})) == [ApplyFiles]


COMBINATIONS = [(d, u) for d in (SEQUENTIAL, BY_TIME) for u in (False, True)]


@pytest.mark.clause("LZ-047", "LZ-048", "LZ-049", "LZ-094", "LZ-105", "LZ-321")
@pytest.mark.parametrize(("detection", "upsert"), COMBINATIONS)
def test_detection_and_default_operation_are_independent(detection: str, upsert: bool) -> None:
    metadata = keyed("id", detection=detection, upsert_default=upsert)
    if detection == BY_TIME:
        step = applied(plan_of({"a": foreign(marker=False)}, exists=False, metadata=metadata))
    else:
        step = applied(Situation({1: foreign(marker=False)}, metadata=metadata).plan())
    assert bool(step.names) is (detection == BY_TIME)
    assert step.default is (Marker.UPSERT if upsert else Marker.INSERT)
    assert (step.key, step.is_load) == (("id",), False)


class TestSwitching:
    def test_a_table_by_time_does_not_become_one_of_numbers(self) -> None:
        progress = replace(made(3), detection=BY_TIME)
        found = Situation({4: foreign()}, progress=progress).plan()
        assert isinstance(found.error, DetectionChanged)
        assert found.steps == ()

    def test_a_table_of_numbers_does_not_become_one_by_time(self) -> None:
        found = plan_of({"a": foreign()}, progress=made(3))
        assert isinstance(found.error, DetectionChanged)
        assert found.steps == ()

    @pytest.mark.parametrize("recorded", [0, 3])
    def test_the_error_names_both_and_has_a_hint(self, recorded: int) -> None:
        error = plan_of({"a": foreign()}, progress=made(recorded)).error
        assert isinstance(error, MirrorlakeError)
        assert SEQUENTIAL in error.what
        assert BY_TIME in error.what
        assert "mirrorlake reset sales.orders" in error.hint

    def test_a_table_without_metadata_waits_as_before(self) -> None:
        found = plan_of(
            {"a": foreign()}, metadata=None, progress=replace(made(3), detection=BY_TIME)
        )
        assert found.error is None
        assert "_metadata.json" in found.waiting


DIRECT = "; mirrorlake writes only the changed rows (strategy direct)"


class TestExplain:
    def test_a_single_file_is_named(self) -> None:
        assert explain([plan_of({"a": foreign(rows=7)}, ("x",))]) == [
            "sales.orders: apply file a of batch 2 (7 rows) in one commit" + DIRECT
        ]

    def test_several_files_are_counted(self) -> None:
        assert explain([plan_of({"a": foreign(), "b": foreign()})]) == [
            "sales.orders: apply 2 files of batch 1 (2 rows) in one commit" + DIRECT
        ]

    def test_names_cannot_steer_a_terminal(self) -> None:
        (line,) = explain([plan_of({"a\x1b[2J\n": foreign()})])
        assert line.isprintable()

    def test_errors_cannot_steer_a_terminal_either(self) -> None:
        error = BadFile("it is damaged", table="t", file="a\x1b[2J\n")
        assert str(error).isprintable()
        assert error.file == "a\x1b[2J\n"

    def test_as_plain_data_all_names_are_listed(self) -> None:
        fact = as_fact(applied(plan_of({"a": foreign(), "b": foreign()})))
        assert (fact["first"], fact["last"], fact["names"]) == (1, 1, ["a", "b"])
