"""Which tables can be read in the order of their keys."""

from __future__ import annotations

from mirrorlake.errors import CannotBackfill
from mirrorlake.model.arrow import arrow_type
from mirrorlake.model.keys import is_ordered
from mirrorlake.sources.table import SourceTable


def check_ordered(table: SourceTable) -> None:
    """Raises CannotBackfill."""
    reset = f"`mirrorlake reset {table.table}` loads it anew."
    if table.append_only or not table.key:
        raise CannotBackfill(
            "the table has no key that tells its rows apart", table=str(table.table), hint=reset
        )
    for name in table.key:
        if not is_ordered(arrow_type(table.schema[name].type)):
            raise CannotBackfill(
                f"key column {name} is a floating point number",
                table=str(table.table),
                column=name,
                hint=reset,
            )
