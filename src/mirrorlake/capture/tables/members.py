"""Which tables a stream carries: those that are selected and can be captured.

Every other one is stopped, alone, with its reason in `stopped.json`. Invariant: a table that was
landed and then not streamed for a while is never streamed on, because what happened to it
meanwhile was acknowledged without it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import structlog

from mirrorlake.capture.backfill.jobs import BackfillRecords
from mirrorlake.capture.records.admission import Admission
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.sink import Sink
from mirrorlake.capture.watch import unpublished
from mirrorlake.errors import (
    LOADED_LATER,
    AlteredWhileLoaded,
    NotLogged,
    NotSelected,
    PrerequisiteMissing,
    PublishedOtherwise,
    SelectionChanged,
    TableAltered,
    TableError,
    UnsupportedColumn,
    UnsupportedTable,
)
from mirrorlake.model.change import SchemaChangeKind
from mirrorlake.model.clock import Clock
from mirrorlake.model.landed import format_time
from mirrorlake.model.table import TableId, is_printed
from mirrorlake.sources.base import CheckResult, CheckSeverity, Source
from mirrorlake.sources.table import SourceTable

log = structlog.get_logger()

TABLE_STOPPED = "table_stopped"
TABLE_LEFT_OUT = "table_left_out"

ADMIT = "Run `mirrorlake reset {}` to mirror it."
LEFT_OUT = "it was created or selected later, and mirror.schema_change ignores it"

ADDED_AGAIN = "Capture adds the table again and reads it again."

SELECTION = "selection"
"""Of a table that stopped because of it: which columns and rows were selected then."""


def decide(
    selected: Sequence[SourceTable], records: Records, sinks: Sequence[Sink]
) -> list[SourceTable]:
    """Record which tables are stopped, and for which the reason is gone. Returns those of the
    selected tables that can be captured, some of which are stopped."""
    _rename_stopped([table.table for table in selected], records)
    for table in selected:
        _stop_or_free(table, records, sinks)
    _leave_out({table.table for table in selected}, records, sinks)
    known = records.known()
    return [
        replace(table, known=known.get(str(table.table), table.known))
        for table in selected
        if table.refused is None
    ]


def admit(
    selected: Sequence[SourceTable],
    records: Records,
    sinks: Sequence[Sink],
    kinds: Collection[SchemaChangeKind],
    clock: Clock,
) -> list[SourceTable]:
    """Record which tables take part, and return them: where the project ignores tables that are
    created, those that were there when that was first seen, or that a sink holds. kinds: the
    changes that it ignores.

    It is recorded before the first of them is captured, so that a crash lets no table in.
    """
    if SchemaChangeKind.TABLE_CREATED not in kinds:
        return list(selected)
    found = records.admission()
    first = [] if found else selected
    inside = [
        table
        for table in selected
        if (found and str(table.table) in found.tables) or _is_held(table.table, sinks)
    ]
    names = {str(table.table) for table in (*first, *inside)}
    known = found or Admission(frozenset(), {})
    others = sorted({str(table.table) for table in selected} - names)
    now = format_time(clock.now())
    left_out = {name: known.left_out.get(name, now) for name in others}
    admission = Admission(known.tables | names, left_out)
    for name in sorted(left_out.keys() - known.left_out.keys()):
        log.warning(TABLE_LEFT_OUT, table=name, hint=ADMIT.format(name))
    if admission != found:
        records.write_admission(admission)
    return [table for table in selected if str(table.table) in names]


def _rename_stopped(tables: Sequence[TableId], records: Records) -> None:
    """Note tables that an earlier release stopped before anything of them was there, and of which
    it recorded a name without quotes, by their names."""
    for former, facts in records.stopped().items():
        meant = [] if is_printed(former) else [one for one in tables if one.plain == former]
        for table in meant:
            records.stop(str(table), facts)
        if meant:
            records.go_on(former)


def stop(records: Records, error: TableError, **facts: Any) -> None:
    """A table is no longer captured, until a person resets it. facts: recorded with it."""
    if isinstance(error, SelectionChanged) and error.selection is not None:
        facts[SELECTION] = error.selection
    records.stop(error.table, error.facts() | facts)
    log.error(TABLE_STOPPED, table=error.table, code=error.code, hint=error.hint)


def selected_otherwise(
    streamed: Sequence[SourceTable], now: Sequence[SourceTable]
) -> Iterator[SelectionChanged]:
    """Why streamed tables cannot go on that have another name now, of which the project selects
    other columns or rows. now: the tables as they are in the source."""
    selected = {table.table: table.selection for table in streamed}
    for table in now:
        if table.renamed and selected.get(table.table, table.selection) != table.selection:
            yield SelectionChanged.of(
                f"the table was renamed to {table.renamed} in the source, of which source.rows or "
                "source.columns select other rows or columns than those that were loaded",
                table.selection,
                table=str(table.table),
                hint="Select the same in the project file, and restart capture: the table is read "
                "again then.",
            )


def selected_again(
    discovered: Sequence[SourceTable], records: Records, sinks: Sequence[Sink]
) -> list[SourceTable]:
    """The tables that stopped because of what was selected of them, and of which something else is
    selected now. Whether that is what was loaded, the sinks say."""
    stopped = records.stopped()
    return [
        table
        for table in discovered
        if table.refused is None
        and stopped.get(str(table.table), {}).get(SELECTION, table.selection) != table.selection
        and all(sink.identities().get(table.table) == table.identity for sink in sinks)
    ]


def renamed(
    tables: Iterable[SourceTable],
    missing: Sequence[Collection[TableId]],
    records: Records,
    sinks: Sequence[Sink],
) -> Iterator[TableAltered]:
    """Why tables that another sink has cannot be loaded: the stream still brings new names of their
    columns, with which the rows are loaded already. Sinks of events alone know no former names.
    missing: the tables that are to be loaded, of each sink."""
    new = set.intersection(*map(set, missing))
    followed = [names for sink, names in zip(sinks, missing, strict=True) if sink.is_corrected]
    joining = set().union(*followed) - new
    known = records.known()
    for table in tables:
        if table.table not in joining:
            continue
        now = table.known.get("columns", {})
        former = known.get(str(table.table), {}).get("columns", {})
        if any(now.get(number, name) != name for number, name in former.items()):
            yield TableAltered(
                "columns were renamed after the last change that was captured and before a "
                "destination was added",
                table=str(table.table),
                hint=f"Run `mirrorlake reset {table.table}` to load it into all destinations.",
            )


def check_unaltered(before: Sequence[SourceTable], after: Sequence[SourceTable]) -> None:
    """Check that tables are the same before and after a snapshot was taken: of one that is not,
    nobody knows whether the snapshot has it as it was or as it is. Raises AlteredWhileLoaded."""
    now = {table.table: table for table in after}
    for table in before:
        found = now.get(table.table, table)
        if found.identity == table.identity and _described(found) != _described(table):
            raise AlteredWhileLoaded(
                "the table was altered while a snapshot was taken",
                where=str(table.table),
                hint=LOADED_LATER,
            )


def _described(table: SourceTable) -> tuple[Any, ...]:
    return table.schema, dict(table.source_types), table.key, table.whole_rows, table.append_only


def try_again(records: Records, sinks: Sequence[Sink]) -> None:
    """Forget why tables could not begin, before a start: the reason may be gone."""
    stopped = records.stopped().items()
    refused = [name for name, error in stopped if error.get("code") == UnsupportedTable.code]
    landed = {str(table): table for sink in sinks for table in sink.tables()} if refused else {}
    for name in refused:
        if name not in landed or not _is_held(landed[name], sinks):
            records.forget(name)  # nothing of it is lost: it never began


def forget_all(records: Records, sinks: Sequence[Sink]) -> None:
    """Forget all tables of a stream that has no place in the log yet: what there is of them is left
    of one whose reset was interrupted. May be called again."""
    for sink in sinks:
        sink.clear()
    BackfillRecords(records).drop_all()
    records.forget_all()


def expecting_new(
    findings: Sequence[CheckResult],
    records: Records,
    landed: Collection[str],
    again: Collection[TableId],
    *,
    is_running: bool,
    admits_new: bool = True,
) -> list[CheckResult]:
    """The findings, without errors on tables that are not published because they are new: capture
    adds them to the publication and loads them, soon if it runs and else when it starts. Of tables
    that it adds `again` there is nothing to repair yet. landed: tables that were loaded;
    admits_new: whether tables join that are created later."""
    record = records.stream()
    if record is None or not record.is_established:
        return list(findings)
    stopped = records.stopped()
    known = {*landed, *stopped}
    if not admits_new and (admission := records.admission()) is not None:
        findings = _without_later(findings, known | admission.tables)
    refused = {finding.table for finding in findings if finding.check == "owner"}
    message = "the table is new and will be loaded " + (
        "by the running mirror, within a minute" if is_running else "at the next run"
    )
    found: list[CheckResult] = []
    for finding in findings:
        is_new = finding.table is not None and str(finding.table) not in known
        if finding.table in again and finding.kind is not None and not is_new:
            remedy = unpublished.awaited(finding) if finding.addition else ADDED_AGAIN
            found.append(replace(finding, remedy=remedy))
        elif finding.check != "publication" or not is_new:
            found.append(finding)
        elif finding.table not in refused:
            found.append(replace(finding, severity=CheckSeverity.OK, message=message, remedy=""))
    return found


def _without_later(findings: Sequence[CheckResult], admitted: Collection[str]) -> list[CheckResult]:
    """The findings, with one alone on each table that is left out."""
    found = list[CheckResult]()
    for finding in findings:
        if finding.table is None or str(finding.table) in admitted:
            found.append(finding)
        elif all(one.table != finding.table for one in found):
            found.append(CheckResult("left out", CheckSeverity.OK, LEFT_OUT, "", finding.table))
    return found


def _stop_or_free(table: SourceTable, records: Records, sinks: Sequence[Sink]) -> None:
    """Stop a selected table that cannot be captured, or was not for a while; forget why one is
    stopped that can begin now."""
    name = str(table.table)
    code = records.stopped().get(name, {}).get("code")
    if table.refused is not None:
        if code is None:
            stop(records, table.refused)
    elif code == NotSelected.code or (code == NotLogged.code and _is_held(table.table, sinks)):
        stop(
            records,
            SelectionChanged(
                "the table was not captured for some time, and its changes during that time are "
                "missing",
                table=name,
                hint=f"Run `mirrorlake repair {name}` to compare it with the source.",
            ),
        )
    elif code in _ABOUT_TABLE and not _is_held(table.table, sinks):
        records.forget(name)  # nothing of it is lost: it never began


_ABOUT_TABLE = {UnsupportedColumn.code, NotLogged.code, PublishedOtherwise.code}
"""Why a table was not captured that can be: it has changed since."""


def _leave_out(selected: set[TableId], records: Records, sinks: Sequence[Sink]) -> None:
    """Take note of tables that were landed and are not selected, or not there, any more."""
    stopped = records.stopped()
    for table in sorted({table for sink in sinks for table in sink.tables()} - selected):
        name = str(table)
        if name in stopped or not _is_held(table, sinks):
            continue
        stop(
            records,
            NotSelected(
                "the table is no longer selected or no longer exists in the source; its changes "
                "are not captured",
                table=name,
                hint=f"To mirror it again, select it and run `mirrorlake repair {name}`.",
            ),
        )


def _is_held(table: TableId, sinks: Sequence[Sink]) -> bool:
    return any(sink.holds(table) for sink in sinks)


def include(source: Source, tables: Sequence[SourceTable], records: Records) -> bool:
    """Let the stream carry more tables: at once, or those that the source lets it carry. The
    others stop. Returns whether any of them is carried."""
    if source.objects is None:
        return True
    try:
        source.objects.include(tables)
    except PrerequisiteMissing as error:
        if len(tables) > 1:
            return bool([table for table in tables if include(source, [table], records)])
        (table,) = tables
        hint = f"{error.hint} The next run then loads the table."
        stop(records, UnsupportedTable(error.what, table=str(table.table), hint=hint))
        return False
    return True
