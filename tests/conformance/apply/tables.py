"""Tables: made, made anew, loaded from files without markers, and those whose files are bad."""

from __future__ import annotations

import pyarrow as pa

from mirrorlake.errors import BadFile, BadValue, KeyedChangeWithoutKey, UnknownMarker
from mirrorlake.mirror.engine import Counts
from mirrorlake.model import types
from mirrorlake.model.change import MARKER_COLUMN, Marker
from tests.conformance.apply.scenario import (
    ORDERS,
    Made,
    Played,
    Refused,
    Scenario,
    insert,
    lands,
    update,
    upsert,
)
from tests.conformance.mirrored import marked
from tests.histories import KEYLESS, Shape

FILE = ORDERS.arrow([(1, "a", "x")])
MAPPED = Shape.of(["a b"], **{"a b": types.LONG, "note": types.BINARY})


def is_in_the_feed_from_its_first_batch(played: Played) -> None:
    assert list(played.feed) == [1]


TABLES = [
    Scenario(
        "the feed is on from version 0",
        ["CF-142"],
        ORDERS,
        [lands([insert(1, "a", "x")])],
        rows=[(1, "a", "x")],
        then=is_in_the_feed_from_its_first_batch,
    ),
    Scenario(
        "a table that is there is not made again",
        [],
        ORDERS,
        [lands([insert(1, "a", "x")]), Made()],
        rows=[(1, "a", "x")],
    ),
    *(
        Scenario(
            f"a table made anew with {what} begins with file 1",
            [],
            ORDERS,
            [
                lands([insert(1, "a", "x")]),
                lands([insert(2, "b", "y")]),
                Made(anew=shape),
                lands([insert(*[None] * len(shape.schema))]),
            ],
            rows=[(None,) * len(shape.schema)],
        )
        for what, shape in (
            ("the same columns", ORDERS),
            ("other columns", Shape.of(["id"], id=types.STRING, other=types.DATE)),
            ("column mapping", MAPPED),
        )
    ),
    Scenario(
        "a table with column mapping can be made anew",
        [],
        MAPPED,
        [
            lands([insert(1, b"a")]),
            Made(anew=Shape.of(["a b"], **{"a b": types.STRING})),
            lands([insert("x")]),
        ],
        rows=[("x",)],
    ),
    # -- that fail, while all others are applied
    *(
        Scenario(
            f"a table fails alone, and names the place: {what}",
            ["LZ-259", "LZ-267"],
            Shape(KEYLESS.schema, key),
            [lands([insert(1, "a")], file, outcome=Refused(error, row, column, file=2))],
            rows=[],
        )
        for what, key, file, error, row, column in (
            (
                "marker",
                ("a",),
                pa.table({"a": [1, 2], MARKER_COLUMN: [0, 3]}),
                UnknownMarker,
                2,
                MARKER_COLUMN,
            ),
            (
                "no key",
                (),
                pa.table({"a": [1, 2], MARKER_COLUMN: [0, 2]}),
                KeyedChangeWithoutKey,
                2,
                None,
            ),
            ("value", ("a",), pa.table({"a": pa.array([2**63], pa.uint64())}), BadValue, None, "a"),
            ("bad file", ("a",), b"PAR1 and then nothing", BadFile, None, None),
            ("empty file", ("a",), b"", BadFile, None, None),
        )
    ),
    # -- files without markers
    Scenario(
        "a file without markers is inserted",
        ["LZ-091"],
        ORDERS,
        [lands(FILE), lands(FILE)],
        rows=[(1, "a", "x")] * 2,
    ),
    Scenario(
        "a file without markers is upserted where that is the default",
        ["LZ-094", "LZ-105"],
        ORDERS,
        [
            lands(FILE, default=Marker.UPSERT),
            lands(ORDERS.arrow([(1, "b", "y")]), default=Marker.UPSERT),
        ],
        rows=[(1, "b", "y")],
    ),
    Scenario(
        "the files of a load are one commit",
        [],
        ORDERS,
        [
            lands(
                *(ORDERS.arrow([(n, "a", "x"), (n + 10, "b", "y")]) for n in range(5)),
                is_load=True,
                counts=Counts(insert=10),
            )
        ],
        rows=[*((n, "a", "x") for n in range(5)), *((n, "b", "y") for n in range(10, 15))],
        version=1,
    ),
    Scenario(
        "rows of a load are found by later changes",
        ["LZ-260"],
        ORDERS,
        [
            lands(ORDERS.arrow([(n, "a", "x") for n in range(6)]), is_load=True),
            lands(marked(pa.table({"id": [0, 1, 2]}), Marker.DELETE)),
            lands([update(3, "b", "y"), upsert(4, "c", "z")]),
        ],
        rows=[(3, "b", "y"), (4, "c", "z"), (5, "a", "x")],
    ),
]
