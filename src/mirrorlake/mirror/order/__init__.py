"""The order of events that come in none: which change of a key is its last (ST-180 to ST-234)."""

from mirrorlake.mirror.order.records import ORDER, CheckedRecords, change_numbers, records
from mirrorlake.mirror.order.resolution import Resolution, resolve
from mirrorlake.mirror.order.rollbacks import Completed, complete
from mirrorlake.mirror.order.rules import RULES, OrderRule
from mirrorlake.mirror.order.twins import first_of_each

__all__ = [
    "ORDER",
    "RULES",
    "CheckedRecords",
    "Completed",
    "OrderRule",
    "Resolution",
    "change_numbers",
    "complete",
    "first_of_each",
    "records",
    "resolve",
]
