"""`mirrorlake backfill`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mirrorlake.cli.options import DEFAULT, BytesPerSecond, Config, Json

if TYPE_CHECKING:
    from mirrorlake.app.mirror import Mirror
    from mirrorlake.capture.backfill.jobs import BackfillJob


def backfill(
    table: Annotated[str, typer.Argument(help="The table, as schema.name.")],
    config: Config = DEFAULT,
    where_key: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--where-key",
            metavar="FROM TO",
            help="Only rows whose first key column is from FROM to TO, both included.",
        ),
    ] = None,
    max_rows_per_second: Annotated[
        int | None,
        typer.Option("--max-rows-per-second", metavar="N", help="Read no faster than this."),
    ] = None,
    max_bytes_per_second: BytesPerSecond = None,
    stop: Annotated[bool, typer.Option("--stop", help="Stop the backfill of the table.")] = False,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Do not wait for the end of the backfill.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Read a table of the source again while changes flow, and correct rows that differ.

    Rows that are missing, different or deleted become changes in the feed. Equal rows are not
    touched. A running capture does the work; Ctrl-C only ends the waiting.

    \b
    mirrorlake backfill public.orders
    mirrorlake backfill public.orders --where-key 1000 2000 --max-rows-per-second 5000
    mirrorlake backfill public.orders --stop
    """
    from mirrorlake.app.mirror import Mirror
    from mirrorlake.cli.options import project
    from mirrorlake.cli.output import print_json
    from mirrorlake.errors import UsageError

    mirror = Mirror(project(config))
    limits = (max_rows_per_second, max_bytes_per_second)
    if stop and (where_key or any(limit is not None for limit in limits)):
        raise UsageError("--stop takes no other option", hint="It stops the whole backfill.")
    job = mirror.stop_backfill(table) if stop else mirror.backfill(table, where_key, *limits)
    if not no_wait:
        job = _followed(mirror, job)
    if as_json:
        print_json(job.as_facts())
    else:
        _print(job)
    if job.state in {"FAILED", "UNSUPPORTED"}:
        raise typer.Exit(1)


def _followed(mirror: Mirror, job: BackfillJob) -> BackfillJob:
    """The backfill at its end, or when no capture is running any more."""
    import time
    from datetime import UTC, datetime

    from mirrorlake.app.stores import store_of
    from mirrorlake.cli.progress import bars
    from mirrorlake.storage.lease import holder_of

    store = store_of(mirror.project)
    with bars("rows") as show:
        while not job.state.is_over and holder_of(store, "capture", datetime.now(UTC)):
            time.sleep(0.5)
            job = next(
                (known for known in mirror.backfills() if known.request.id == job.request.id), job
            )
            expected = max(job.expected or 0, job.rows) or None
            show(job.request.table, job.rows, expected, f"{job.chunks:,} chunks")
    return job


def _print(job: BackfillJob) -> None:
    from mirrorlake.app.status.backfills import sentence
    from mirrorlake.cli.output import say, show

    show(sentence(job))
    if not job.state.is_over:
        say("Capture does it: `mirrorlake run` or `mirrorlake capture`.")
