"""`mirrorlake dead-letters`"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirrorlake.cli.options import DEFAULT, Config, Json

if TYPE_CHECKING:
    from mirrorlake.apply.events.remembered.waiting import WaitingDeletions
    from mirrorlake.config import Project

MOST_NAMED = 100
"""Maximum number of waiting deletions of a table that are shown one by one."""


def dead_letters(
    replay: Annotated[
        bool, typer.Option("--replay", help="Read the files with dead letters again first.")
    ] = False,
    config: Config = DEFAULT,
    as_json: Json = False,
) -> None:
    """Show the events that could not be applied, by file and reason, and the deletions that wait
    for the event with their key. Ends with 1 if there are any.

    A replay applies all events of these files. Events that were already applied change nothing.
    What is listed of files that are gone is dropped.

    \b
    mirrorlake dead-letters
    mirrorlake dead-letters --replay      after the cause was fixed
    """
    from mirrorlake.cli.interruptible_mirror import interruptible_mirror
    from mirrorlake.cli.options import project
    from mirrorlake.cli.output import say
    from mirrorlake.errors import printable

    settings = project(config)
    if replay:
        with interruptible_mirror(settings) as mirror:
            for path in mirror.replay_events().gone_files:
                say(f"dropped the dead letters of {printable(path)}, which is gone")
    print_events(dead_events(settings), as_json=as_json)


def dead_events(settings: Project) -> list[dict[str, Any]]:
    """The events that could not be applied, and the deletions that wait."""
    from mirrorlake.app.events.applying import dead_letters as found_in
    from mirrorlake.app.events.applying import deletions_that_wait

    facts = [
        {
            "file": file.path,
            "table": letter.table or None,
            "reason": letter.reason,
            "events": None if letter.is_file else letter.count,
            "rows": [] if letter.is_file else list(letter.rows),
            "retries": file.retries,
            "time": file.time,
        }
        for file in found_in(settings)
        for letter in file.letters
    ]
    return facts + [fact for table in deletions_that_wait(settings) for fact in _waiting(table)]


def print_events(facts: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    """Print what could not be applied; ends with 1 if there is any."""
    from mirrorlake.cli.output import print_json, print_table
    from mirrorlake.errors import printable

    if as_json:
        print_json(facts)
    elif facts:
        names = ["file", "table", "events", "retries", "reason"]
        rows = [[fact[name] and printable(fact[name]) for name in names] for fact in facts]
        print_table(names, rows)
    if facts:
        raise typer.Exit(1)


def without_file(table: str, events: int | None) -> dict[str, Any]:
    """What is told of a table and of no file. events: how many; None if it is not known."""
    return {
        "file": None,
        "table": table,
        "events": events,
        "rows": [],
        "retries": 0,
        "time": None,
    }


def _waiting(found: WaitingDeletions) -> Iterator[dict[str, Any]]:
    """The waiting deletions of a table, as events that could not be applied; their files are not
    known."""
    fact = without_file(str(found.table), events=1)
    shown = found.named[:MOST_NAMED]
    for one in shown:
        reason = (
            f"a deletion that names its row only by ROWID {one.row_id} waits for an event with its "
            f"key, of the same transaction {one.tx_id}"
        )
        yield {**fact, "reason": reason}
    if more := found.count - len(shown):
        reason = "deletions that name their rows only by ROWID wait for events with their keys"
        yield {**fact, "events": more, "reason": reason}
