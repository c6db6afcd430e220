"""Whether a table goes on after its columns have changed."""

from __future__ import annotations

from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.errors import TableAltered
from mirrorlake.sources.chunk import SchemaChange


def refusal(settings: CaptureSettings, change: SchemaChange) -> TableAltered | None:
    """Why a table stops: the project wants it to, or the zone cannot tell what happened."""
    alteration, table = change.alteration, str(change.table.table)
    if alteration is None:
        return None
    for kind, what in alteration.changes:
        if kind in settings.stops_at:
            return TableAltered(
                f"the table was altered in the source: {what}",
                table=table,
                hint=f"mirror.schema_change says stop for {kind}. Run `mirrorlake reset {table}` "
                "to reload it with its columns as they are now.",
            )
    if settings.strict and alteration.columns:
        what = " and ".join(what for _kind, what in alteration.changes)
        return TableAltered(
            f"the table was altered in the source: {what}, which a strict landing zone cannot tell",
            table=table,
            hint=f"Run `mirrorlake reset {table}` to reload it, or set landing.strict to false.",
        )
    return None
