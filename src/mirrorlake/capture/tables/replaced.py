"""Tables that begin anew: a table that was dropped and created again is another table, whatever
stopped the former one. In this order, of which each step may be done again:

    stopped, to be replaced → what is landed of it deleted → what is recorded of it forgotten

If the new one is a table that was loaded under another name, that name is given up before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import structlog

from mirrorlake.capture.backfill.jobs import BackfillRecords
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.sink import Sink
from mirrorlake.capture.tables import members
from mirrorlake.errors import NotSelected, TableRecreated
from mirrorlake.model.crash_points import CrashHook, CrashPoint
from mirrorlake.model.table import TableId
from mirrorlake.sources.table import SourceTable

log = structlog.get_logger()

TABLE_REPLACED = "table_replaced"

RECREATED = "the table was dropped and created again in the source; the new one is loaded"

REPLACED = "replaced"
"""Of a stopped table: what is left of it is to be deleted, because it is another one now."""

GIVEN_UP = "given_up"
"""Of a stopped table: it is loaded under the name that it has now."""


def names(records: Records, sinks: Sequence[Sink]) -> dict[str, TableId]:
    """The names of the loaded tables by their identity, as far as all sinks agree on them, without
    those that are given up."""
    held = [set(sink.identities().items()) for sink in sinks]
    given_up = given_up_names(records)
    common = {one for one in set.intersection(*held) if str(one[0]) not in given_up}
    counted = Counter(identity for _table, identity in common)
    return {identity: table for table, identity in common if counted[identity] == 1}


def given_up_names(records: Records) -> list[str]:
    """The former names of tables that are loaded under another one now."""
    return [table for table, facts in records.stopped().items() if facts.get(GIVEN_UP)]


def replaced(
    selected: Sequence[SourceTable], records: Records, sinks: Sequence[Sink]
) -> list[SourceTable]:
    """Those of the tables that are not the ones that were loaded under their names, where every
    sink can begin them anew."""
    stopped = records.stopped()
    holding = [(sink, sink.identities()) for sink in sinks]

    def is_replaced(table: SourceTable) -> bool:
        facts = stopped.get(str(table.table), {})
        if facts.get(REPLACED) or facts.get(GIVEN_UP):
            return True
        held = [
            identities.get(table.table) for sink, identities in holding if sink.holds(table.table)
        ]
        return bool(held) and all(
            identity is not None and identity != table.identity for identity in held
        )

    return [table for table in selected if table.refused is None and is_replaced(table)]


def give_up_names(replaced: Sequence[SourceTable], records: Records, sinks: Sequence[Sink]) -> None:
    """Stop what those of the tables were loaded under that have the name of another one now: they
    are loaded under that. May be called again."""
    beginning = {table.table for table in replaced}
    now = {table.identity: table.table for table in replaced}
    loaded = sorted({one for sink in sinks for one in sink.identities().items()}, key=str)
    for former, identity in loaded:
        if identity not in now or former in beginning:
            continue
        error = NotSelected(
            f"the table was renamed to {now[identity]} in the source, which was the name of "
            "another mirrored table; it is mirrored under that name",
            table=str(former),
            hint="What was mirrored under the former name stays as it is. Remove it when nobody "
            "reads it any more.",
        )
        members.stop(records, error, **{GIVEN_UP: True})


def begin_anew(
    table: TableId, what: str, records: Records, sinks: Sequence[Sink], reached: CrashHook
) -> None:
    """Forget the former table of this name, which is not streamed. May be called again.

    what: why the table begins anew.
    """
    name = str(table)
    error = TableRecreated(what, table=name, hint="Nothing is to be done.")
    records.stop(name, error.facts() | {REPLACED: True})
    reached(CrashPoint.REPLACED_NOTED)
    for sink in sinks:
        sink.drop(table)
    reached(CrashPoint.REPLACED_DELETED)
    BackfillRecords(records).drop(name)
    records.load_anew(name)
    records.forget(name)
    log.info(TABLE_REPLACED, table=name)
