"""The examples of the specification, as landed Parquet files."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from mirrorlake.model import types
from mirrorlake.model.change import MARKER_COLUMN
from tests.conformance.apply.scenario import Scenario, delete, insert, lands, update
from tests.histories import Shape
from tests.reference import Row

STAFF = Shape.of(["EmployeeID"], EmployeeID=types.STRING, EmployeeLocation=types.STRING)
PAIRS = Shape.of(["C1", "C2"], C1=types.LONG, C2=types.LONG, v=types.STRING)

Marked = Sequence[tuple[int, str, str | None]]

EXAMPLES: dict[str, tuple[Marked, list[Row]]] = {
    "A": (
        [
            (0, "E0001", "Redmond"),
            (0, "E0002", "Redmond"),
            (0, "E0003", "Redmond"),
            (1, "E0001", "Bellevue"),
        ],
        [("E0001", "Bellevue"), ("E0002", "Redmond"), ("E0003", "Redmond")],
    ),
    "B": (
        [(0, "E0001", "Bellevue"), (2, "E0001", None), (0, "E0002", "Bellevue")],
        [("E0002", "Bellevue")],
    ),
}
"""By name: marked rows of employees, and what they end in."""


def employees(rows: Marked, kind: pa.DataType, *, marker_first: bool = False) -> pa.Table:
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


SPECIFIED = [
    *(
        Scenario(
            f"example {name} ends in its rows",
            ["LZ-314", "LZ-315"],
            STAFF,
            [lands(employees(rows, pa.int8()))],
            rows=result,
        )
        for name, (rows, result) in EXAMPLES.items()
    ),
    *(
        Scenario(
            f"example {name} is the same in a commit per file",
            ["LZ-314", "LZ-315", "LZ-096", "LZ-097"],
            STAFF,
            [lands(employees([row], pa.int32())) for row in rows],
            rows=result,
        )
        for name, (rows, result) in EXAMPLES.items()
    ),
    Scenario(
        "example C tells rows apart by both columns",
        ["LZ-317"],
        PAIRS,
        [
            lands([insert(1, 1, "a"), insert(1, 2, "b"), insert(2, 1, "c")]),
            lands([update(1, 2, "new"), delete(2, 1, None)]),
        ],
        rows=[(1, 1, "a"), (1, 2, "new")],
    ),
    Scenario(
        "a real table deletes with all its columns",
        ["LZ-343", "LZ-337", "LZ-338"],
        STAFF,
        [
            lands(employees(rows, pa.string(), marker_first=True))
            for rows in (
                [(0, f"E000{n}", "Redmond") for n in (1, 2, 3)],
                [(1, "E0001", "Bellevue")],
                [(2, "E0001", "Bellevue")],
            )
        ],
        rows=[("E0002", "Redmond"), ("E0003", "Redmond")],
    ),
]
