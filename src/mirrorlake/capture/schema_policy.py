"""Whether a table goes on after its columns have changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.errors import CannotBackfill, TableAltered, TableError
from mirrorlake.model.change import SchemaChangeKind
from mirrorlake.model.table import TableId
from mirrorlake.sources.chunk import SchemaChange, TableDiffers
from mirrorlake.sources.ordered import check_readable
from mirrorlake.sources.table import SourceTable

TYPES = frozenset({SchemaChangeKind.TYPE_WIDENED, SchemaChangeKind.TYPE_CHANGED})
"""What becomes of the types of columns."""

MARKED = frozenset({SchemaChangeKind.PARTITION_CHANGED, SchemaChangeKind.PUBLICATION_CHANGED})
"""Of which a table is not read again where they are ignored, and marked."""


def refusal(
    settings: CaptureSettings, change: SchemaChange, unsupported: str = ""
) -> TableAltered | None:
    """Why a table stops: the project says so, or the destination cannot represent the change.
    unsupported: why a destination cannot carry another key, empty when all can."""
    alteration, table = change.alteration, str(change.table.table)
    if alteration is None:
        return None
    for kind, what in alteration.changes:
        if kind in settings.stops_at:
            return _stop(kind, f"the table was altered in the source: {what}", table)
    if alteration.key is not None and unsupported:
        what = " and ".join(what for _kind, what in alteration.changes)
        return TableAltered(
            f"the table was altered in the source: {what}; {unsupported}",
            table=table,
            hint=f"Run `mirrorlake reset {table}` to reload it.",
        )
    is_retyped = any(kind in TYPES for kind, _what in alteration.changes)
    if settings.strict and (alteration.is_needed or is_retyped):
        what = " and ".join(what for _kind, what in alteration.changes)
        return TableAltered(
            f"the table was altered in the source: {what}; a strict landing zone cannot express it",
            table=table,
            hint=f"Run `mirrorlake reset {table}` to reload it, or set landing.strict to false.",
        )
    return None


def truncation_refusal(
    settings: CaptureSettings, table: str, *, is_markable: bool
) -> TableAltered | None:
    """Why a table stops that was truncated. is_markable: it can differ from its source."""
    kind, what = SchemaChangeKind.TABLE_TRUNCATED, "the table was truncated in the source"
    if kind in settings.stops_at:
        return _stop(kind, what, table)
    if kind not in settings.ignores or is_markable:
        return None
    return TableAltered(
        f"{what}, which cannot be ignored in a strict landing zone, or in event files",
        table=table,
        hint=f"Remove ignore for {kind} from mirror.schema_change, and run `mirrorlake reset "
        f"{table}` to reload it.",
    )


def renamed(
    settings: CaptureSettings, streamed: Collection[TableId], now: Iterable[SourceTable]
) -> Iterator[TableAltered]:
    """Why tables stop that have another name. now: the tables as they are in the source."""
    if SchemaChangeKind.TABLE_RENAMED not in settings.stops_at:
        return
    for table in now:
        if table.renamed and table.table in streamed:
            what = f"the table was renamed to {table.renamed} in the source"
            yield _stop(SchemaChangeKind.TABLE_RENAMED, what, str(table.table))


def refusal_to_read(
    settings: CaptureSettings, table: SourceTable, differs: TableDiffers
) -> TableError | None:
    """Why a table whose earlier rows differ stops, and is not read again by itself."""
    if stopping := sorted(differs.kinds & settings.stops_at):
        return _stop(stopping[0], differs.error.what, str(table.table))
    try:
        check_readable(table)
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
