"""Tables that the source has ceased to stream while they are captured.

Where the source lets us, they are added to the stream again, and read again, because their changes
in between are missing. In this order, so that nothing is streamed on without being read again:

    backfill requested → added to the stream
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from mirrorlake.capture import schema_policy
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.capture.watch import findings
from mirrorlake.errors import TableAltered, TableError
from mirrorlake.model.change import SchemaChangeKind
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import CheckResult, CheckSeverity, ManagedObjects
from mirrorlake.sources.chunk import TableDiffers
from mirrorlake.sources.table import SourceTable

_KIND = SchemaChangeKind.PUBLICATION_CHANGED


def find(
    found: Iterable[CheckResult],
    streamed: Sequence[SourceTable],
    now: Sequence[SourceTable],
    settings: CaptureSettings,
) -> Iterator[tuple[SourceTable, CheckResult]]:
    """Those of the streamed tables that can be added and read again. now: the tables as they are
    in the source."""
    identities = {table.table: table.identity for table in streamed}
    tables = {
        table.table: table
        for table in now
        if table.refused is None and identities.get(table.table) == table.identity
    }
    for finding in found:
        is_error = finding.severity is CheckSeverity.ERROR
        if is_error and finding.kind is _KIND and finding.table in tables:
            table = tables[finding.table]
            differs = TableDiffers(table.table, frozenset({_KIND}), _error(finding))
            if schema_policy.refusal_to_read(settings, table, differs) is None:
                yield table, finding


def include(
    objects: ManagedObjects | None,
    tables: Iterable[tuple[SourceTable, CheckResult]],
    require: Callable[[TableId, TableError], None],
) -> bool:
    """Add these tables to the stream again, as far as the source lets us. Returns whether it has
    changed. require: has a table read again."""
    is_changed = False
    for table, finding in tables:
        require(table.table, _error(finding))
        if objects is not None and objects.include_again(table):
            is_changed = True
            what = f"{finding.message}; it is added again"
            findings.told(replace(finding, message=what, remedy="The table is read again."))
    return is_changed


def _error(finding: CheckResult) -> TableAltered:
    return TableAltered(finding.message, table=str(finding.table), hint=finding.remedy)
