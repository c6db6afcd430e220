"""The log of values that were replaced because no type can hold them."""

from __future__ import annotations

from collections import Counter

import structlog

from mirrorlake.model.table import TableId

log = structlog.get_logger()

VALUES_REPLACED = "values_replaced"


class ReplacedValues:
    """Counts the replaced values of each column."""

    def __init__(self) -> None:
        self._count: Counter[tuple[str, str]] = Counter()

    def note(self, table: TableId | str, column: str, count: int) -> None:
        """Log once per column that values were replaced, and again at every tenfold number."""
        before = self._count[str(table), column]
        self._count[str(table), column] = now = before + count
        if before == 0 or len(str(before)) != len(str(now)):
            log.warning(VALUES_REPLACED, table=str(table), column=column, values=now)
