"""Stands in for Delta's commands where compactions are only planned."""

from __future__ import annotations

from mirrorlake.delta.schema import TableSchema
from mirrorlake.mirror.compaction.optimize import Join, Purge
from mirrorlake.mirror.engine import Outcome


class NoOptimizer:
    """An `Optimizer` that runs nothing."""

    def run(
        self, table: str, location: str, schema: TableSchema, command: Join | Purge
    ) -> Outcome | None:
        del table, location, schema, command
        return None
