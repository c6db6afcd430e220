"""Whether a table goes on after its columns have changed."""

from __future__ import annotations

from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.errors import CannotBackfill, TableAltered, TableError
from mirrorlake.model.change import SchemaChangeKind
from mirrorlake.sources.chunk import SchemaChange, TableDiffers
from mirrorlake.sources.ordered import check_ordered
from mirrorlake.sources.table import SourceTable


def refusal(settings: CaptureSettings, change: SchemaChange) -> TableAltered | None:
    """Why a table stops: the project wants it to, or the zone cannot tell what happened."""
    alteration, table = change.alteration, str(change.table.table)
    if alteration is None:
        return None
    for kind, what in alteration.changes:
        if kind in settings.stops_at:
            return _stop(kind, f"the table was altered in the source: {what}", table)
    if settings.strict and alteration.columns:
        what = " and ".join(what for _kind, what in alteration.changes)
        return TableAltered(
            f"the table was altered in the source: {what}, which a strict landing zone cannot tell",
            table=table,
            hint=f"Run `mirrorlake reset {table}` to reload it, or set landing.strict to false.",
        )
    return None


def refusal_to_read(
    settings: CaptureSettings, table: SourceTable, differs: TableDiffers
) -> TableError | None:
    """Why a table whose earlier rows differ stops, and is not read again by itself."""
    if differs.kind in settings.stops_at:
        return _stop(differs.kind, differs.error.what, str(table.table))
    try:
        check_ordered(table)
    except CannotBackfill:
        return differs.error
    return None


def _stop(kind: SchemaChangeKind, what: str, table: str) -> TableAltered:
    return TableAltered(
        what,
        table=table,
        hint=f"mirror.schema_change says stop for {kind}. Run `mirrorlake reset {table}` to reload "
        "it as it is now.",
    )
