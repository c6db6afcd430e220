"""Net changes carried into files: the rows and the feed are those of the changes one by one."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from mirrorlake.apply.fold import LandedBatch, fold
from mirrorlake.delta.write.rewrite import NoBaseRow, Rewritten
from mirrorlake.model import types
from mirrorlake.model.change import Marker
from mirrorlake.model.net_changes import NetChanges
from tests.delta.handmade import HandmadeTable
from tests.histories import Landing, Shape, counted, histories, read_landed
from tests.profiles import tries
from tests.reference import UNCHANGED, Change, Row

SHAPE = Shape.of(["id"], id=types.LONG, name=types.STRING)
INSERT, UPDATE, DELETE, UPSERT = Marker.INSERT, Marker.UPDATE, Marker.DELETE, Marker.UPSERT


def net_of(shape: Shape, landing: Landing) -> NetChanges:
    files = [("file", read_landed(shape, changes)) for changes in landing.files]
    return fold(LandedBatch("t", shape.schema, shape.key, files, landing.truncate))


def replayed(table: HandmadeTable, version: int) -> Counter[Row]:
    """The rows that the feed of versions 0 to `version` adds up to."""
    rows: Counter[Row] = Counter()
    for number in range(version + 1):
        for (kind, row), count in table.feed(number).items():
            rows[row] += count if kind in {"insert", "update_postimage"} else -count
    return Counter({row: count for row, count in rows.items() if count})


@pytest.fixture
def table(tmp_path: Path) -> HandmadeTable:
    return HandmadeTable(tmp_path / "table", SHAPE.schema)


def apply(table: HandmadeTable, *changes: tuple[int, Row], truncate: bool = False) -> Rewritten:
    file = tuple(Change(marker, row) for marker, row in changes)
    return table.apply(net_of(SHAPE, Landing((file,), truncate)))


def played(
    history: tuple[Shape, list[Landing]], *, mapped: bool, partitions: Sequence[str] = ()
) -> Iterator[HandmadeTable]:
    """Apply a history both ways; what there is to compare is compared after each batch."""
    shape, landings = history
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "table")
        table = HandmadeTable(path, shape.schema, mapped=mapped, partitions=partitions)
        model = shape.table()
        for landing in landings:
            done = table.apply(net_of(shape, landing))
            feed = model.truncate() if landing.truncate else Counter()
            feed += model.apply(landing.changes)
            version = table.log.snapshot().version
            assert counted(table.rows()) == counted(model.rows)
            assert table.feed(version) == feed
            assert replayed(table, version) == counted(model.rows)
            assert counts(done) == {kind: n for kind, n in Counter(kinds(feed)).items() if n}
            yield table


def kinds(feed: Counter[tuple[str, Row]]) -> list[str]:
    return [kind for kind, _row in feed.elements() if kind != "update_preimage"]


def counts(done: Rewritten) -> dict[str, int]:
    named = {
        "insert": done.inserted,
        "update_postimage": done.updated,
        "delete": done.deleted,
    }
    return {kind: n for kind, n in named.items() if n}


@pytest.mark.full
@settings(max_examples=tries(200, long=300))
@given(histories())
def test_rows_and_feed_of_a_history_are_those_of_its_changes_one_by_one(history: Any) -> None:
    for _batch in played(history, mapped=False):
        pass


@pytest.mark.full
@settings(max_examples=tries(50))
@given(histories())
def test_column_mapping_makes_no_difference(history: Any) -> None:
    for _batch in played(history, mapped=True):
        pass


def test_an_append_writes_no_change_file(table: HandmadeTable) -> None:
    done = apply(table, (INSERT, (1, "a")))
    assert [list(action) for action in done.actions] == [["add"]]


def test_an_update_keeps_the_other_rows_of_its_file_in_place(table: HandmadeTable) -> None:
    (first,) = apply(table, (INSERT, (1, "a")), (INSERT, (2, "b"))).actions
    done = apply(table, (UPDATE, (2, "c")))
    again = [a["add"] for a in done.actions if a.get("add", {}).get("deletionVector")]
    assert [add["path"] for add in again] == [first["add"]["path"]]
    assert again[0]["deletionVector"]["cardinality"] == 1


def test_a_file_without_live_rows_is_removed(table: HandmadeTable) -> None:
    apply(table, (INSERT, (1, "a")), (INSERT, (2, "b")))
    apply(table, (DELETE, (1, None)))
    apply(table, (DELETE, (2, None)))
    assert table.files == []


def test_a_batch_without_matching_rows_writes_nothing(table: HandmadeTable) -> None:
    apply(table, (INSERT, (1, "a")))
    assert apply(table, (DELETE, (5, None))).actions == []


@pytest.mark.parametrize("change", [(DELETE, (1, None)), (UPDATE, (1, "z")), (UPSERT, (1, "z"))])
def test_rows_beyond_the_first_of_a_key_are_counted(table: HandmadeTable, change: Any) -> None:
    apply(table, *[(INSERT, (1, name)) for name in "abc"])
    assert apply(table, change).duplicates == 2


def test_an_unchanged_value_is_taken_from_the_one_row_that_the_table_has(
    table: HandmadeTable,
) -> None:
    apply(table, (INSERT, (1, "long")))
    apply(table, (DELETE, (1, None)), (INSERT, (2, UNCHANGED)))
    assert table.rows() == [(2, "long")]


@pytest.mark.parametrize("rows", [[], [(1, "a"), (1, "b")]], ids=["no row", "two rows"])
def test_an_unchanged_value_without_a_single_row_in_the_table_is_an_error(
    table: HandmadeTable, rows: list[Row]
) -> None:
    apply(table, *[(INSERT, row) for row in rows])
    with pytest.raises(NoBaseRow):
        apply(table, (UPDATE, (1, UNCHANGED)))


@pytest.mark.full
def test_a_truncation_counts_the_live_rows_only(table: HandmadeTable) -> None:
    apply(table, *[(INSERT, (n, "a")) for n in range(5)])
    apply(table, (DELETE, (1, None)))
    assert apply(table, truncate=True).deleted == 4


def test_a_truncation_removes_the_rows_of_files_without_statistics(table: HandmadeTable) -> None:
    (action,) = apply(table, *[(INSERT, (n, "a")) for n in range(5)]).actions
    table.commit([{"add": {**action["add"], "stats": None}}])
    done = apply(table, (INSERT, (9, "new")), truncate=True)
    assert (done.deleted, table.rows()) == (5, [(9, "new")])


@pytest.mark.full
def test_data_files_have_the_ids_of_column_mapping(tmp_path: Path) -> None:
    table = HandmadeTable(tmp_path / "mapped", SHAPE.schema, mapped=True)
    (action,) = apply(table, (INSERT, (1, "a"))).actions
    arrow = pq.read_schema(table.path / action["add"]["path"])
    ids = {field.name: field.metadata[b"PARQUET:field_id"] for field in arrow}
    assert ids == {"col-1": b"1", "col-2": b"2"}


def test_statistics_use_the_names_in_data_files(tmp_path: Path) -> None:
    table = HandmadeTable(tmp_path / "mapped", SHAPE.schema, mapped=True)
    (action,) = apply(table, (INSERT, (1, "a"))).actions
    assert json.loads(action["add"]["stats"])["minValues"] == {"col-1": 1, "col-2": "a"}


def test_a_change_file_contains_the_text_of_each_change_type_once(table: HandmadeTable) -> None:
    apply(table, *((INSERT, (number, "a")) for number in range(1000)))
    apply(table, *((UPDATE, (number, "b")) for number in range(1000)))
    (path,) = (table.path / "_change_data").glob("*.parquet")
    kinds = pq.read_metadata(path).row_group(0).column(2)
    assert kinds.path_in_schema == "_change_type"
    assert kinds.total_uncompressed_size < 500  # and not 16 bytes for each row
