"""`mirrorlake status`"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirrorlake.cli.options import DEFAULT, Config, Json, Root

if TYPE_CHECKING:
    from mirrorlake.app.status.mirror_status import Status
    from mirrorlake.app.status.table_status import TableStatus
    from mirrorlake.landing.partner_events import PartnerEvents

CLEAR = "\x1b[2J\x1b[H"
"""Clears a terminal."""


def status(
    config: Config = DEFAULT,
    root: Root = None,
    watch: Annotated[bool, typer.Option("--watch", help="Update the output every second.")] = False,
    as_json: Json = False,
) -> None:
    """Show the state of each table: rows, position, lag, last error. Needs no JVM.

    \b
    mirrorlake status --watch
    mirrorlake status --json | jq '.tables[] | select(.error)'
    """
    import time

    from mirrorlake.app.mirror import Mirror
    from mirrorlake.cli.options import projects
    from mirrorlake.cli.output import print_json

    mirrors = [Mirror(settings) for settings in projects(config, root)]
    while True:
        found = [mirror.status() for mirror in mirrors]
        if as_json:
            facts = [status.facts() for status in found]
            print_json(facts[0] if len(facts) == 1 else {"mirrors": facts})
        else:
            if watch:
                typer.echo(CLEAR, nl=False)
            for number, status in enumerate(found):
                typer.echo("\n" * bool(number), nl=False)
                show_status(status)
        if not watch:
            break
        time.sleep(1.0)
    if any(map(_is_wrong, found)):
        raise typer.Exit(1)


def _is_wrong(found: Status) -> bool:
    wrong = any(table.error or table.differs for table in found.tables)
    return bool(wrong or found.outage or found.errors or any(t.error for t in found.targets))


def show_status(found: Status) -> None:
    """Print a status for people."""
    from mirrorlake.app.status.backfills import sentence
    from mirrorlake.capture.tables.members import ADMIT, LEFT_OUT
    from mirrorlake.cli.output import show
    from mirrorlake.cli.subscriptions import left
    from mirrorlake.cli.targets import lines as target_lines
    from mirrorlake.model.landed import readable_time

    for line in _about(found):
        show(line)
    unread = (job.request for job in found.backfills if not job.state.is_over)
    being_read = {request.table for request in unread if request.is_whole}
    if found.lands:
        _show_tables(found.tables, being_read)
    for table in found.tables:
        notes = _notes(table, is_being_read=table.table in being_read)
        for line in [_gone(table.dropped)] if table.dropped else notes:
            show(f"{table.table}: {line}")
    for name, at in found.left_out.items():
        show(f"{name}: left out since {readable_time(at)}: {LEFT_OUT}. {ADMIT.format(name)}")
    for target in found.targets:
        for line in target_lines(target):
            show(line)
    for subscription in found.subscriptions:
        why = subscription.problem or (
            f"its changes are kept for {left(subscription)}" if subscription.is_late else ""
        )
        if why:
            show(f"subscription {subscription.name}: {why}")
    for job in found.backfills:
        show(sentence(job))


def _about(found: Status) -> Iterator[str]:
    """What there is to say of the mirror as a whole."""
    from mirrorlake.app.source.detached import WAYS
    from mirrorlake.app.status import ended
    from mirrorlake.model.landed import readable_time

    apply = f"; apply: {found.apply or 'not running'}" if found.lands else ""
    yield f"{found.mirror}: {found.state}. capture: {found.capture or 'not running'}{apply}"
    if found.detached:
        yield f"detached from the source at {readable_time(found.detached)}. {WAYS}"
    yield from _source(found)
    for error in found.errors:
        yield ended.said(error)
    yield from _where(found)
    if found.partner.is_present:
        yield f"partner: {_partner(found.partner)}"


def _source(found: Status) -> Iterator[str]:
    """What the source keeps capture from, and what it keeps for it."""
    from mirrorlake.app.status import outage, source_log
    from mirrorlake.model.landed import readable_time

    if found.outage:
        yield f"{found.outage}. {found.outage.hint}"
    if found.wait:
        yield f"{outage.sentence(found.wait, datetime.now(UTC))}. {found.wait.hint}"
    if found.retention:
        log, is_old = found.retention, found.capture is None
        when = f" at {readable_time(log.at)}" if is_old else ""
        yield f"source log{when}: {source_log.sentence(log)}"


def _show_tables(tables: Sequence[TableStatus], being_read: Collection[str]) -> None:
    """being_read: the tables of which a backfill reads all rows."""
    from mirrorlake.cli.output import print_table, show

    rows = [
        [
            t.table,
            f"{t.state}{_kind(t, is_being_read=t.table in being_read)}",
            t.version,
            *(f"{count:,}" for count in (t.inserts, t.updates, t.deletes)),
            t.position,
            _lag(t.lag_seconds),
        ]
        for t in tables
    ]
    if rows:
        header = ["table", "state", "version", "inserts", "updates", "deletes", "position", "lag"]
        print_table(header, rows, optional=["position", "version"])
    else:
        show("no tables yet")


def _lag(seconds: float | None) -> str:
    from mirrorlake.app.status.amounts import duration

    if seconds is None:
        return "?"
    return f"{seconds:.1f} s" if seconds < 60 else duration(seconds)


def _where(found: Status) -> Iterator[str]:
    """Where the tables come from, and where event files are written."""
    if found.events:
        dead = f"; {found.dead_events:,} could not be applied: mirrorlake dead-letters"
        yield f"events: {found.events}{dead if found.dead_events else ''}"
    elif found.lands:
        yield f"landing zone: {found.landing_zone}"
    for place in found.written:
        yield f"event files: {place}"


def _gone(dropped: Mapping[str, Any]) -> str:
    from mirrorlake.model.landed import readable_time

    return f"{dropped['message']} (seen {readable_time(dropped['since'])})"


def _notes_of_events(table: TableStatus) -> Iterator[str]:
    """Which deletions wait, and which column got a wider type last."""
    if count := table.waiting_deletions:
        yield (
            f"deletions without a key that wait for the event with it: {count:,}; see "
            "mirrorlake errors"
        )
    for one in table.widened[-1:]:
        yield (
            f"column {one.column} got the type {one.after} of events, and was {one.before} before "
            f"version {one.version}"
        )


def _notes(table: TableStatus, *, is_being_read: bool) -> Iterator[str]:
    """Notes on a table: its error, what it waits for, what events told, its change feed, what
    changed without effect, whether it is append-only. is_being_read: a backfill reads all of it."""
    from mirrorlake.model.landed import format_time, readable_time

    if table.error:
        yield table.error["message"]
    elif table.waiting:
        yield f"waiting: {table.waiting}"
    yield from _notes_of_events(table)
    if table.feed and (feed := str(table.feed)):
        yield f"the change feed {feed}"
    if not table.is_loaded and is_being_read:
        yield "its rows are read beside its changes, and some are missing until that is done"
    elif not table.is_loaded:
        yield (
            "only its changes are captured, and its earlier rows are missing; "
            f"`mirrorlake backfill {table.table}` reads them"
        )
    for seen in table.without_effect[-1:]:
        at = readable_time(seen.at)
        yield f"{seen.change} in the source; no row of the mirror changes (seen {at})"
    if table.reread:
        since = readable_time(table.reread.request.requested)
        yield f"differs from its source since {since}, until it has been read again"
    if table.unfollowed:
        since = readable_time(table.unfollowed.since)
        yield f"differs from its source since {since}: {table.unfollowed.change}"
    if (found := table.append_only) is None:
        return
    if found.differs:
        yield f"append-only and different since {found.since}, because {found.reason}: {found}"
        if found.put_off > format_time(datetime.now(UTC)):
            yield f"it is read again after a pause, at {readable_time(found.put_off)} or later"
        yield "`mirrorlake check` says how to mirror it exactly"
    else:
        yield f"append-only, because {found.reason}; no update or delete of it was counted"


def _kind(table: TableStatus, *, is_being_read: bool) -> str:
    """Suffix of the state of a table of which not everything is there. is_being_read: a backfill
    reads all of it."""
    if table.dropped:
        return ", dropped"
    missing = ", loading" if is_being_read else ", not loaded"
    loaded = "" if table.is_loaded else missing
    if table.differs:
        return f"{loaded}, differs"
    return f"{loaded}, append-only" if table.append_only else loaded


def _partner(publisher: PartnerEvents) -> str:
    """The publisher that fills the zone by its own account, and its source."""
    if publisher.problem:
        return f"unknown, because of _partnerEvents.json: {publisher.problem}"
    source = " ".join(part for part in (publisher.source_type, publisher.source_version) if part)
    return f"{publisher.name or '(no name)'}{f', {source}' if source else ''}"
