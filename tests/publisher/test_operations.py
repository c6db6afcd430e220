"""Markers, initial rows, changed keys: what each row of a published file says it does."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from mirrorlake.errors import (
    IncompleteRow,
    KeyColumnMissing,
    KeyedChangeWithoutKey,
    MisspeltMarker,
    TableError,
    UnknownMarker,
    UsageError,
)
from mirrorlake.publisher import Publisher, TextFormat
from tests.doubles.memory_store import MemoryStore
from tests.publisher.mirrored_zone import Zone

MARKER = "__rowMarker__"
ROWS = [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]
CODES = {"insert": 0, "update": 1, "delete": 2, "upsert": 4}


class TestInitialRows:
    @pytest.mark.clause("LZ-092", "LZ-093", "LZ-095")
    def test_in_parquet_they_have_no_marker(self, zone: Zone, publisher: Publisher) -> None:
        publisher.load("t", ROWS, key="id")
        assert zone.file("t").column_names == ["id", "v"]

    @pytest.mark.clause("LZ-093", "LZ-107")
    def test_in_text_every_row_has_one(self, zone: Zone, publisher: Publisher) -> None:
        publisher.load("t", ROWS, key="id", text=TextFormat())
        assert zone.text("t") == b'id,v,__rowMarker__\r\n1,"a",0\r\n2,"b",0\r\n'

    @pytest.mark.clause("LZ-073", "LZ-070", "LZ-090")
    @pytest.mark.parametrize("text", [None, TextFormat()])
    def test_in_the_first_layout_every_row_has_one(
        self, zone: Zone, publisher: Publisher, text: TextFormat | None
    ) -> None:
        publisher.load("t", ROWS, key="id", layout="v1", text=text)
        if text:
            assert zone.text("t") == b'__rowMarker__,id,v\r\n0,1,"a"\r\n0,2,"b"\r\n'
        else:
            assert zone.file("t").column_names == [MARKER, "id", "v"]
            assert zone.file("t")[MARKER].to_pylist() == [0, 0]
            assert zone.rows("t") == ROWS

    def test_they_may_come_in_several_batches(self, zone: Zone, publisher: Publisher) -> None:
        for row in ROWS:
            publisher.load("t", [row], key="id")
        assert zone.rows("t") == ROWS

    @pytest.mark.clause("LZ-107")
    def test_none_come_once_the_table_has_changes(self, zone: Zone, publisher: Publisher) -> None:
        publisher.load("t", ROWS, key="id")
        publisher.publish("t", ROWS, operation="upsert")
        with pytest.raises(UsageError, match="already has changes"):
            publisher.load("t", ROWS)
        assert zone.numbers("t") == [1, 2]

    @pytest.mark.parametrize(
        "rows",
        [pa.table({"id": pa.array([], pa.int64()), "v": pa.array([], pa.string())})],
    )
    def test_an_empty_table_exists(self, zone: Zone, publisher: Publisher, rows: Any) -> None:
        publisher.load("t", rows, key="id")
        assert zone.rows("t") == []
        assert zone.mirrored("t").schema.names == ["id", "v"]

    def test_an_empty_text_is_a_header(self, zone: Zone, publisher: Publisher) -> None:
        rows = pa.table({"id": pa.array([], pa.int64())})
        publisher.load("t", rows, key="id", text=TextFormat())
        assert zone.text("t") == b"id,__rowMarker__\r\n"


class TestMarkers:
    @pytest.mark.clause("LZ-069", "LZ-071", "LZ-072", "LZ-075", "LZ-107")
    @pytest.mark.parametrize("operation", CODES)
    def test_a_batch_says_what_its_rows_do(
        self, zone: Zone, publisher: Publisher, operation: str
    ) -> None:
        publisher.publish("t", ROWS, operation=operation, key="id")
        assert zone.file("t").column_names == ["id", "v", MARKER]
        assert zone.file("t")[MARKER].to_pylist() == [CODES[operation]] * 2

    @pytest.mark.clause("LZ-072", "LZ-075")
    @pytest.mark.parametrize(
        "said",
        [
            ["insert", "update", "delete", "upsert"],
            ["INSERT", " Update ", "Delete", "UPSERT"],
            ["i", "U", "d", "upsert"],
            [0, 1, 2, 4],
            ["0", "1", "2", "4"],
        ],
    )
    def test_a_column_says_it_row_by_row(
        self, zone: Zone, publisher: Publisher, said: list[Any]
    ) -> None:
        rows = [{"op": op, "id": n, "v": "x"} for n, op in enumerate(said)]
        publisher.publish("t", rows, marker_column="op", key="id")
        assert zone.file("t").column_names == ["id", "v", MARKER]
        assert zone.file("t")[MARKER].to_pylist() == [0, 1, 2, 4]

    def test_the_column_of_the_marker_itself_needs_no_word(
        self, zone: Zone, publisher: Publisher
    ) -> None:
        rows = pa.table({MARKER: [0, 2], "id": [1, 2], "v": ["a", None]})
        publisher.publish("t", rows, key="id")
        assert zone.file("t").column_names == ["id", "v", MARKER]
        assert zone.file("t")[MARKER].to_pylist() == [0, 2]

    @pytest.mark.parametrize("said", ["3", "", "delete!", None, 3, -1])
    def test_another_word_is_refused_with_its_row(
        self, zone: Zone, publisher: Publisher, said: Any
    ) -> None:
        rows = [{"id": 1, "op": 1}, {"id": 2, "op": said}]
        if isinstance(said, str):
            rows[0]["op"] = "insert"
        with pytest.raises(UnknownMarker) as caught:
            publisher.publish("t", rows, marker_column="op", key="id")
        assert (caught.value.row, caught.value.column) == (2, "op")
        assert zone.names("t") == []

    def test_changes_that_do_not_say_what_they_do_are_refused(self, publisher: Publisher) -> None:
        with pytest.raises(UsageError, match="Specify what the rows are"):
            publisher.publish("t", ROWS, key="id")

    @pytest.mark.parametrize("name", ["__rowmarker__", "__ROWMARKER__"])
    def test_a_misspelt_marker_is_refused(self, publisher: Publisher, name: str) -> None:
        with pytest.raises(MisspeltMarker):
            publisher.load("t", [{"id": 1, name: 2}], key="id")

    def test_initial_rows_with_markers_are_refused(self, publisher: Publisher) -> None:
        with pytest.raises(UsageError, match="as changes"):
            publisher.load("t", [{"id": 1, MARKER: 2}], key="id")

    @pytest.mark.parametrize(
        "options",
        [
            {"operation": "upsert", "marker_column": "op"},
            {"operation": "load"},
            {"operation": "merge"},
            {"operation": "upsert", "layout": "v3"},
        ],
    )
    def test_contradictions_are_refused(
        self, publisher: Publisher, options: dict[str, str]
    ) -> None:
        with pytest.raises(UsageError):
            publisher.publish("t", ROWS, key="id", **options)

    @pytest.mark.parametrize("operation", ["update", "delete", "upsert"])
    def test_a_table_without_a_key_accepts_only_inserts(
        self, publisher: Publisher, operation: str
    ) -> None:
        publisher.publish("t", ROWS, operation="insert", key=())
        with pytest.raises(KeyedChangeWithoutKey):
            publisher.publish("t", ROWS, operation=operation)

    def test_a_key_column_must_be_there(self, publisher: Publisher) -> None:
        with pytest.raises(KeyColumnMissing, match="line"):
            publisher.load("t", ROWS, key=["id", "line"])


class TestFullRows:
    @pytest.mark.clause("LZ-100", "LZ-101")
    @pytest.mark.parametrize("operation", ["update", "upsert"])
    @pytest.mark.parametrize(
        "rows",
        [
            [{"id": 1, "v": "x"}, {"id": 2}],
            pa.table({"id": [1, 2]}),
        ],
    )
    def test_a_row_that_updates_has_every_column(
        self, zone: Zone, publisher: Publisher, operation: str, rows: Any
    ) -> None:
        publisher.load("t", ROWS, key="id")
        with pytest.raises(IncompleteRow) as caught:
            publisher.publish("t", rows, operation=operation)
        assert caught.value.column == "v"
        assert caught.value.row == (2 if isinstance(rows, list) else 1)
        assert zone.numbers("t") == [1]

    @pytest.mark.clause("LZ-100")
    def test_a_column_that_is_none_is_there(self, zone: Zone, publisher: Publisher) -> None:
        publisher.load("t", ROWS, key="id")
        publisher.publish("t", [{"id": 1, "v": None}], operation="update")
        assert zone.rows("t") == [{"id": 1, "v": None}, ROWS[1]]

    @pytest.mark.clause("LZ-103")
    @pytest.mark.parametrize("text", [None, TextFormat()])
    def test_a_row_that_deletes_needs_its_key_alone(
        self, zone: Zone, publisher: Publisher, text: TextFormat | None
    ) -> None:
        publisher.load("t", ROWS, key="id", text=text)
        publisher.publish("t", [{"id": 1}], operation="delete")
        if text:
            assert zone.text("t") == b"id,v,__rowMarker__\r\n1,,2\r\n"
        else:
            assert zone.file("t").to_pylist() == [{"id": 1, "v": None, MARKER: 2}]
            assert zone.rows("t") == [ROWS[1]]

    def test_a_row_that_deletes_needs_all_of_its_key(self, publisher: Publisher) -> None:
        publisher.load("t", [{"a": 1, "b": 2, "v": 3}], key=["a", "b"])
        with pytest.raises(IncompleteRow):
            publisher.publish("t", [{"a": 1, "b": 2}, {"a": 1}], operation="delete")

    def test_a_row_that_is_inserted_may_lack_a_column(
        self, zone: Zone, publisher: Publisher
    ) -> None:
        publisher.load("t", ROWS, key="id")
        publisher.publish("t", [{"id": 3}], operation="insert")
        assert zone.rows("t") == [*ROWS, {"id": 3, "v": None}]


class TestChangedKeys:
    @pytest.mark.clause("LZ-102", "LZ-103", "LZ-108")
    def test_they_are_a_delete_and_an_insert(self, zone: Zone, publisher: Publisher) -> None:
        publisher.load("t", ROWS, key="id")
        rows = [
            {"id": 2, "v": "B", "was": None},
            {"id": 7, "v": "q", "was": 1},
            {"id": 2, "v": "C", "was": 2},
        ]
        publisher.publish("t", rows, operation="update", previous_key={"id": "was"})
        assert zone.file("t").to_pylist() == [
            {"id": 2, "v": "B", MARKER: 1},
            {"id": 1, "v": None, MARKER: 2},
            {"id": 7, "v": "q", MARKER: 0},
            {"id": 2, "v": "C", MARKER: 1},
        ]
        assert zone.rows("t") == [{"id": 2, "v": "C"}, {"id": 7, "v": "q"}]

    @pytest.mark.clause("LZ-102")
    def test_a_part_of_a_key_may_change(self, zone: Zone, publisher: Publisher) -> None:
        publisher.load("t", [{"a": 1, "b": "x", "v": 1}], key=["a", "b"])
        rows = [{"a": 1, "b": "y", "v": 2, "old": "x", "op": "upsert"}]
        publisher.publish("t", rows, marker_column="op", previous_key={"b": "old"})
        assert zone.rows("t") == [{"a": 1, "b": "y", "v": 2}]

    def test_only_columns_of_the_key_have_an_earlier_value(self, publisher: Publisher) -> None:
        publisher.load("t", ROWS, key="id")
        with pytest.raises(UsageError, match="key"):
            publisher.publish(
                "t", [{"id": 1, "v": "a", "w": "b"}], operation="update", previous_key={"v": "w"}
            )


@pytest.mark.clause("LZ-108", "LZ-097")
def test_rows_stay_in_their_order(zone: Zone) -> None:
    rows = [{"id": n % 7, "v": n} for n in range(200_000)]
    with zone.publisher(file_bytes=100_000) as publisher:
        done = publisher.publish("t", rows, operation="upsert", key="id")
    assert len(done.files) > 1
    files = [zone.file("t", number) for number in zone.numbers("t")]
    assert [v for file in files for v in file["v"].to_pylist()] == list(range(200_000))


class TestColumns:
    def test_a_new_one_is_added(self, zone: Zone, publisher: Publisher) -> None:
        publisher.load("t", ROWS, key="id")
        publisher.publish("t", [{"id": 3, "v": "c", "w": 1.5}], operation="insert")
        assert [row["w"] for row in zone.rows("t")] == [None, None, 1.5]

    @pytest.mark.clause("LZ-168")
    def test_declared_ones_do_not_grow(self, publisher: Publisher) -> None:
        publisher.load("t", ROWS, key="id", text=TextFormat())
        with pytest.raises(TableError, match="declares its columns"):
            publisher.publish("t", [{"id": 3, "v": "c", "w": 1}], operation="insert")

    @pytest.mark.clause("LZ-216", "LZ-225", "LZ-239")
    @pytest.mark.parametrize("rows", [[{"id": 1}], [{"id": 1, "renamed": "a"}]])
    def test_one_goes_or_gets_another_name_with_the_table(
        self, zone: Zone, publisher: Publisher, rows: list[dict[str, Any]]
    ) -> None:
        publisher.load("t", ROWS, key="id")
        publisher.publish("t", [{"id": 1}], operation="delete")
        assert zone.rows("t") == [ROWS[1]]
        publisher.drop("t")
        publisher.load("t", rows, key="id")
        assert zone.numbers("t") == [1]
        assert zone.rows("t") == rows

    @pytest.mark.clause("LZ-237")
    def test_a_table_gets_another_name_with_all_its_data(
        self, zone: Zone, publisher: Publisher
    ) -> None:
        publisher.load("old", ROWS, key="id")
        publisher.drop("old")
        publisher.load("new", ROWS, key="id")
        assert zone.store.list("Files/LandingZone").folders == ("new",)
        assert zone.rows("new") == ROWS


class Held(MemoryStore):
    """A store whose folders are in use for a while."""

    refusals = 3

    def delete_folder(self, folder: str) -> None:
        if self.refusals:
            self.refusals -= 1
            raise PermissionError("in use")
        super().delete_folder(folder)


class TestRemovalOfATable:
    @pytest.mark.clause("LZ-235", "LZ-236")
    def test_a_folder_that_is_in_use_is_waited_for(self, zone: Zone) -> None:
        zone.store = held = Held(zone.clock)
        with zone.publisher() as publisher:
            publisher.load("t", ROWS, key="id")
            publisher.drop("t")
        assert held.refusals == 0
        assert zone.names("t") == []

    @pytest.mark.clause("LZ-236")
    def test_drop_raises_an_error_after_the_timeout(self, zone: Zone) -> None:
        zone.store = held = Held(zone.clock)
        held.refusals = 1_000
        with zone.publisher() as publisher:
            publisher.load("t", ROWS, key="id")
            with pytest.raises(TableError, match="in use"):
                publisher.drop("t", patience=10)
        assert zone.numbers("t") == [1]

    @pytest.mark.clause("LZ-239")
    def test_it_waits_until_the_mirror_has_dropped_it(self, zone: Zone) -> None:
        answers = iter([False, False, True])
        with zone.publisher() as publisher:
            publisher.load("t", ROWS, key="id")
            before = zone.clock.monotonic()
            publisher.drop("t", gone=lambda: next(answers))
            assert zone.clock.monotonic() > before
            publisher.load("t", ROWS[:1], key="id")
        assert zone.rows("t") == ROWS[:1]

    @pytest.mark.clause("LZ-239")
    def test_changes_wait_until_the_mirror_has_the_table_again(self, zone: Zone) -> None:
        with zone.publisher() as publisher:
            publisher.load("t", ROWS, key="id")
            publisher.drop("t")
            publisher.load("t", ROWS, key="id")
            with pytest.raises(TableError, match="does not have the table yet"):
                publisher.wait_for("t", lambda: False, patience=10)
            answers = iter([False, False, True])
            publisher.wait_for("t", lambda: next(answers))
            assert next(answers, None) is None
            publisher.publish("t", [{"id": 1}], operation="delete")
        assert zone.rows("t") == [ROWS[1]]

    def test_a_table_that_is_not_there_is_dropped_already(self, publisher: Publisher) -> None:
        publisher.drop("t")
