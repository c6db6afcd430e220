"""What rows must bring with them: their key, and the columns that were declared non-null."""

from __future__ import annotations

import pyarrow as pa

from mirrorlake.errors import FileTooLarge, KeyColumnMissing, NullKey, SchemaMergeFailure
from mirrorlake.mirror.row_checks import RowChecks
from mirrorlake.model import types
from mirrorlake.model.change import MARKER_COLUMN, Marker
from tests.conformance.apply.scenario import (
    ORDERS,
    Act,
    Played,
    Refused,
    Scenario,
    adds,
    insert,
    lands,
)
from tests.conformance.mirrored import marked
from tests.reference import Row

STRICT = RowChecks(strict_keys=True)
FIRST = (1, "a", "x")
WIDE = insert(1, "a" * 5_000, "x")


def are_all_nullable(played: Played) -> None:
    assert [column.nullable for column in played.progress.schema] == [True] * 3


def named(name: str, clauses: list[str], *acts: Act, rows: list[Row], **more: object) -> Scenario:
    """A table whose first file declared the column name as non-null, with one row."""
    first = lands([insert(*FIRST)])
    return Scenario(name, clauses, ORDERS, [first, *acts], rows, required=("name",), **more)  # type: ignore[arg-type]


ROW_CHECKS = [
    named(
        "what was declared non-null is remembered, and nullable",
        ["LZ-219"],
        lands([insert(2, None, None)]),
        rows=[FIRST, (2, None, None)],
        then=are_all_nullable,
    ),
    named(
        "what was declared non-null is remembered when columns are added",
        ["LZ-219"],
        adds(more=types.LONG),
        rows=[(*FIRST, None)],
    ),
    *(
        named(
            f"a file without a column that is not nullable is refused, {marker.name.lower()}",
            ["LZ-217"],
            lands(
                marked(pa.table({"id": [1], "note": ["y"]}), marker),
                outcome=Refused(SchemaMergeFailure, column="name"),
            ),
            rows=[FIRST],
        )
        for marker in (Marker.INSERT, Marker.UPDATE)
    ),
    named(
        "a file without a nullable column is applied",
        ["LZ-217"],
        lands(marked(pa.table({"id": [1], "name": ["b"]}))),
        rows=[(1, "b", None)],
    ),
    named(
        "a file of deletions may lack every other column",
        ["LZ-103", "LZ-218"],
        lands(marked(pa.table({"id": [1]}), Marker.DELETE)),
        rows=[],
    ),
    named(
        "a file of more than deletions may not lack one that is not nullable",
        ["LZ-217", "LZ-218"],
        lands(
            pa.table({"id": [1, 2], MARKER_COLUMN: [2, 4]}),
            outcome=Refused(SchemaMergeFailure, column="name"),
        ),
        rows=[FIRST],
    ),
    named(
        "a file without rows lacks nothing",
        [],
        lands(pa.table({"note": pa.array([], pa.string())})),
        rows=[FIRST],
    ),
    # -- keys
    *(
        Scenario(
            f"a file without a key column is refused, {marker.name.lower()}",
            ["LZ-046", "LZ-218"],
            ORDERS,
            [
                lands([insert(None, "a", "x")]),
                lands(
                    marked(pa.table({"name": ["a"]}), marker),
                    outcome=Refused(KeyColumnMissing, column="id"),
                ),
            ],
            rows=[(None, "a", "x")],
        )
        for marker in (Marker.INSERT, Marker.DELETE)
    ),
    *(
        Scenario(
            f"a null key is an error where keys are strict, {marker.name.lower()}",
            ["LZ-257"],
            ORDERS,
            [
                lands(
                    [(marker, (1, "a", "x")), (marker, (None, "b", "y"))],
                    outcome=Refused(NullKey, row=2, column="id"),
                    row_checks=STRICT,
                )
            ],
            rows=[],
        )
        for marker in Marker
    ),
    Scenario(
        "strict keys without null are applied",
        ["LZ-257"],
        ORDERS,
        [lands([insert(1, None, None)], row_checks=STRICT)],
        rows=[(1, None, None)],
    ),
    # -- size
    Scenario(
        "a file that takes too much memory is refused",
        [],
        ORDERS,
        [
            lands([WIDE], outcome=Refused(FileTooLarge), row_checks=RowChecks(file_bytes=4_000)),
            lands([WIDE], row_checks=RowChecks(file_bytes=8_000)),
        ],
        rows=[WIDE[1]],
    ),
]
