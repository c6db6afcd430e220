"""What landed rows do to a table, one marker at a time and one after another."""

from __future__ import annotations

import pyarrow as pa

from mirrorlake.errors import MissingBaseRow
from mirrorlake.mirror.engine import Counts
from mirrorlake.model import types
from mirrorlake.model.change import MARKER_COLUMN, Marker
from tests.conformance.apply.scenario import (
    MODELLED,
    ORDERS,
    Refused,
    Scenario,
    delete,
    insert,
    lands,
    update,
    upsert,
)
from tests.histories import NAN, Shape
from tests.reference import UNCHANGED

OTHER, OLD, NEW = (2, "other", "row"), (1, "old", "x"), (1, "new", None)
GONE = delete(1, None, None)
UPDATED = {"update_preimage": [OLD], "update_postimage": [NEW]}
NULLS = Shape.of(["a", "b"], a=types.LONG, b=types.STRING, v=types.LONG)

MARKERS = [
    Scenario(
        f"{marker.name.lower()} of a key that is {'present' if before else 'absent'}",
        [clause],
        ORDERS,
        [
            lands([insert(*OTHER), *(insert(*row) for row in before)]),
            lands([(marker, NEW)], feed=feed),
        ],
        rows=[OTHER, *after],
    )
    for clause, marker, before, after, feed in (
        ("LZ-076", Marker.INSERT, [], [NEW], {"insert": [NEW]}),
        ("LZ-077", Marker.INSERT, [OLD], [OLD, NEW], {"insert": [NEW]}),
        ("LZ-078", Marker.UPDATE, [], [NEW], {"insert": [NEW]}),
        ("LZ-079", Marker.UPDATE, [OLD], [NEW], UPDATED),
        ("LZ-080", Marker.DELETE, [], [], {}),
        ("LZ-081", Marker.DELETE, [OLD], [], {"delete": [OLD]}),
        ("LZ-082", Marker.UPSERT, [], [NEW], {"insert": [NEW]}),
        ("LZ-083", Marker.UPSERT, [OLD], [NEW], UPDATED),
    )
]
"""The table of markers: what each does to the rows of its key, and what the feed says of it."""

SUPPRESSED = [
    Scenario(
        "updates that change no value are left out",
        ["CF-147"],
        Shape.of(["a"], a=types.LONG, b=types.STRING, v=types.LONG),
        [
            lands([insert(1, None, None), insert(2, "b", 5), insert(3, "c", 6)]),
            lands(
                [update(1, None, None), update(2, "b", 6), upsert(3, "c", 6)],
                feed={"update_preimage": [(2, "b", 5)], "update_postimage": [(2, "b", 6)]},
                suppress_unchanged=True,
            ),
            lands([upsert(3, "c", 6)], feed={}, suppress_unchanged=True),
        ],
        rows=[(1, None, None), (2, "b", 6), (3, "c", 6)],
    )
]

FOUR_FILES = [
    [insert(1, "a", "x"), insert(2, "b", "y"), insert(2, "b", "y")],
    [update(1, "c", UNCHANGED), delete(2, None, None), insert(3, "d", "z")],
    [delete(3, None, None), insert(4, UNCHANGED, UNCHANGED)],
    [upsert(2, "e", "w"), insert(1, "second", "row")],
]

TRUNCATION = Scenario(
    "a truncation and the rows after it are one commit",
    [],
    ORDERS,
    [
        lands([insert(*OLD), insert(2, "b", "y")]),
        lands(
            [insert(*NEW), update(1, "z", None)],
            truncated=True,
            feed={"delete": [OLD, (2, "b", "y")], "insert": [(1, "z", None)]},
        ),
    ],
    rows=[(1, "z", None)],
    version=2,
)

ROWS = [
    *MARKERS,
    *SUPPRESSED,
    Scenario(
        "a delete takes all rows of its key and counts them",
        ["LZ-088"],
        ORDERS,
        [
            lands([insert(1, "a", ""), insert(1, "b", ""), insert(1, "c", "")]),
            lands([GONE], counts=Counts(delete=3, duplicates=2)),
        ],
        rows=[],
    ),
    *(
        Scenario(
            f"an {marker.name.lower()} replaces all rows of its key by one and counts them",
            ["LZ-089"],
            ORDERS,
            [
                lands([insert(1, "a", ""), insert(1, "b", "")]),
                lands([(marker, NEW)], counts=Counts(delete=2, insert=1, duplicates=1)),
            ],
            rows=[NEW],
        )
        for marker in (Marker.UPDATE, Marker.UPSERT)
    ),
    Scenario(
        "the rows of a file act one after another",
        ["LZ-110"],
        ORDERS,
        [
            lands(
                [
                    (Marker(marker), (number % 2, f"{number}", None))
                    for number, marker in enumerate([0, 0, 1, 0, 2, 1, 1, 0, 4, 2, 0, 0])
                ]
            )
        ],
        rows=MODELLED,
    ),
    *(
        Scenario(
            f"an insert and then a delete in {how} leave the key absent, {state} before",
            ["LZ-130"],
            ORDERS,
            [lands([insert(*row) for row in before]), lands(*files)],
            rows=[],
        )
        for state, before in (("absent", []), ("present", [OLD]))
        for how, files in (
            ("one file", [[insert(*NEW), GONE]]),
            ("two files", [[insert(*NEW)], [GONE]]),
        )
    ),
    Scenario(
        "a delete and then an insert are an update in the feed",
        [],
        ORDERS,
        [lands([insert(*OLD)]), lands([GONE, insert(*NEW)], feed=UPDATED)],
        rows=[NEW],
    ),
    Scenario(
        "a changed key is a delete and an insert",
        ["LZ-102"],
        ORDERS,
        [
            lands([insert(*OLD)]),
            lands(
                [GONE, insert(7, "old", "x")], feed={"delete": [OLD], "insert": [(7, "old", "x")]}
            ),
        ],
        rows=[(7, "old", "x")],
    ),
    Scenario(
        "a delete needs no more than its key",
        ["LZ-103"],
        ORDERS,
        [
            lands([insert(*OLD)]),
            lands(
                pa.table({"id": [1], MARKER_COLUMN: pa.array([2], pa.int8())}),
                feed={"delete": [OLD]},
            ),
        ],
        rows=[],
    ),
    Scenario(
        "an update that changes nothing is in the feed",
        [],
        ORDERS,
        [
            lands([insert(*OLD)]),
            lands([update(*OLD)], feed={"update_preimage": [OLD], "update_postimage": [OLD]}),
        ],
        rows=[OLD],
    ),
    # -- keys
    *(
        Scenario(
            f"keys of {kind} are compared as exact values",
            ["LZ-256"],
            Shape.of(["k"], k=kind, v=types.LONG),
            [
                lands([insert(value, 0) for value in values]),
                *(lands([update(value, number)]) for number, value in enumerate(values, start=1)),
            ],
            rows=[(value, number) for number, value in enumerate(values, start=1)],
        )
        for kind, values in (
            (types.STRING, ["a", "A", "a ", " a", "", "ä", "a\u0308"]),
            (types.DOUBLE, [0.0, -0.0, NAN, 5e-324]),
            (types.FLOAT, [0.0, -0.0, NAN]),
            (types.BINARY, [b"", b"\0", b"a", b"a\0"]),
        )
    ),
    Scenario(
        "NULL is equal to NULL in a key",
        ["LZ-257"],
        NULLS,
        [
            lands([insert(None, "x", 0), insert(None, None, 0), insert(1, None, 0)]),
            lands([update(None, None, 1), delete(1, None, None)]),
        ],
        rows=[(None, "x", 0), (None, None, 1)],
    ),
    # -- values that were not sent
    Scenario(
        "unchanged values are those of the row in the table",
        [],
        ORDERS,
        [
            lands([insert(1, "a", "long"), insert(2, "b", "wide")]),
            lands(
                [
                    update(1, "c", UNCHANGED),
                    delete(2, None, None),
                    insert(3, "d", UNCHANGED),
                    update(3, UNCHANGED, UNCHANGED),
                ]
            ),
        ],
        rows=[(1, "c", "long"), (3, "d", "wide")],
    ),
    Scenario(
        "an unchanged value without a row is an error and never NULL",
        [],
        ORDERS,
        [
            lands([insert(1, "a", "long")]),
            lands([update(2, "b", UNCHANGED)], outcome=Refused(MissingBaseRow)),
        ],
        rows=[(1, "a", "long")],
    ),
    # -- batches
    *(
        Scenario(
            f"four files in {how}",
            ["LZ-130"],
            ORDERS,
            [lands(*files) for files in batches],
            rows=[(1, "c", "x"), (1, "second", "row"), (2, "e", "w"), (4, "d", "z")],
        )
        for how, batches in (
            ("one batch", [FOUR_FILES]),
            ("a batch of each", [[file] for file in FOUR_FILES]),
        )
    ),
    TRUNCATION,
    Scenario(
        "rows after a truncation are found by later changes",
        [],
        ORDERS,
        [lands([insert(*OLD)]), lands([insert(*OLD)], truncated=True), lands([GONE])],
        rows=[],
    ),
]
