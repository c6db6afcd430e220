"""Tables of events, in processes that end at a point."""

from __future__ import annotations

from mirrorlake.model.table import TableId

ORDERS = TableId("shop", "orders")


class Killed(Exception):
    """A process that ends at a point."""
