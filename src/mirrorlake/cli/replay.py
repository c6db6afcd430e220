"""`mirrorlake replay`"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    from mirrorlake.feed.targets.build import TargetReport


def replay(
    table: Source,
    to: To = None,
    key: Key = None,
    from_version: FromVersion = None,
    from_latest: FromLatest = False,
    to_version: ToVersion = None,
    follow: Follow = False,
    config: Config = DEFAULT,
    root: Root = None,
    as_json: Json = False,
) -> None:
    """Apply the change feed of a table to another one, commit by commit. Needs no JVM.

    The target is equal to its source after each commit, and its own feed has the same changes.
    Versions that are already covered are not applied again.

    \b
    mirrorlake replay shop.orders --to copies.orders --follow
    """

    def once(source: TargetLocation, target: TargetLocation) -> list[TargetReport]:
        from mirrorlake.app.targets.functions import replay as built
        from mirrorlake.cli import crash

        report = built(
            source.location,
            target.location,
            key=key,
            from_version=from_version,
            from_latest=from_latest,
            to_version=to_version,
            options=source.options,
            target_options=target.options,
            reached=crash.reached,
        )
        return [report]

    build(table, to, "_copy", once, follow=follow, as_json=as_json, config=config, root=root)
