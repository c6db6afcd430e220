"""A table of three files, and a batch that touches all of them and has keys in all of its parts."""

from __future__ import annotations

from collections import Counter

from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.model import types
from mirrorlake.model.change import Marker
from tests.conformance.mirrored import Mirrored
from tests.histories import Shape

INSERT, UPDATE, DELETE = Marker.INSERT, Marker.UPDATE, Marker.DELETE
ORDERS = Shape.of(["id"], id=types.LONG, name=types.STRING, note=types.STRING)

BATCH = [
    *[(UPDATE, (n, "new", None)) for n in range(0, 300, 3)],
    *[(DELETE, (n, None, None)) for n in range(1, 300, 30)],
    *[(INSERT, (1000 + n, "more", None)) for n in range(50)],
]
LEFT = {"new": 100, "old": 190, "more": 50}
"""How many rows have which name after it."""
FEED = {"update_preimage": 100, "update_postimage": 100, "delete": 10, "insert": 50}


def filled(orders: Mirrored) -> Mirrored:
    """With its three files."""
    for first in (0, 100, 200):
        orders.apply([(INSERT, (first + n, "old", "x")) for n in range(100)])
    return orders


def holds_batch(orders: Mirrored) -> None:
    """Rows and feed are those after the batch, which is the fourth commit, and each file was
    touched once, with one vector."""
    assert Counter(name for _id, name, _note in orders.rows()) == LEFT
    assert Counter(kind for kind, _row in orders.feed(4).elements()) == FEED
    actions = TableLog(orders.store.location(orders.path)).actions(4)
    for kind in ("add", "remove"):
        paths = [action[kind]["path"] for action in actions if kind in action]
        assert len(paths) == len(set(paths)) >= 3
