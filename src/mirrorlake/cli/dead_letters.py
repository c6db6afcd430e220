"""`mirrorlake dead-letters`"""

from __future__ import annotations

from typing import Annotated

import typer

from mirrorlake.cli.options import DEFAULT, Config, Json


def dead_letters(
    replay: Annotated[
        bool, typer.Option("--replay", help="Read the files with dead letters again first.")
    ] = False,
    config: Config = DEFAULT,
    as_json: Json = False,
) -> None:
    """Show the events that could not be applied, by file and reason. Ends with 1 if there are any.

    A replay applies all events of these files. Events that were already applied change nothing.

    \b
    mirrorlake dead-letters
    mirrorlake dead-letters --replay      after the cause was fixed
    """
    from mirrorlake.app.events.applying import dead_letters as found_in
    from mirrorlake.cli.interruptible_mirror import interruptible_mirror
    from mirrorlake.cli.options import project
    from mirrorlake.cli.output import print_json, print_table
    from mirrorlake.errors import printable

    settings = project(config)
    if replay:
        with interruptible_mirror(settings) as mirror:
            mirror.replay_events()
    found = found_in(settings)
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
        for file in found
        for letter in file.letters
    ]
    if as_json:
        print_json(facts)
    elif facts:
        names = ["file", "table", "events", "retries", "reason"]
        rows = [[fact[name] and printable(fact[name]) for name in names] for fact in facts]
        print_table(names, rows)
    if facts:
        raise typer.Exit(1)
