"""Columns: their types in the table, their names, and those that come and go."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa

from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.model import types
from mirrorlake.model.table import Column, Schema
from mirrorlake.model.types import DataType
from tests.conformance.apply.scenario import (
    ORDERS,
    Adds,
    Played,
    Scenario,
    adds,
    insert,
    lands,
    update,
)
from tests.conformance.mirrored import content, marked, shape_of
from tests.histories import VALUES, Shape
from tests.reference import Row

SIMPLE = [
    types.BOOLEAN,
    types.BYTE,
    types.SHORT,
    types.INTEGER,
    types.LONG,
    types.FLOAT,
    types.DOUBLE,
    types.decimal(12, 2),
    types.STRING,
    types.BINARY,
    types.DATE,
    types.TIMESTAMP,
]
MOMENTS = [(1, 1, 1), (1883, 11, 18, 12, 3, 58, 1), (2026, 3, 29, 2, 30, 0, 123456)]
NAMES = [
    *("a b", "a,b", "a;b", "{a}", "(a)", "a\nb", "a\tb", "a=b", " ", "a.b", 'quo"te', "it's"),
    *("back`tick", "per%20cent", "Größe", "_a", "filename", "file_row_number", "select", "x" * 200),
]
KEYS = ["file_row_number", "filename", "rowid", "a.b", "q\"`'%"]
PATHS = [
    *("with space", "dot.ted", "quo'te\"d", "back`tick", "per%41cent", "Größe", "_leading"),
    *("a=b", "[x]", "st*r?", "{a,b}", "sch ema.x/and table"),
]


def made_by(
    name: str,
    clauses: Sequence[str],
    columns: pa.Table,
    kinds: Sequence[DataType],
    rows: Sequence[Row],
    **options: Any,
) -> Scenario:
    """The table that a landed file makes: its columns after the key are of these types. options:
    how the file is written."""
    file = marked(columns)
    shape = shape_of(file, ["id"], **options)

    def has_the_types(played: Played) -> None:
        assert [column.type for column in played.progress.schema][1:] == list(kinds)

    written = content(file, **options)
    return Scenario(name, clauses, shape, [lands(written)], rows, then=has_the_types)


def values(count: int, kinds: Sequence[DataType]) -> list[Row]:
    """So many rows of values of these types."""
    return [
        tuple(VALUES[kind.name][n % len(VALUES[kind.name])] for kind in kinds) for n in range(count)
    ]


def is_mapped_only_from_version_2(played: Played) -> None:
    log = TableLog(played.table.store.location(played.table.path))
    modes = [
        action["metaData"]["configuration"].get("delta.columnMapping.mode", "none")
        for version in log.versions()
        for action in log.actions(version)
        if "metaData" in action
    ]
    assert (modes[0], modes[-1]) == ("none", "name")


EVERY_VALUE = [(n, *row) for n, row in enumerate(values(max(map(len, VALUES.values())), SIMPLE))]
SIMPLE_SHAPE = Shape(
    Schema.of([Column("id", types.LONG), *(Column(f"c{n}", t) for n, t in enumerate(SIMPLE))]),
    ("id",),
)
MOMENT_ROWS = [(n, datetime(*moment, tzinfo=UTC)) for n, moment in enumerate(MOMENTS)]
UNSIGNED = {8: types.SHORT, 16: types.INTEGER, 32: types.LONG, 64: types.decimal(20, 0)}
MANY = [SIMPLE[n % len(SIMPLE)] for n in range(150)]
MANY_ROWS = [(*row, n) for n, row in enumerate(values(3, MANY))]
NAMED = tuple(f"v{n}" for n in range(len(NAMES)))
RENEWED = (NAMED[0], *["new"] * (len(NAMES) - 1), 1)

ANY_NAMES = Scenario(
    "columns may have any name",
    ["LZ-157"],
    Shape(
        Schema.of([*(Column(name, types.STRING) for name in NAMES), Column("id", types.LONG)]),
        ("a b", "id"),
    ),
    [lands([insert(*NAMED, 1), insert(*NAMED, 2)]), lands([update(*RENEWED)])],
    rows=[RENEWED, (*NAMED, 2)],
    mapping="name",
)

COLUMNS = [
    made_by(
        "every simple type keeps its type and its values",
        ["LZ-151"],
        SIMPLE_SHAPE.arrow(EVERY_VALUE),
        SIMPLE,
        EVERY_VALUE,
    ),
    *(
        made_by(
            f"a moment without a zone is UTC, {how}",
            ["LZ-152"],
            pa.table(
                {
                    "id": [n for n, _at in MOMENT_ROWS],
                    "at": pa.array([at for _n, at in MOMENT_ROWS], pa.timestamp("us", "UTC")).cast(
                        pa.timestamp("us")
                    ),
                }
            ),
            [types.TIMESTAMP],
            MOMENT_ROWS,
            use_deprecated_int96_timestamps=as_int96,
        )
        for how, as_int96 in (("in microseconds", False), ("in INT96", True))
    ),
    *(
        made_by(
            f"a time of {kind} is text",
            ["LZ-153"],
            pa.table({"id": [1], "at": pa.array([time(1, 2, 3, 4000)], kind)}),
            [types.STRING],
            [(1, text)],
        )
        for kind, text in ((pa.time32("ms"), "01:02:03.004"), (pa.time64("us"), "01:02:03.004000"))
    ),
    made_by(
        "an unsigned number is the next wider signed one",
        ["LZ-154"],
        pa.table(
            {"id": [1]}
            | {f"u{n}": pa.array([2**n - 1], getattr(pa, f"uint{n}")()) for n in UNSIGNED}
        ),
        list(UNSIGNED.values()),
        [(1, 255, 65_535, 2**32 - 1, Decimal(2**64 - 1))],
    ),
    Scenario(
        "a table may have many columns",
        [],
        Shape(
            Schema.of(
                [*(Column(f"c{n}", t) for n, t in enumerate(MANY)), Column("id", types.LONG)]
            ),
            ("id",),
        ),
        [lands([insert(*row) for row in MANY_ROWS]), lands([update(*MANY_ROWS[2][:-1], 0)])],
        rows=[(*MANY_ROWS[2][:-1], 0), *MANY_ROWS[1:]],
    ),
    # -- names
    ANY_NAMES,
    Scenario(
        "a column that needs mapping may come later",
        ["LZ-157"],
        ORDERS,
        [
            lands([insert(1, "a", "x")]),
            adds(**{"a b,;{}()\n\t=": types.STRING}),
            lands([insert(2, "b", "y", "z")]),
        ],
        rows=[(1, "a", "x", None), (2, "b", "y", "z")],
        mapping="name",
        then=is_mapped_only_from_version_2,
    ),
    *(
        Scenario(
            f"a key may be called {name}",
            [],
            Shape(Schema.of([Column("v", types.LONG), Column(name, types.STRING)]), (name,)),
            [lands([insert(1, "a"), insert(2, "b")]), lands([update(3, "a")])],
            rows=[(3, "a"), (2, "b")],
        )
        for name in KEYS
    ),
    *(
        Scenario(
            f"a table may lie at {path}",
            [],
            Shape.of(["id"], id=types.LONG, v=types.STRING),
            [lands([insert(1, "a")]), lands([update(1, "b")])],
            rows=[(1, "b")],
            path=f"Tables/{path}",
        )
        for path in PATHS
    ),
    *(
        Scenario(
            f"columns can be added to a table at {path}",
            [],
            Shape.of(["id"], id=types.LONG),
            [adds(more=types.LONG), lands([insert(1, 2)])],
            rows=[(1, 2)],
            path=f"Tables/{path}",
        )
        for path in ("more `back`ticks", "per%41cent's")
    ),
    # -- columns that come and go
    Scenario(
        "rows from before a column have NULL in it",
        ["LZ-213"],
        ORDERS,
        [
            lands([insert(1, "a", "x"), insert(2, "b", "y")]),
            adds(**{"more": types.TIMESTAMP, "and more": types.BYTE}),
            lands([update(1, "c", "z", None, 5)]),
        ],
        rows=[(1, "c", "z", None, 5), (2, "b", "y", None, None)],
    ),
    Scenario(
        "rows of a file without a column have NULL in it",
        ["LZ-214"],
        ORDERS,
        [lands([insert(1, "a", "x")]), lands(marked(pa.table({"id": [2], "name": ["b"]})))],
        rows=[(1, "a", "x"), (2, "b", None)],
    ),
    Scenario(
        "the images of a row from before a column have NULL in it",
        [],
        ORDERS,
        [
            lands([insert(1, "a", "x")]),
            adds(more=types.LONG),
            lands(
                [update(1, "b", "y", 7)],
                feed={
                    "update_preimage": [(1, "a", "x", None)],
                    "update_postimage": [(1, "b", "y", 7)],
                },
            ),
        ],
        rows=[(1, "b", "y", 7)],
    ),
    Scenario(
        "a column of every type can be added",
        [],
        ORDERS,
        [
            lands([insert(1, "a", "x")]),
            Adds(tuple(Column(f"c{n}", kind) for n, kind in enumerate(SIMPLE))),
            lands([insert(2, "b", "y", *(VALUES[kind.name][-1] for kind in SIMPLE))]),
        ],
        rows=[
            (1, "a", "x", *[None] * len(SIMPLE)),
            (2, "b", "y", *(VALUES[kind.name][-1] for kind in SIMPLE)),
        ],
    ),
    Scenario(
        "columns that are there are not added again",
        [],
        ORDERS,
        [adds(more=types.LONG), adds(more=types.LONG)],
        rows=[],
        version=1,
    ),
    Scenario(
        "the columns of a file may stand in another order",
        [],
        ORDERS,
        [lands(marked(pa.table({"note": ["x"], "id": [1], "name": ["a"]})))],
        rows=[(1, "a", "x")],
    ),
]
