"""The order of events, which may arrive in any order: determines the last change of each key
(ST-180 to ST-234). Landed rows have an order already; `apply/fold.py` reduces them."""

from mirrorlake.mirror.event_order.duplicates import first_of_each
from mirrorlake.mirror.event_order.every_change import BatchRecords, every_change
from mirrorlake.mirror.event_order.records import (
    ORDER,
    UUID_PARTS,
    CheckedRecords,
    change_numbers,
    parts_of_uuids,
    records,
    records_of_rows,
)
from mirrorlake.mirror.event_order.resolution import Resolution, resolve
from mirrorlake.mirror.event_order.rollbacks import Completed, complete
from mirrorlake.mirror.event_order.rules import RULES, OrderRule
from mirrorlake.mirror.event_order.truncations import deletions, is_truncated, last_truncations

__all__ = [
    "ORDER",
    "RULES",
    "UUID_PARTS",
    "BatchRecords",
    "CheckedRecords",
    "Completed",
    "OrderRule",
    "Resolution",
    "change_numbers",
    "complete",
    "deletions",
    "every_change",
    "first_of_each",
    "is_truncated",
    "last_truncations",
    "parts_of_uuids",
    "records",
    "records_of_rows",
    "resolve",
]
