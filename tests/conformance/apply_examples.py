"""The examples of the specification, as landed Parquet files."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest

from mirrorlake.model import types
from mirrorlake.model.change import MARKER_COLUMN
from tests.conformance.mirrored import Mirrored
from tests.histories import Shape, counted
from tests.reference import Row

Make = Callable[..., Mirrored]
Marked = Sequence[tuple[int, str, str | None]]

EMPLOYEES = Shape.of(["EmployeeID"], EmployeeID=types.STRING, EmployeeLocation=types.STRING)

EXAMPLE_A: Marked = [
    (0, "E0001", "Redmond"),
    (0, "E0002", "Redmond"),
    (0, "E0003", "Redmond"),
    (1, "E0001", "Bellevue"),
]
RESULT_A: list[Row] = [("E0001", "Bellevue"), ("E0002", "Redmond"), ("E0003", "Redmond")]
EXAMPLE_B: Marked = [(0, "E0001", "Bellevue"), (2, "E0001", None), (0, "E0002", "Bellevue")]
RESULT_B: list[Row] = [("E0002", "Bellevue")]


def employees(rows: Marked, kind: pa.DataType, *, marker_first: bool) -> pa.Table:
    """A landed file of the examples. kind: of the marker, an integer type or text."""
    marker, identifier, location = zip(*rows, strict=True)
    data = pa.table(
        {
            "EmployeeID": pa.array(identifier, pa.string()),
            "EmployeeLocation": pa.array(location, pa.string()),
        }
    )
    column = pa.array([str(m) for m in marker]) if kind == pa.string() else pa.array(marker, kind)
    return data.add_column(0 if marker_first else 2, MARKER_COLUMN, column)


def files(
    rows: Marked, kind: pa.DataType, *, marker_first: bool, a_file_per_row: bool
) -> list[pa.Table]:
    parts = [[row] for row in rows] if a_file_per_row else [rows]
    return [employees(part, kind, marker_first=marker_first) for part in parts]


class ExampleContract:
    """Every example ends in the rows that stand beside it."""

    @pytest.fixture
    def staff(self, make: Make) -> Mirrored:
        return make(EMPLOYEES, "Tables/employees")

    @pytest.mark.clause("LZ-314", "LZ-315")
    @pytest.mark.parametrize(
        ("rows", "result"), [(EXAMPLE_A, RESULT_A), (EXAMPLE_B, RESULT_B)], ids=["A", "B"]
    )
    def test_the_examples_end_in_their_rows(
        self, staff: Mirrored, rows: Marked, result: list[Row]
    ) -> None:
        staff.apply(employees(rows, pa.int8(), marker_first=False))
        assert counted(staff.rows()) == counted(result)

    @pytest.mark.clause("LZ-314", "LZ-315", "LZ-096", "LZ-097")
    @pytest.mark.parametrize(
        ("rows", "result"), [(EXAMPLE_A, RESULT_A), (EXAMPLE_B, RESULT_B)], ids=["A", "B"]
    )
    def test_the_examples_are_the_same_in_a_commit_per_file(
        self, staff: Mirrored, rows: Marked, result: list[Row]
    ) -> None:
        for file in files(rows, pa.int32(), marker_first=False, a_file_per_row=True):
            staff.apply(file)
        assert counted(staff.rows()) == counted(result)

    @pytest.mark.clause("LZ-317")
    def test_example_c_tells_rows_apart_by_both_columns(self, make: Make) -> None:
        shape = Shape.of(["C1", "C2"], C1=types.LONG, C2=types.LONG, v=types.STRING)
        table = make(shape, "Tables/c")
        table.apply([(0, (1, 1, "a")), (0, (1, 2, "b")), (0, (2, 1, "c"))])
        table.apply([(1, (1, 2, "new")), (2, (2, 1, None))])
        assert counted(table.rows()) == counted([(1, 1, "a"), (1, 2, "new")])

    @pytest.mark.clause("LZ-343", "LZ-337", "LZ-338")
    def test_a_real_table_deletes_with_all_its_columns(self, staff: Mirrored) -> None:
        inserts = [(0, f"E000{n}", "Redmond") for n in (1, 2, 3)]
        for rows in (inserts, [(1, "E0001", "Bellevue")], [(2, "E0001", "Bellevue")]):
            staff.apply(employees(rows, pa.string(), marker_first=True))
        assert counted(staff.rows()) == counted([("E0002", "Redmond"), ("E0003", "Redmond")])
