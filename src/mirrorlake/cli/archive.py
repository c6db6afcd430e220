"""`mirrorlake archive`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mirrorlake.cli.options import DEFAULT, Config, Json, Root
from mirrorlake.cli.targets import (
    Follow,
    FromLatest,
    FromVersion,
    Source,
    To,
    ToVersion,
    build,
)

if TYPE_CHECKING:
    from mirrorlake.app.targets.functions import TargetLocation
    from mirrorlake.feed.targets.build import TargetReport


def archive(
    table: Source,
    to: To = None,
    name: Annotated[
        list[str] | None,
        typer.Option(
            "--name", metavar="COLUMN=NAME", help="Another name for a column of the archive."
        ),
    ] = None,
    accept_gap: Annotated[
        bool, typer.Option("--accept-gap", help="Continue after versions whose changes are lost.")
    ] = False,
    from_version: FromVersion = None,
    from_latest: FromLatest = False,
    to_version: ToVersion = None,
    follow: Follow = False,
    config: Config = DEFAULT,
    root: Root = None,
    as_json: Json = False,
) -> None:
    """Copy every change of a table into an archive that only grows. Needs no JVM.

    The archive has the columns of the table, and change_type, commit_version, commit_timestamp,
    origin and source_id. Versions that are already covered are not copied again.

    \b
    mirrorlake archive shop.orders
    mirrorlake archive shop.orders --to ./archives/orders --name origin=row_origin
    """

    def once(source: TargetLocation, target: TargetLocation) -> list[TargetReport]:
        from mirrorlake.app.targets.functions import archive as built
        from mirrorlake.cli import crash

        return built(
            source.location,
            target.location,
            names=_names(name or []),
            accept_gap=accept_gap,
            from_version=from_version,
            from_latest=from_latest,
            to_version=to_version,
            options=source.options,
            target_options=target.options,
            reached=crash.reached,
        )

    build(table, to, "_archive", once, follow=follow, as_json=as_json, config=config, root=root)


def _names(given: list[str]) -> dict[str, str]:
    """The given column names by their default names. Raises UsageError."""
    from mirrorlake.errors import UsageError

    found = {}
    for name in given:
        usual, is_named, chosen = name.partition("=")
        if not is_named:
            raise UsageError(f"--name {name} names no column", hint="Write --name COLUMN=NAME.")
        found[usual] = chosen
    return found
