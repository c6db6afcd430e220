"""A chunk of a backfill: in its range a table becomes what the file says, elsewhere it stays."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from mirrorlake.mirror.engine import Counts
from mirrorlake.model import types
from mirrorlake.model.arrow import arrow_type
from mirrorlake.model.keys import KeyRange
from mirrorlake.model.landed import BackfillChunk
from tests.conformance.apply.scenario import (
    ORDERS,
    Change,
    Lands,
    Scenario,
    delete,
    insert,
    lands,
    update,
    upsert,
)
from tests.histories import NAN, Shape
from tests.reference import UNCHANGED, Row


def bound(shape: Shape, *values: Any) -> pa.Table:
    """The first columns of a key, or all of them."""
    names = shape.key[: len(values)]
    kinds = [arrow_type(shape.schema[name].type) for name in names]
    columns = [pa.array([value], kind) for value, kind in zip(values, kinds, strict=True)]
    return pa.table(columns, names=list(names))


def chunk(
    shape: Shape,
    *changes: Change,
    low: Row | None = None,
    high: Row | None = None,
    closed: bool = False,
    limits: tuple[pa.Table | None, pa.Table | None] = (None, None),
    **expected: Any,
) -> Lands:
    """A file of a backfill lands. limits: `least` and `below` of its keys."""
    ends = [None if end is None else bound(shape, *end) for end in (low, high)]
    said = BackfillChunk("one", 1, KeyRange(*ends, closed, *limits))
    return lands(list(changes), backfill=said, **expected)


ROWS = [(n, f"name {n}", None) for n in range(1, 7)]
THERE = lands([insert(*row) for row in ROWS])

KINDS: list[tuple[types.DataType, list[Any]]] = [
    (types.STRING, ["B", "a", "ab", "\u00e4", "\uffff", "\U0001f600"]),
    (
        types.decimal(6, 2),
        [Decimal("-1.50"), Decimal("0.00"), Decimal("9.99"), *map(Decimal, "123")][:3],
    ),
    (types.DATE, [date(1969, 12, 31), date(1970, 1, 1), date(2030, 1, 1)]),
    (types.TIMESTAMP, [datetime(1970, 1, 1, microsecond=n, tzinfo=UTC) for n in (0, 1, 1500)]),
    (types.BINARY, [b"", b"\x00", b"\xff\x00"]),
    (types.BOOLEAN, [False, True]),
    (types.INTEGER, [-(2**31), 0, 2**31 - 1]),
]

LOST_OTHER_GONE = Scenario(
    "a chunk brings what is lost, corrects what is other, and removes what is gone",
    ["CF-144"],
    ORDERS,
    [
        THERE,
        lands([delete(3, None, None), update(4, "other", "x"), insert(0, "gone", None)]),
        chunk(
            ORDERS,
            upsert(*ROWS[1]),
            upsert(*ROWS[2]),
            upsert(*ROWS[3]),
            high=(4,),
            counts=Counts(insert=1, update=1, delete=2),
            feed={
                "insert": [ROWS[2]],
                "update_preimage": [(4, "other", "x")],
                "update_postimage": [ROWS[3]],
                "delete": [(0, "gone", None), ROWS[0]],
            },
        ),
    ],
    rows=ROWS[1:],
)

EQUAL = Scenario(
    "a chunk of equal rows changes nothing, and tells nothing",
    ["CF-144"],
    Shape.of(["id"], id=types.LONG, d=types.DOUBLE, t=types.TIMESTAMP, b=types.BINARY),
    [
        lands([insert(1, NAN, None, b""), insert(2, -0.0, datetime(2026, 1, 1, tzinfo=UTC), None)]),
        chunk(
            Shape.of(["id"], id=types.LONG),
            upsert(1, NAN, None, b""),
            upsert(2, -0.0, datetime(2026, 1, 1, tzinfo=UTC), None),
            counts=Counts(),
            feed={},
        ),
    ],
    rows=[(1, NAN, None, b""), (2, -0.0, datetime(2026, 1, 1, tzinfo=UTC), None)],
)

RANGES = [
    Scenario(
        f"a chunk {name} touches no other key",
        ["CF-144"],
        ORDERS,
        [THERE, chunk(ORDERS, feed={"delete": gone}, **bounds)],
        rows=[row for row in ROWS if row not in gone],
    )
    for name, bounds, gone in (
        ("without bounds", {}, ROWS),
        ("beyond a key", {"low": (4,)}, ROWS[4:]),
        ("from a key on", {"low": (4,), "closed": True}, ROWS[3:]),
        ("up to a key", {"high": (2,)}, ROWS[:2]),
        ("between two keys", {"low": (2,), "high": (4,)}, ROWS[2:4]),
        ("of no key", {"low": (4,), "high": (4,)}, []),
        ("of one key", {"low": (4,), "high": (4,), "closed": True}, ROWS[3:4]),
        ("of keys that are not there", {"low": (40,), "high": (60,)}, []),
    )
]

PAIRS = Shape.of(["a", "b"], a=types.LONG, b=types.STRING, v=types.LONG)
PAIR_ROWS = [(a, b, a) for a in (1, 2, 3) for b in ("x", "y")]
PAIR_RANGES = [
    Scenario(
        f"a chunk of pairs {name}",
        ["CF-144"],
        PAIRS,
        [
            lands([insert(*row) for row in PAIR_ROWS]),
            chunk(PAIRS, feed={"delete": gone}, **bounds),
        ],
        rows=[row for row in PAIR_ROWS if row not in gone],
    )
    for name, bounds, gone in (
        ("beyond one, up to another", {"low": (1, "x"), "high": (3, "x")}, PAIR_ROWS[1:5]),
        ("from a first column on", {"low": (2,), "closed": True, "high": (2,)}, PAIR_ROWS[2:4]),
        (
            "from a first column on to a pair",
            {"low": (2,), "closed": True, "high": (3, "x")},
            PAIR_ROWS[2:5],
        ),
    )
]

TYPED = [
    Scenario(
        f"a chunk of keys that are {kind}",
        ["CF-144"],
        (shape := Shape.of(["k"], k=kind, v=types.LONG)),
        [
            lands([insert(key, 1) for key in keys]),
            chunk(shape, low=(keys[0],), high=(keys[1],), feed={"delete": [(keys[1], 1)]}),
        ],
        rows=[(key, 1) for key in [keys[0], *keys[2:]]],
    )
    for kind, keys in KINDS
]

REPEATED = Scenario(
    "changes behind the rows of a chunk have the last word",
    ["CF-144"],
    ORDERS,
    [
        lands([insert(1, "now", "long"), insert(3, "now", None), insert(9, "stays", None)]),
        chunk(
            ORDERS,
            upsert(1, "then", "long"),
            upsert(2, "then", "moved"),
            update(1, "now", UNCHANGED),
            delete(2, None, None),
            insert(3, "now", UNCHANGED),
            delete(3, None, None),
            upsert(3, "now", None),
            high=(5,),
            counts=Counts(),
            feed={},
        ),
    ],
    rows=[(1, "now", "long"), (3, "now", None), (9, "stays", None)],
)

DOUBLED = Scenario(
    "a key that has several rows has one after a chunk",
    ["CF-144"],
    ORDERS,
    [
        lands([insert(1, "a", None), insert(1, "a", None), insert(2, "b", None)]),
        chunk(
            ORDERS,
            upsert(1, "a", None),
            upsert(2, "b", None),
            feed={
                "delete": [(1, "a", None), (1, "a", None)],
                "insert": [(1, "a", None)],
            },
        ),
    ],
    rows=[(1, "a", None), (2, "b", None)],
)

EMPTY = Scenario(
    "a chunk fills a table that is empty",
    ["CF-144"],
    ORDERS,
    [
        lands([]),
        chunk(ORDERS, upsert(*ROWS[0]), feed={"insert": ROWS[:1]}),
        chunk(ORDERS, upsert(*ROWS[0]), feed={}),
    ],
    rows=ROWS[:1],
)

DAYS = Shape.of(["id", "day"], id=types.LONG, day=types.DATE, v=types.STRING)
DAY = [date(2026, 1, n) for n in range(1, 5)]


def limited(
    name: str, least: date | None, below: date | None, *gone: int, **bounds: Any
) -> Scenario:
    """Of twelve rows, each fourth of the same day, two are read that are of the third day."""
    ends = [None if day is None else pa.table({"day": pa.array([day])}) for day in (least, below)]
    there = [(n, DAY[n % 4], "there") for n in range(12)]
    read = [(n, DAY[2], "read") for n in (2, 6)]
    return Scenario(
        f"a chunk of the keys {name}",
        ["CF-144"],
        DAYS,
        [
            lands([insert(*row) for row in there]),
            chunk(
                DAYS,
                *(upsert(*row) for row in read),
                limits=(ends[0], ends[1]),
                counts=Counts(update=2, delete=len(gone)),
                feed={
                    "update_preimage": [there[2], there[6]],
                    "update_postimage": read,
                    "delete": [there[n] for n in gone],
                },
                **bounds,
            ),
        ],
        rows=[*read, *(row for row in there if row[0] not in {2, 6, *gone})],
    )


BETWEEN = {"low": (0, DAY[3]), "high": (10, DAY[1])}
LIMITED = [
    limited("of a day", DAY[2], DAY[3], 10),
    limited("of a day or later", DAY[2], None, 3, 7, 10, 11),
    limited("before a day", None, DAY[3], 0, 1, 4, 5, 8, 9, 10),
    limited("of a day, between two keys", DAY[2], DAY[3], **BETWEEN),
    limited("of a day or later, between two keys", DAY[2], None, 3, 7, **BETWEEN),
]

BACKFILLS = [
    LOST_OTHER_GONE,
    EQUAL,
    *RANGES,
    *PAIR_RANGES,
    *LIMITED,
    *TYPED,
    REPEATED,
    DOUBLED,
    EMPTY,
]
