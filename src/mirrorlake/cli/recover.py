"""`mirrorlake recover`"""

from __future__ import annotations

from typing import Annotated

import typer

from mirrorlake.cli.options import DEFAULT, Config, Json, Root


def recover(
    stream: Annotated[str, typer.Argument(help="The name of the stream.")],
    config: Config = DEFAULT,
    root: Root = None,
    from_version: Annotated[
        int | None,
        typer.Option(
            "--from-version",
            min=0,
            help="The version to continue with. Default: the one after the last in the target.",
        ),
    ] = None,
    accept_gap: Annotated[
        str | None,
        typer.Option(
            "--accept-gap", metavar="FIRST-LAST", help="Skip versions that nobody has read."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Continue a stream of stream_feed with a new checkpoint when its own is damaged.

    The old checkpoint stays as it is. The stream must not run. Needs no JVM.

    \b
    mirrorlake recover audit
    mirrorlake recover audit --from-version 12 --accept-gap 10-11
    """
    from mirrorlake.app.changes import feed_streams
    from mirrorlake.cli.options import project
    from mirrorlake.cli.output import print_json, say

    gap = None if accept_gap is None else _gap(accept_gap)
    done = feed_streams.recover(project(config, root), stream, from_version, gap)
    if as_json:
        print_json(done.facts())
    else:
        begin = "a snapshot" if done.first is None else f"version {done.first}"
        say(f"{done.stream}: goes on with {begin}, in {done.checkpoint}")


def _gap(text: str) -> tuple[int, int]:
    from mirrorlake.errors import UsageError

    first, separator, last = text.partition("-")
    if not (separator and first.isdecimal() and last.isdecimal()):
        raise UsageError(
            f"--accept-gap is {text!r}", where="recover", hint="Write it as in --accept-gap 10-11."
        )
    return int(first), int(last)
