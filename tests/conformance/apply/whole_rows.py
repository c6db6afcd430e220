"""Tables of which all columns are the key: a deletion is of one of the rows that are equal."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pyarrow as pa

from mirrorlake.errors import BadFile, KeyedChangeWithoutKey, RowNotFound
from mirrorlake.mirror.engine import Counts
from mirrorlake.model import types
from mirrorlake.model.arrow import arrow_schema
from mirrorlake.model.keys import KeyRange
from mirrorlake.model.landed import BackfillChunk
from mirrorlake.model.row_hashes import HashRange
from tests.conformance.apply.scenario import (
    Change,
    Lands,
    Played,
    Refused,
    Scenario,
    adds,
    delete,
    insert,
    lands,
    update,
)
from tests.histories import NAN, Shape, counted
from tests.reference import Row, plain

PLAIN = Shape.of([], a=types.LONG, b=types.STRING, x=types.DOUBLE, w=types.BINARY)

ONE: Row = (1, "a", NAN, b"\0")
NOTHING: Row = (None, None, None, None)
ZERO: Row = (2, "", 0.0, b"")
MINUS: Row = (2, "", -0.0, b"")


def whole(*files: list[Change], **expected: Any) -> Lands:
    return lands(*files, whole_rows=True, **expected)


def plays(played: Played) -> None:
    """The feed leads to the rows, whatever of equal rows it tells as deleted and inserted again."""
    found: Counter[Row] = Counter()
    for changes in played.feed.values():
        for (kind, row), count in changes.items():
            found[row] += count if kind in {"insert", "update_postimage"} else -count
    assert {row: n for row, n in found.items() if n} == Counter(map(plain, played.rows))
    assert counted(played.rows) == counted(played.scenario.rows)


THERE = whole([insert(*ONE)] * 3 + [insert(*NOTHING)] * 2 + [insert(*ZERO), insert(*MINUS)])

SOME = Scenario(
    "of equal rows as many go as were deleted",
    [],
    PLAIN,
    [
        THERE,
        whole([delete(*ONE), delete(*NOTHING)], [delete(*ONE)]),
        whole([delete(*MINUS)]),
    ],
    rows=[ONE, NOTHING, ZERO],
    then=plays,
)
ALL = Scenario(
    "all of equal rows go when all were deleted",
    [],
    PLAIN,
    [
        THERE,
        whole(
            [delete(*ONE)] * 3,
            counts=Counts(delete=3),
            feed={"delete": [ONE] * 3},
        ),
    ],
    rows=[NOTHING, NOTHING, ZERO, MINUS],
    then=plays,
)
EVERY = HashRange(tuple(PLAIN.schema.names), tuple(str(one.type) for one in PLAIN.schema))
KINDS = arrow_schema(PLAIN.schema)


def part(of: Row, *rows: Row, **expected: Any) -> Lands:
    """A chunk of a backfill: the rows with the hash of one."""
    table = pa.Table.from_pylist([dict(zip(KINDS.names, of, strict=True))], KINDS)
    (number,) = EVERY.of(table).tolist()
    keys = KeyRange(hashes=replace(EVERY, first=number, end=number + 1))
    said = BackfillChunk("one", 1, keys)
    return whole([insert(*row) for row in rows], backfill=said, **expected)


WHOLE_ROWS = [
    SOME,
    ALL,
    Scenario(
        "rows that come and go in a batch leave no trace",
        [],
        PLAIN,
        [
            THERE,
            whole(
                [insert(*ONE), delete(*ONE), delete(*ZERO), insert(*ZERO)],
                [insert(3, "b", 1.0, None), delete(*ONE), insert(*ONE)],
                counts=Counts(insert=1),
                feed={"insert": [(3, "b", 1.0, None)]},
            ),
        ],
        rows=[ONE, ONE, ONE, NOTHING, NOTHING, ZERO, MINUS, (3, "b", 1.0, None)],
        then=plays,
    ),
    Scenario(
        "an emptied table has the rows that came after",
        [],
        PLAIN,
        [
            THERE,
            whole([insert(*ONE), insert(*ONE), delete(*ONE)], truncated=True),
            whole([delete(*ONE), insert(*ZERO)]),
        ],
        rows=[ZERO],
        then=plays,
    ),
    Scenario(
        "rows from before a column was added have no value in it",
        [],
        PLAIN,
        [
            THERE,
            whole([delete(*ONE)]),
            adds(c=types.LONG),
            whole([delete(*ONE, None), insert(*ONE, 7), insert(*ONE, 7)]),
            whole([delete(*ONE, 7)]),
        ],
        rows=[(*row, None) for row in (ONE, NOTHING, NOTHING, ZERO, MINUS)] + [(*ONE, 7)],
        then=plays,
    ),
    Scenario(
        "a chunk has the rows of some hashes, and touches no others",
        [],
        PLAIN,
        [
            THERE,
            part(ONE, ONE, ONE, counts=Counts(delete=1), feed={"delete": [ONE]}),
            part(NOTHING, *[NOTHING] * 3, counts=Counts(insert=1), feed={"insert": [NOTHING]}),
            part(MINUS, MINUS, MINUS, counts=Counts(insert=1, delete=1)),
            part((7, "not there", None, None), counts=Counts(), feed={}),
        ],
        rows=[ONE, ONE, NOTHING, NOTHING, NOTHING, MINUS, MINUS],
        then=plays,
    ),
    Scenario(
        "a chunk with a row of another hash is refused",
        [],
        PLAIN,
        [THERE, part(ONE, ONE, NOTHING, outcome=Refused(BadFile))],
        rows=[ONE, ONE, ONE, NOTHING, NOTHING, ZERO, MINUS],
    ),
    Scenario(
        "a deletion of a row that is not there stops the table",
        [],
        PLAIN,
        [
            THERE,
            whole([insert(4, "c", 0.5, None), *[delete(*ONE)] * 4], outcome=Refused(RowNotFound)),
            whole([delete(1, "a", NAN, None)], outcome=Refused(RowNotFound)),
        ],
        rows=[ONE, ONE, ONE, NOTHING, NOTHING, ZERO, MINUS],
    ),
    Scenario(
        "so does one from before the table was emptied",
        [],
        PLAIN,
        [THERE, whole([delete(*ONE)], truncated=True, outcome=Refused(RowNotFound))],
        rows=[ONE, ONE, ONE, NOTHING, NOTHING, ZERO, MINUS],
    ),
    Scenario(
        "a change of a row is a deletion and an insert",
        [],
        PLAIN,
        [
            THERE,
            whole([delete(*ONE), update(*ZERO)], outcome=Refused(KeyedChangeWithoutKey, row=2)),
        ],
        rows=[ONE, ONE, ONE, NOTHING, NOTHING, ZERO, MINUS],
    ),
]
