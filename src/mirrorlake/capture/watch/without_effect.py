"""Changes of a table's schema in the source that change no row: they are only told. Found beside
them is what gives values of earlier rows another text: a value of an enum is renamed, or a
composite type gets or loses an attribute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

import structlog

from mirrorlake.capture.records.looks import WithoutEffect
from mirrorlake.capture.records.records import Records
from mirrorlake.errors import TableAltered
from mirrorlake.model.change import SchemaChangeKind
from mirrorlake.model.landed import format_time
from mirrorlake.sources.chunk import TableDiffers
from mirrorlake.sources.table import Attached, SourceTable

log = structlog.get_logger()

SCHEMA_CHANGED = "schema_changed_without_effect"

MOST_TOLD = 5
"""Changes of each table that are told, the last ones."""


def look(records: Records, tables: Sequence[SourceTable], now: datetime) -> None:
    """Note what has changed since the last look. tables: as they are now."""
    before = records.attached()
    after = before | {str(table.table): dict(table.attached) for table in tables if table.attached}
    if after == before:
        return
    told = records.without_effect()
    for name, attached in after.items():
        for change in changes(before.get(name, attached), attached):
            log.info(SCHEMA_CHANGED, table=name, change=change)
            # After a crash the same may be seen again.
            others = [seen for seen in told.get(name, ()) if seen.change != change]
            told[name] = (*others, WithoutEffect(format_time(now), change))[-MOST_TOLD:]
    records.write_without_effect(told)
    records.write_attached(after)


def begin(records: Records, tables: Sequence[SourceTable]) -> None:
    """Take tables as they are before they are loaded: what changes meanwhile is found later."""
    before = records.attached()
    new = {str(table.table): dict(table.attached) for table in tables if table.attached}
    if not new.keys() <= before.keys():
        records.write_attached(new | before)


def retexted(records: Records, tables: Sequence[SourceTable]) -> Iterator[TableDiffers]:
    """Tables of which values have another text since the last `look`."""
    before = records.attached()
    for table in tables:
        old = before.get(str(table.table), {})
        found = [
            what
            for key, new in sorted(table.attached.items())
            if key in old and (what := _retexted(key, old[key], new))
        ]
        if found:
            error = TableAltered(
                f"{' and '.join(found)}; the log does not contain that for older rows",
                table=str(table.table),
                hint=f"Run `mirrorlake reset {table.table}` to reload it.",
            )
            yield TableDiffers(table.table, frozenset({SchemaChangeKind.TYPE_CHANGED}), error)


def _retexted(key: str, old: Attached, new: Attached) -> str:
    """What gives values another text; empty for nothing, also where only a type was renamed."""
    of = " of enum type "
    if key.startswith("value ") and old.label.rsplit(of, 1)[0] != new.label.rsplit(of, 1)[0]:
        return f"{old.label} was renamed: {new.label}"
    if key.startswith("composite ") and old.state != new.state:
        return f"{new.label} was changed"
    return ""


def changes(before: Mapping[str, Attached], after: Mapping[str, Attached]) -> Iterator[str]:
    """What has changed, as sentences. Of a column or type that is new or gone, what it has is no
    change; an earlier release noted no types."""
    of = ({(a.column, a.type) for a in attached.values()} for attached in (before, after))
    there = set.intersection(*of)
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        if any(each and (each.column, each.type) not in {*there, (0, 0)} for each in (old, new)):
            continue
        if old is None and new:
            yield f"{new.label} was added"
        elif new is None and old:
            yield f"{old.label} was dropped"
        elif old and new and _retexted(key, old, new):
            continue
        elif old and new and old.state != new.state:
            yield f"{new.label} was changed"
        elif old and new and old.label != new.label and not new.column:
            yield f"{old.label} was renamed: {new.label}"
