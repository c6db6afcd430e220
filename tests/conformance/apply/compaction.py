"""Compaction: other files, the same table. Two small files are many here."""

from __future__ import annotations

from mirrorlake.model import types
from tests.conformance.apply.scenario import (
    ORDERS,
    Compacts,
    Scenario,
    delete,
    insert,
    lands,
    update,
)
from tests.histories import Shape

COMPACTION = [
    # Of every scenario: rows, feed and progress are what they would be without.
    Scenario(
        "rows and feed and progress stay",
        ["CF-095", "CF-156"],
        ORDERS,
        [
            lands([insert(1, "a", "x"), insert(2, "b", "y")]),
            lands([update(1, "a", "new"), insert(3, None, None)]),
            Compacts(),
        ],
        rows=[(1, "a", "new"), (2, "b", "y"), (3, None, None)],
        version=3,
    ),
    Scenario(
        "changes go on after a compaction",
        [],
        ORDERS,
        [
            lands([insert(1, "a", "x"), insert(2, "b", "y")]),
            lands([delete(1, None, None)]),
            lands([insert(3, "c", "z")]),
            Compacts(),
            lands([update(2, "b", "new"), delete(3, None, None)]),
        ],
        rows=[(2, "b", "new")],
    ),
    Scenario(
        "a table with nothing to do is left alone",
        [],
        ORDERS,
        [lands([insert(1, "a", "x")]), Compacts(outcome=None)],
        rows=[(1, "a", "x")],
        version=1,
    ),
    Scenario(
        "a table without a key is compacted too",
        [],
        Shape.of([], line=types.STRING),
        [*(lands([insert(line)]) for line in ("b", "a", "a")), Compacts()],
        rows=[("a",), ("a",), ("b",)],
    ),
]
