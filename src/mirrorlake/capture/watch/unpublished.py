"""Tables that the source has ceased to stream while they are captured.

Where the source lets us, they are added to the stream again, and read again, because their changes
in between are missing. In this order, so that nothing is streamed on without being read again:

    backfill requested → added to the stream → snapshot taken

Where another holds a lock on the table, adding it waits for the next look, and reading it for that.
Where others have to add it, reading it waits until they have.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from mirrorlake.capture import schema_policy
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.capture.watch import findings
from mirrorlake.errors import TableAltered, TableError
from mirrorlake.model.change import SchemaChangeKind
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import CheckResult, CheckSeverity, Inclusion, ManagedObjects
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
) -> dict[TableId, Inclusion]:
    """Add these tables to the stream again, as far as the source lets us. require: has a table read
    again."""
    found = {}
    for table, finding in tables:
        require(table.table, _error(finding))
        found[table.table] = objects.include_again(table) if objects else Inclusion.REFUSED
        if found[table.table] is Inclusion.ADDED:
            what = f"{finding.message}; it is added again"
            findings.told(replace(finding, message=what, remedy="The table is read again."))
    return found


def waiting(found: Iterable[CheckResult], held: Collection[TableId]) -> Iterator[CheckResult]:
    """The findings, of which those of tables that wait to be added again stop none."""
    for finding in found:
        if finding.kind is _KIND and finding.table in held:
            what = f"{finding.message} until it is added again"
            remedy = "The table is added and read again when nobody vacuums or alters it."
            if finding.addition:
                remedy = awaited(finding)
            else:
                what = f"{what}, for which another holds a lock"
            yield replace(finding, severity=CheckSeverity.WARNING, message=what, remedy=remedy)
        else:
            yield finding


def awaited(finding: CheckResult) -> str:
    """What to do about a table that others have to add again."""
    return f"{finding.addition} The table is then read again by itself."


def without_repair(found: Iterable[CheckResult]) -> Iterator[CheckResult]:
    """The findings where the destination cannot be compared with the source."""
    for finding in found:
        if finding.kind is _KIND and finding.table is not None:
            remedy = f"Capture stops it. Run `mirrorlake reset {finding.table}` to load it again."
            yield replace(finding, remedy=remedy)
        else:
            yield finding


def _error(finding: CheckResult) -> TableAltered:
    return TableAltered(finding.message, table=str(finding.table), hint=finding.remedy)
