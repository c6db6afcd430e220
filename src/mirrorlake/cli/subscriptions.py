"""`mirrorlake subscriptions`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mirrorlake.cli.options import DEFAULT, Config, Json, Root

if TYPE_CHECKING:
    from mirrorlake.app.subscribe import SubscriptionState
    from mirrorlake.app.targets.target_status import TargetStatus


def subscriptions(
    config: Config = DEFAULT,
    root: Root = None,
    reseed: Annotated[
        str | None,
        typer.Option(
            "--reseed", metavar="NAME", help="Start a subscription again with a snapshot."
        ),
    ] = None,
    accept_gap: Annotated[
        str | None,
        typer.Option("--accept-gap", metavar="NAME", help="Skip the versions that cannot be read."),
    ] = None,
    remove: Annotated[
        str | None,
        typer.Option("--remove", metavar="NAME", help="Remove a subscription and its position."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the subscriptions of tables, and how far each has read. Needs no JVM.

    Subscriptions are created by `mirrorlake.subscribe` in Python and, for streams, by
    `stream_feed`. Stop the reader of a subscription before you change it here.

    \b
    mirrorlake subscriptions --json
    mirrorlake subscriptions --reseed audit
    """
    from mirrorlake.app import subscribe
    from mirrorlake.cli.options import project
    from mirrorlake.cli.output import print_json, print_table, say
    from mirrorlake.errors import UsageError

    actions = [name for name in (reseed, accept_gap, remove) if name is not None]
    if len(actions) > 1:
        raise UsageError("several acts were named", where="subscriptions", hint="Name one.")
    found = project(config, root)
    if reseed is not None:
        with subscribe.known(found, reseed) as subscription:
            subscription.reseed()
        say(f"{reseed}: begins with a snapshot")
    elif accept_gap is not None:
        with subscribe.known(found, accept_gap) as subscription:
            gap = subscription.accept_gap()
        for part in gap.parts if gap else ():
            why = "not recorded" if part.reason == "not_recorded" else "no longer kept"
            say(f"{accept_gap}: left out versions {part.first} to {part.last}, {why}")
        if gap is None:
            say(f"{accept_gap}: no gap is next")
    elif remove is not None:
        subscribe.forget(found, remove)
        say(f"{remove}: removed")
    else:
        states = subscribe.states(found)
        if as_json:
            print_json({"subscriptions": [state.facts() for state in states]})
        else:
            header = ["subscription", "table", "next", "latest", "behind", "left", "problem"]
            rows = [
                [
                    state.name,
                    state.table,
                    "snapshot" if state.next is None else state.next,
                    state.latest,
                    state.behind,
                    left(state),
                    state.problem,
                ]
                for state in states
            ]
            print_table(header, rows)


def left(state: SubscriptionState | TargetStatus) -> str:
    """How long the unread changes of a reader are kept, in words."""
    if state.left_seconds is None:
        return ""
    days, hours = divmod(state.left_seconds / 3600, 24)
    span = f"{days:.0f} d {hours:.0f} h" if days else f"{hours:.1f} h"
    return f"{span}, which is little" if state.is_late else span
