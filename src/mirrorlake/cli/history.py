"""`mirrorlake history`"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from mirrorlake.cli.options import DEFAULT, Config, Json, Root
from mirrorlake.cli.targets import (
    Follow,
    FromLatest,
    FromVersion,
    Key,
    Source,
    To,
    ToVersion,
    build,
)

if TYPE_CHECKING:
    from mirrorlake.app.targets.functions import TargetLocation
    from mirrorlake.feed.history.settings import HistoryArguments
    from mirrorlake.feed.targets.build import TargetReport


class Deleted(StrEnum):
    """What a deletion does to the newest row."""

    REMOVE = "remove"
    FLAG = "flag"


class IntervalUnit(StrEnum):
    """The unit of interval bounds."""

    VERSION = "version"
    COMMIT_TIME = "commit_time"
    SOURCE_TIME = "source_time"
    SOURCE_POSITION = "source_position"


def history(
    table: Source,
    to: To = None,
    kind: Annotated[
        int,
        typer.Option("--type", min=1, max=2, help="1: the newest row of each key; 2: every row."),
    ] = 2,
    key: Key = None,
    track: Annotated[
        list[str] | None,
        typer.Option(
            "--track", metavar="COLUMN", help="Only changes of this column open an interval."
        ),
    ] = None,
    bounds: Annotated[
        IntervalUnit, typer.Option("--bounds", help="The unit of the interval bounds of type 2.")
    ] = IntervalUnit.VERSION,
    current: Annotated[
        bool, typer.Option("--current", help="Add a column that is true for the current row.")
    ] = False,
    deletes: Annotated[
        Deleted, typer.Option("--deletes", help="What a deletion does in a history of type 1.")
    ] = Deleted.REMOVE,
    from_version: FromVersion = None,
    from_latest: FromLatest = False,
    to_version: ToVersion = None,
    follow: Follow = False,
    config: Config = DEFAULT,
    root: Root = None,
    as_json: Json = False,
) -> None:
    """Build the history of a table from its change feed, or bring it up to date. Needs no JVM.

    Type 2 keeps every row that a key had, with __START_AT and __END_AT; type 1 keeps the newest.
    Versions that are already covered are not applied again. The same options bring a history up
    to date.

    \b
    mirrorlake history shop.orders
    mirrorlake history shop.orders --track status --current --to shop.order_states
    mirrorlake history shop.orders --type 1 --deletes flag --to ./copies/orders
    """
    arguments: HistoryArguments = {"key": key, "track": track, "bounds": bounds.value}
    arguments |= {"type": 1 if kind == 1 else 2, "current": current, "deletes": deletes.value}

    def once(source: TargetLocation, target: TargetLocation) -> list[TargetReport]:
        from mirrorlake.app.targets.functions import history as built
        from mirrorlake.cli import crash

        report = built(
            source.location,
            target.location,
            from_version=from_version,
            from_latest=from_latest,
            to_version=to_version,
            options=source.options,
            target_options=target.options,
            reached=crash.reached,
            **arguments,
        )
        return [report]

    build(table, to, "_history", once, follow=follow, as_json=as_json, config=config, root=root)
