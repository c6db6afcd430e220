"""`mirrorlake status`"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from mirrorlake.cli.options import DEFAULT, Config, Json, Root

if TYPE_CHECKING:
    from mirrorlake.app.status.mirror_status import Status
    from mirrorlake.app.status.table_status import TableStatus
    from mirrorlake.landing.partner_events import PartnerEvents

CLEAR = "\x1b[2J\x1b[H"
"""What makes a terminal empty."""


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
    from mirrorlake.cli.options import project
    from mirrorlake.cli.output import print_json

    mirror = Mirror(project(config, root))
    while True:
        found = mirror.status()
        if as_json:
            print_json(found.facts())
        else:
            if watch:
                typer.echo(CLEAR, nl=False)
            _show(found)
        if not watch:
            break
        time.sleep(1.0)
    wrong = any(table.error or table.differs for table in found.tables)
    if wrong or found.outage or found.errors or any(t.error for t in found.targets):
        raise typer.Exit(1)


def _show(found: Status) -> None:
    from mirrorlake.app.detached import WAYS
    from mirrorlake.capture.backfill.requests import sentence
    from mirrorlake.cli.output import print_table
    from mirrorlake.cli.subscriptions import left
    from mirrorlake.cli.targets import lines as target_lines

    typer.echo(
        f"{found.mirror}: {found.state}. capture: {found.capture or 'not running'}; "
        f"apply: {found.apply or 'not running'}"
    )
    if found.detached:
        typer.echo(f"detached from the source at {found.detached}. {WAYS}")
    if found.outage:
        typer.echo(f"{found.outage}. {found.outage.hint}")
    for error in found.errors:
        typer.echo(f"{error['command']} ended at {error['time']}: {error['message']}")
    typer.echo(_where(found))
    if found.partner.is_told:
        typer.echo(f"partner: {_partner(found.partner)}")
    print_table(
        ["table", "state", "version", "inserts", "updates", "deletes", "position", "lag"],
        [
            [
                t.table,
                f"{t.state}{_kind(t)}",
                t.version,
                t.inserts,
                t.updates,
                t.deletes,
                t.position,
                "?" if t.lag_seconds is None else f"{t.lag_seconds:.1f} s",
            ]
            for t in found.tables
        ],
    )
    for table in found.tables:
        for line in _told(table):
            typer.echo(f"{table.table}: {line}")
    for target in found.targets:
        for line in target_lines(target):
            typer.echo(line)
    for one in found.subscriptions:
        why = one.problem or (f"its changes are kept for {left(one)}" if one.is_late else "")
        if why:
            typer.echo(f"subscription {one.name}: {why}")
    for job in found.backfills:
        typer.echo(sentence(job))


def _where(found: Status) -> str:
    """Where the tables come from."""
    if not found.events:
        return f"landing zone: {found.landing_zone}"
    dead = f"; {found.dead_events:,} could not be applied: mirrorlake dead-letters"
    return f"events: {found.events}{dead if found.dead_events else ''}"


def _told(table: TableStatus) -> Iterator[str]:
    """What is to be known of a table beside its numbers."""
    if table.error:
        yield table.error["message"]
    elif table.waiting:
        yield f"waits: {table.waiting}"
    if (found := table.append_only) is None:
        return
    if found.differs:
        yield f"append-only and different since {found.since}, because {found.reason}: {found}"
        yield "`mirrorlake check` says how to mirror it exactly"
    else:
        yield f"append-only, because {found.reason}; no update or delete was counted since its load"


def _kind(table: TableStatus) -> str:
    """What stands beside the state of a table whose updates and deletions are not captured."""
    if table.append_only is None:
        return ""
    return ", differs" if table.differs else ", append-only"


def _partner(told: PartnerEvents) -> str:
    """Who says to fill the zone, and from what."""
    if told.problem:
        return f"unknown, because of _partnerEvents.json: {told.problem}"
    source = " ".join(part for part in (told.source_type, told.source_version) if part)
    return f"{told.name or '(no name)'}{f', {source}' if source else ''}"
