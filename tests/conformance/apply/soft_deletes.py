"""Soft deletes: deleted rows stay and are marked, and the feed tells it as updates."""

from __future__ import annotations

from mirrorlake.mirror.engine import Counts
from mirrorlake.model import types
from mirrorlake.model.change import ROW_DELETED, ROW_POSITION
from tests.conformance.apply.backfills import chunk
from tests.conformance.apply.scenario import Scenario, delete, insert, lands, update
from tests.histories import NAN, Shape
from tests.reference import UNCHANGED, Row

LIVE, GONE = False, True
"""Whether a row is deleted. Landed files do not have the column."""

MARKED = Shape.of(
    ["id"],
    id=types.DOUBLE,
    name=types.STRING,
    **{ROW_POSITION: types.STRING, ROW_DELETED: types.BOOLEAN},
)
KEYLESS = Shape.of([], name=types.STRING, **{ROW_DELETED: types.BOOLEAN})

ONE: Row = (1.0, "a", "1:1", LIVE)
ZERO: Row = (-0.0, "b", "1:2", LIVE)
TWIN: Row = (NAN, "c", "1:3", LIVE)
TWINS = [TWIN, (NAN, None, "1:4", LIVE)]
THERE = lands([insert(*row) for row in (ONE, ZERO, *TWINS)])


def gone(row: Row, by: str | None) -> Row:
    """The row, marked by a deletion at this position."""
    return (*row[:2], by, GONE)


def deletion(row: Row, by: str) -> tuple[int, Row]:
    return delete(row[0], None, by, LIVE)


SOFT_DELETES = [
    Scenario(
        "a deleted row is marked, and a new one takes its place",
        [],
        MARKED,
        [
            THERE,
            lands(
                [deletion(ONE, "2:1"), deletion((0.0,), "2:2")],
                counts=Counts(update=1),
                feed={"update_preimage": [ONE], "update_postimage": [gone(ONE, "2:1")]},
            ),
            lands([deletion(ONE, "3:1")], counts=Counts(), feed={}),
            lands(
                [deletion(ZERO, "4:1")],
                [insert(1.0, "again", "4:2", LIVE), deletion(ONE, "4:3")],
                [insert(1.0, "and again", "4:4", LIVE)],
                [insert(5.0, "at once", "4:5", LIVE), deletion((5.0,), "4:6")],
                counts=Counts(insert=1, update=2),
            ),
        ],
        rows=[
            (1.0, "and again", "4:4", LIVE),
            gone(ZERO, "4:1"),
            (5.0, "at once", "4:6", GONE),
            *TWINS,
        ],
        soft=True,
    ),
    Scenario(
        "all rows of a key are marked, and one takes the place of them",
        [],
        MARKED,
        [
            THERE,
            lands([deletion(TWIN, "2:1")], counts=Counts(insert=2, delete=2, duplicates=1)),
            lands([insert(NAN, "new", "3:1", LIVE), deletion(ONE, "3:2")]),
        ],
        rows=[(NAN, "new", "3:1", LIVE), gone(ONE, "3:2"), ZERO],
        soft=True,
    ),
    Scenario(
        "a changed key leaves the row of the old one behind",
        [],
        MARKED,
        [
            THERE,
            lands(
                [deletion(ONE, "2:1"), insert(7.0, UNCHANGED, "2:1", LIVE)],
                [update(7.0, UNCHANGED, "2:2", LIVE), deletion((7.0,), "2:3")],
            ),
        ],
        rows=[gone(ONE, "2:1"), (7.0, "a", "2:3", GONE), ZERO, *TWINS],
        soft=True,
    ),
    Scenario(
        "a truncation marks all rows that are not",
        [],
        MARKED,
        [
            THERE,
            lands([deletion(ONE, "2:1")]),
            lands(truncated=True, positions=("3:1", "3:1"), counts=Counts(update=3)),
            lands(truncated=True, positions=("4:1", "4:1"), counts=Counts(), feed={}),
            lands([insert(1.0, "new", "5:1", LIVE)], counts=Counts(update=1)),
        ],
        rows=[(1.0, "new", "5:1", LIVE), *(gone(row, "3:1") for row in (ZERO, *TWINS))],
        soft=True,
    ),
    Scenario(
        "a truncation marks the rows of a table without a key",
        [],
        KEYLESS,
        [
            lands([insert("a", LIVE), insert("a", LIVE)]),
            lands(truncated=True, counts=Counts(update=2)),
            lands([insert("a", LIVE)], counts=Counts(insert=1)),
        ],
        rows=[("a", GONE), ("a", GONE), ("a", LIVE)],
        soft=True,
    ),
    Scenario(
        "a chunk marks what is gone, brings back what is there, and leaves what is right",
        ["CF-144"],
        MARKED,
        [
            lands([insert(*row) for row in (ONE, ZERO)]),
            lands([insert(3.0, "c", "2:1", LIVE), insert(4.0, "d", "2:2", LIVE)]),
            lands([deletion(ONE, "3:1"), deletion(ZERO, "3:2")]),
            chunk(
                MARKED,
                insert(1.0, "back", None, LIVE),
                insert(3.0, "c", None, LIVE),
                counts=Counts(update=2),
                soft=True,
            ),
        ],
        rows=[
            (1.0, "back", None, LIVE),
            gone(ZERO, "3:2"),
            (3.0, "c", "2:1", LIVE),
            (4.0, "d", None, GONE),
        ],
        soft=True,
    ),
]
