"""Backfills, as they are asked for from outside of capture."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from datetime import datetime

from mirrorlake.capture.backfill.jobs import BackfillJob, BackfillRecords, BackfillRequest
from mirrorlake.errors import UsageError, printable
from mirrorlake.model.landed import format_time

NO_EVENTS = "the destination has event files, in which nothing is corrected"
NOT_STRICT = (
    "landing.strict is true, and in a zone for other engines nothing says which rows are gone"
)
WHERE = "backfill"


def refusal(*, strict: bool, events: bool) -> str:
    """Why no table can be backfilled; empty when some can."""
    return NO_EVENTS if events else NOT_STRICT if strict else ""


def request(
    jobs: BackfillRecords,
    tables: Collection[str],
    table: str,
    where_key: tuple[str, str] | None,
    max_rows_per_second: int | None,
    now: datetime,
    *,
    refused: str = "",
) -> BackfillJob:
    """Ask for a backfill of one of the captured tables. refused: why no table can be, if so.

    Raises UsageError.
    """
    if max_rows_per_second is not None and max_rows_per_second < 1:
        raise UsageError(
            f"{max_rows_per_second} rows per second is no speed",
            where=WHERE,
            hint="Give a number of 1 or more.",
        )
    if refused:
        raise UsageError(
            refused,
            where=WHERE,
            hint=f"`mirrorlake reset {table}` loads the table anew.",
        )
    if table not in tables:
        raise UsageError(
            f"there is no captured table {printable(table)}",
            where=WHERE,
            hint=f"The tables are: {', '.join(sorted(tables)) or 'none'}.",
        )
    asked = BackfillRequest(
        str(uuid.uuid4()), table, where_key, max_rows_per_second, format_time(now)
    )
    jobs.request(asked)
    return BackfillJob(asked)


def stop(jobs: BackfillRecords, table: str) -> BackfillJob:
    """Ask for the end of the backfill of a table. Raises UsageError when there is none."""
    for job in jobs.jobs():
        if job.request.table == table and not job.state.is_over:
            jobs.stop(job)
            return job
    raise UsageError(
        f"no backfill of {printable(table)} is under way",
        where=WHERE,
        hint="`mirrorlake status` lists the backfills.",
    )


def sentence(job: BackfillJob) -> str:
    """How a backfill stands, in words."""
    done = f"{job.rows:,}{f' of about {job.expected:,}' if job.expected else ''} rows"
    left = job.seconds_left()
    time = "" if left is None else f", about {left:,.0f} s left"
    reason = "".join(f": {why}" for why in (job.request.reason, job.message) if why)
    return (
        f"{job.request.table}: backfill {job.request.id} is {job.state}, {done} in "
        f"{job.chunks:,} chunks{time}{reason}"
    )
