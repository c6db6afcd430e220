"""`mirrorlake feed`"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mirrorlake.cli.options import DEFAULT, Config, Json, Root

if TYPE_CHECKING:
    import pyarrow as pa

    from mirrorlake.feed.bounds import FeedArguments
    from mirrorlake.feed.reader import Feed
    from mirrorlake.storage.options import ObjectOptions


class ChangeKind(StrEnum):
    """Which changes are shown."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


class GapPolicy(StrEnum):
    """What to do about versions without the feed."""

    ERROR = "error"
    REPORT = "report"


class SchemaPolicy(StrEnum):
    """What to do about a change of columns that earlier rows do not fit."""

    PIECES = "pieces"
    UNITE = "unite"
    ERROR = "error"


def feed(
    table: Annotated[str, typer.Argument(help="The table, as schema.name, or its folder or URL.")],
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="BOUND",
            help="First version, time, 'beginning', position:POSITION or source:TIME.",
        ),
    ] = None,
    end: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="BOUND", help="Last version, time, position:POSITION or source:TIME."
        ),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Print changes as they come, until stopped."),
    ] = False,
    key: Annotated[
        list[str] | None,
        typer.Option(
            "--key", metavar="VALUE", help="Only this key; COLUMN=VALUE for a composite key."
        ),
    ] = None,
    kind: Annotated[
        list[ChangeKind] | None, typer.Option("--kind", help="Only changes of this kind.")
    ] = None,
    pair_updates: Annotated[
        bool,
        typer.Option("--pair-updates", help="Show a delete and an insert of one key as an update."),
    ] = False,
    skip_unchanged: Annotated[
        bool, typer.Option("--skip-unchanged", help="Omit updates that change nothing.")
    ] = False,
    on_gap: Annotated[
        GapPolicy,
        typer.Option("--on-gap", help="What to do about versions without recorded changes."),
    ] = GapPolicy.ERROR,
    on_schema_change: Annotated[
        SchemaPolicy,
        typer.Option(
            "--on-schema-change", help="What to do when columns were renamed, dropped or retyped."
        ),
    ] = SchemaPolicy.PIECES,
    config: Config = DEFAULT,
    root: Root = None,
    as_json: Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    arrow: Annotated[
        Path | None, typer.Option("--arrow", metavar="FILE", help="Write an Arrow file.")
    ] = None,
    parquet: Annotated[
        Path | None, typer.Option("--parquet", metavar="FILE", help="Write a Parquet file.")
    ] = None,
    landing_zone: Annotated[
        str | None,
        typer.Option(
            "--as-landing-zone",
            metavar="FOLDER-OR-URL",
            help="Publish what this root does not have yet as files to be mirrored.",
        ),
    ] = None,
) -> None:
    """Show the row changes of a table. Needs no JVM.

    Both bounds are included; times are in UTC unless they have an offset. --follow without --from
    starts after the latest version. --json prints one object per row.

    \b
    mirrorlake feed shop.orders --from beginning
    mirrorlake feed shop.orders --from '2026-11-23 10:00' --key 42
    mirrorlake feed shop.orders --follow --kind delete
    mirrorlake feed shop.orders --from 10 --to 20 --parquet changes.parquet
    mirrorlake feed shop.orders --as-landing-zone ./copy --follow
    """
    from mirrorlake.app.feed import location_of
    from mirrorlake.cli.options import project
    from mirrorlake.errors import UsageError
    from mirrorlake.feed.bounds import FeedRequest, end_named, start_named
    from mirrorlake.feed.reader import Feed

    formats = {"--json": as_json, "--csv": as_csv, "--arrow": arrow, "--parquet": parquet}
    chosen = [name for name, is_chosen in formats.items() if is_chosen]
    if len(chosen) > 1:
        raise UsageError(f"{' and '.join(chosen)} cannot be used together", hint="Use one of them.")
    if follow and (end or arrow or parquet):
        raise UsageError(
            "--follow prints until it is stopped", hint="Use it without --to and FILE."
        )
    location, options = location_of(lambda: project(config, root), table)
    if landing_zone is not None:
        others = chosen or end or key or kind or pair_updates or skip_unchanged
        policies = (on_gap, on_schema_change)
        if others or policies != (GapPolicy.ERROR, SchemaPolicy.PIECES):
            raise UsageError(
                "--as-landing-zone publishes every change",
                hint="Use it with --from and --follow only.",
            )
        _land(location, landing_zone, options, start, follow=follow)
        return
    given: FeedArguments = {"pair_updates": pair_updates, "skip_unchanged": skip_unchanged}
    given |= {"on_gap": "report" if on_gap is GapPolicy.REPORT else "error"}
    given |= {"on_schema_change": on_schema_change.value}
    given |= end_named(end) if end is not None else {}
    if start is not None:
        given |= start_named(start)
    elif follow:
        given |= _after_latest(location, options)
    else:
        raise UsageError(
            "the start of the range is missing",
            hint="Use `--from beginning`, `--from BOUND` or `--follow`.",
        )
    request = FeedRequest.of(location, **given)
    show = _shown(as_json=as_json, as_csv=as_csv)
    if follow:
        from mirrorlake.cli.stop import Stop
        from mirrorlake.feed.follow import follow as followed

        for batch in followed(request, Stop().event.wait, options):
            if batch.first <= batch.last and (batch.gaps or start):
                say_range(batch)
            show(batch, _filter(batch, key, kind))
            start = None
        return
    found = Feed(request, options)
    say_range(found)
    if target := arrow or parquet:
        from mirrorlake.feed.writers import write_file

        batches = found.reader(_filter(found, key, kind))
        rows = write_file(target, batches, is_parquet=parquet is not None)
        typer.echo(f"{target}: {rows:,} rows", err=True)
    else:
        show(found, _filter(found, key, kind))


def _land(
    location: str, target: str, options: ObjectOptions | None, start: str | None, *, follow: bool
) -> None:
    from mirrorlake.app.changes.landing_zone import land
    from mirrorlake.cli.output import say
    from mirrorlake.cli.stop import Stop
    from mirrorlake.feed.subscriptions.snapshot import SNAPSHOT

    stop = Stop(exit_code=0 if follow else 1)
    wait = stop.event.wait if follow else lambda _seconds: True
    landed = 0
    for batch in land(location, target, options=options, start=start or SNAPSHOT, wait=wait):
        kind = "snapshot" if batch.is_snapshot else "version"
        say(f"{kind} {batch.version}: {batch.rows:,} rows")
        landed += 1
    if not landed:
        say("nothing new")


Filter = Callable[["pa.Table"], "pa.Table"]


def _after_latest(location: str, options: ObjectOptions | None) -> FeedArguments:
    from mirrorlake.delta.log.table_log import TableLog

    return {"from_version": TableLog(location, options).snapshot().version + 1}


def say_range(found: Feed, prefix: str = "") -> None:
    """Print the range of versions to standard error, after the prefix."""
    from mirrorlake.cli.output import say

    if found.first > found.last:
        say(f"{prefix}no versions: the latest is {found.plan.latest}")
        return
    clipped = ", where the table ends" if found.is_clipped else ""
    say(f"{prefix}versions {found.first} to {found.last}{clipped}")
    for gap in found.gaps:
        say(f"{prefix}versions {gap.first} to {gap.last} are missing: {gap.reason}")


def _shown(*, as_json: bool, as_csv: bool) -> Callable[[Feed, Filter], None]:
    """The function that prints the rows of a feed."""
    from mirrorlake.cli.feed_table import print_changes
    from mirrorlake.feed.writers import CsvLines, JsonLines, RowSink

    if not as_json and not as_csv:
        return print_changes
    sink: RowSink = (JsonLines if as_json else CsvLines)(sys.stdout.buffer)

    def show(found: Feed, keep: Filter) -> None:
        is_empty = True
        for commit in found:
            sink.write(keep(commit.rows))
            is_empty = False
        if is_empty:  # the names of the columns are the same without rows
            sink.write(found.schema().empty_table())

    return show


def _filter(found: Feed, key: Sequence[str] | None, kinds: Sequence[ChangeKind] | None) -> Filter:
    """A filter for the rows of a key and of some kinds. Raises UsageError."""
    from mirrorlake.errors import UsageError
    from mirrorlake.feed.rows import key_values, of_key, of_kinds

    images = ["update_preimage", "update_postimage"]
    types = [
        image for kind in kinds or () for image in (images if kind == "update" else [kind.value])
    ]
    values = key_values(key or (), found.key, found.schema().names)
    for part in found.ranges:
        if absent := values.keys() - set(found.schema(part).names):
            raise UsageError(
                f"--key names {min(absent)}, which is no column of versions {part.first} to "
                f"{part.last}",
                hint="Choose another range, or --on-schema-change unite.",
            )

    def keep(rows: pa.Table) -> pa.Table:
        return of_key(of_kinds(rows, types) if types else rows, values)

    return keep
