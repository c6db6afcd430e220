"""What landed rows do to a table, one marker at a time and one after another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import pytest

from mirrorlake.errors import MissingBaseRow
from mirrorlake.mirror.engine import Counts, Failed
from mirrorlake.model import types
from mirrorlake.model.change import MARKER_COLUMN, Marker
from tests.conformance.mirrored import Mirrored
from tests.histories import NAN, Shape, counted
from tests.reference import UNCHANGED, Change, Row, Table

INSERT, UPDATE, DELETE, UPSERT = Marker.INSERT, Marker.UPDATE, Marker.DELETE, Marker.UPSERT

OLD, NEW = (1, "old", "x"), (1, "new", None)
Make = Callable[..., Mirrored]

ABSENT, PRESENT = [], [OLD]
CELLS = {
    "LZ-076": (INSERT, ABSENT, [NEW], {"insert": [NEW]}),
    "LZ-077": (INSERT, PRESENT, [OLD, NEW], {"insert": [NEW]}),
    "LZ-078": (UPDATE, ABSENT, [NEW], {"insert": [NEW]}),
    "LZ-079": (UPDATE, PRESENT, [NEW], {"update_preimage": [OLD], "update_postimage": [NEW]}),
    "LZ-080": (DELETE, ABSENT, [], {}),
    "LZ-081": (DELETE, PRESENT, [], {"delete": [OLD]}),
    "LZ-082": (UPSERT, ABSENT, [NEW], {"insert": [NEW]}),
    "LZ-083": (UPSERT, PRESENT, [NEW], {"update_preimage": [OLD], "update_postimage": [NEW]}),
}
"""By clause: a marker, the rows with its key before and after, and the feed."""


class RowContract:
    """Rows and feed after a batch are those of its rows, one after another."""

    @pytest.mark.parametrize(
        ("marker", "before", "after", "feed"),
        [pytest.param(*cell, marks=pytest.mark.clause(name)) for name, cell in CELLS.items()],
        ids=CELLS,
    )
    def test_a_marker_does_to_its_key_what_the_table_of_markers_says(
        self, orders: Mirrored, marker: int, before: list[Row], after: list[Row], feed
    ) -> None:
        other = (2, "other", "row")
        orders.apply([(INSERT, row) for row in [other, *before]])
        applied = orders.apply([(marker, NEW)])
        assert counted(orders.rows()) == counted([other, *after])
        assert orders.feed(applied.version) == Counter(
            (kind, row) for kind, rows in feed.items() for row in rows
        )

    @pytest.mark.clause("LZ-088")
    def test_a_delete_takes_all_rows_of_its_key_and_counts_them(self, orders: Mirrored) -> None:
        orders.apply([(INSERT, (1, "a", "")), (INSERT, (1, "b", "")), (INSERT, (1, "c", ""))])
        applied = orders.apply([(DELETE, (1, None, None))])
        assert orders.rows() == []
        assert applied.counts == Counts(delete=3, duplicates=2)

    @pytest.mark.clause("LZ-089")
    @pytest.mark.parametrize("marker", [UPDATE, UPSERT])
    def test_an_update_replaces_all_rows_of_its_key_by_one_and_counts_them(
        self, orders: Mirrored, marker: int
    ) -> None:
        orders.apply([(INSERT, (1, "a", "")), (INSERT, (1, "b", ""))])
        applied = orders.apply([(marker, NEW)])
        assert orders.rows() == [NEW]
        assert applied.counts.duplicates == 1

    @pytest.mark.clause("LZ-110")
    def test_the_rows_of_a_file_act_one_after_another(self, orders: Mirrored) -> None:
        model, changes = Table((0,)), []
        for number, marker in enumerate([0, 0, 1, 0, 2, 1, 1, 0, 4, 2, 0, 0]):
            changes.append((marker, (number % 2, f"{number}", None)))
        applied = orders.apply(changes)
        feed = model.apply([Change(marker, row) for marker, row in changes])
        assert counted(orders.rows()) == counted(model.rows)
        assert orders.feed(applied.version) == feed

    @pytest.mark.clause("LZ-130")
    @pytest.mark.parametrize("before", [ABSENT, PRESENT], ids=["absent", "present"])
    @pytest.mark.parametrize("files", [1, 2])
    def test_an_insert_and_then_a_delete_leave_the_key_absent(
        self, orders: Mirrored, before: list[Row], files: int
    ) -> None:
        orders.apply([(INSERT, row) for row in before])
        pair = [(INSERT, NEW), (DELETE, (1, None, None))]
        orders.apply(*([pair] if files == 1 else [[one] for one in pair]))
        assert orders.rows() == []

    def test_a_delete_and_then_an_insert_are_an_update_in_the_feed(self, orders: Mirrored) -> None:
        orders.apply([(INSERT, OLD)])
        applied = orders.apply([(DELETE, (1, None, None)), (INSERT, NEW)])
        assert orders.feed(applied.version) == Counter(
            {("update_preimage", OLD): 1, ("update_postimage", NEW): 1}
        )

    @pytest.mark.clause("LZ-102")
    def test_a_changed_key_is_a_delete_and_an_insert(self, orders: Mirrored) -> None:
        orders.apply([(INSERT, OLD)])
        moved = (7, "old", "x")
        applied = orders.apply([(DELETE, (1, None, None)), (INSERT, moved)])
        assert orders.rows() == [moved]
        assert orders.feed(applied.version) == Counter({("delete", OLD): 1, ("insert", moved): 1})

    @pytest.mark.clause("LZ-103")
    def test_a_delete_needs_no_more_than_its_key(self, orders: Mirrored) -> None:
        orders.apply([(INSERT, OLD)])
        file = pa.table({"id": [1], MARKER_COLUMN: pa.array([2], pa.int8())})
        applied = orders.apply(file)
        assert orders.feed(applied.version) == Counter({("delete", OLD): 1})

    def test_an_update_that_changes_nothing_is_in_the_feed(self, orders: Mirrored) -> None:
        orders.apply([(INSERT, OLD)])
        applied = orders.apply([(UPDATE, OLD)])
        assert orders.feed(applied.version) == Counter(
            {("update_preimage", OLD): 1, ("update_postimage", OLD): 1}
        )

    # -- keys ---------------------------------------------------------------------------------

    @pytest.mark.clause("LZ-256")
    @pytest.mark.parametrize(
        ("kind", "values"),
        [
            (types.STRING, ["a", "A", "a ", " a", "", "ä", "a\u0308"]),
            (types.DOUBLE, [0.0, -0.0, NAN, 5e-324]),
            (types.FLOAT, [0.0, -0.0, NAN]),
            (types.BINARY, [b"", b"\0", b"a", b"a\0"]),
        ],
        ids=str,
    )
    def test_keys_are_compared_as_exact_values(self, make: Make, kind, values: list) -> None:
        table = make(Shape.of(["k"], k=kind, v=types.LONG))
        table.apply([(INSERT, (value, 0)) for value in values])
        for number, value in enumerate(values, start=1):
            table.apply([(UPDATE, (value, number))])
        assert counted(table.rows()) == counted((v, n) for n, v in enumerate(values, start=1))

    @pytest.mark.clause("LZ-257")
    def test_null_is_equal_to_null_in_a_key(self, make: Make) -> None:
        table = make(Shape.of(["a", "b"], a=types.LONG, b=types.STRING, v=types.LONG))
        table.apply([(INSERT, (None, "x", 0)), (INSERT, (None, None, 0)), (INSERT, (1, None, 0))])
        table.apply([(UPDATE, (None, None, 1)), (DELETE, (1, None, None))])
        assert counted(table.rows()) == counted([(None, "x", 0), (None, None, 1)])

    # -- values that were not sent ------------------------------------------------------------

    def test_unchanged_values_are_those_of_the_row_in_the_table(self, orders: Mirrored) -> None:
        orders.apply([(INSERT, (1, "a", "long")), (INSERT, (2, "b", "wide"))])
        orders.apply(
            [
                (UPDATE, (1, "c", UNCHANGED)),
                (DELETE, (2, None, None)),
                (INSERT, (3, "d", UNCHANGED)),
                (UPDATE, (3, UNCHANGED, UNCHANGED)),
            ]
        )
        assert counted(orders.rows()) == counted([(1, "c", "long"), (3, "d", "wide")])

    def test_an_unchanged_value_without_a_row_is_an_error_and_never_null(
        self, orders: Mirrored
    ) -> None:
        orders.apply([(INSERT, (1, "a", "long"))])
        outcome = orders.run(orders.step([(UPDATE, (2, "b", UNCHANGED))]))
        assert isinstance(outcome, Failed)
        assert isinstance(outcome.error, MissingBaseRow)
        assert orders.rows() == [(1, "a", "long")]

    # -- batches ------------------------------------------------------------------------------

    @pytest.mark.clause("LZ-130")
    def test_files_applied_together_are_like_files_applied_one_by_one(self, make: Make) -> None:
        files = [
            [(INSERT, (1, "a", "x")), (INSERT, (2, "b", "y")), (INSERT, (2, "b", "y"))],
            [(UPDATE, (1, "c", UNCHANGED)), (DELETE, (2, None, None)), (INSERT, (3, "d", "z"))],
            [(DELETE, (3, None, None)), (INSERT, (4, UNCHANGED, UNCHANGED))],
            [(UPSERT, (2, "e", "w")), (INSERT, (1, "second", "row"))],
        ]
        shape = Shape.of(["id"], id=types.LONG, name=types.STRING, note=types.STRING)
        together, one_by_one = make(shape, "Tables/together"), make(shape, "Tables/single")
        together.apply(*files)
        for file in files:
            one_by_one.apply(file)
        assert counted(together.rows()) == counted(one_by_one.rows())

    def test_a_truncation_and_the_rows_after_it_are_one_commit(self, orders: Mirrored) -> None:
        orders.apply([(INSERT, OLD), (INSERT, (2, "b", "y"))])
        applied = orders.apply([(INSERT, NEW), (UPDATE, (1, "z", None))], truncated=True)
        assert orders.rows() == [(1, "z", None)]
        assert orders.feed(applied.version) == Counter(
            {("delete", OLD): 1, ("delete", (2, "b", "y")): 1, ("insert", (1, "z", None)): 1}
        )

    def test_rows_after_a_truncation_are_found_by_later_changes(self, orders: Mirrored) -> None:
        orders.apply([(INSERT, OLD)])
        orders.apply([(INSERT, OLD)], truncated=True)
        orders.apply([(DELETE, (1, None, None))])
        assert orders.rows() == []
