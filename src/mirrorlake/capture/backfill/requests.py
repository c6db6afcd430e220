"""Requests for backfills, from outside of capture."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from datetime import datetime

from mirrorlake.capture.backfill.jobs import BackfillJob, BackfillRecords, BackfillRequest
from mirrorlake.errors import UsageError, printable, tables_like
from mirrorlake.model.landed import format_time
from mirrorlake.model.table import named

NOT_STRICT = (
    "landing.strict is true, and in a zone for other engines nothing says which rows are gone"
)
WHERE = "backfill"


def refusal(*, strict: bool) -> str:
    """Why no table can be backfilled in a landing zone; empty when some can."""
    return NOT_STRICT if strict else ""


def request(
    jobs: BackfillRecords,
    tables: Collection[str],
    table: str,
    where_key: tuple[str, str] | None,
    max_rows_per_second: int | None,
    now: datetime,
    *,
    max_bytes_per_second: int | None = None,
    refused: str = "",
) -> BackfillJob:
    """Request a backfill of one of the captured tables. refused: why no table can be, if so.

    Raises UsageError.
    """
    for limit, unit in ((max_rows_per_second, "rows"), (max_bytes_per_second, "bytes")):
        if limit is not None and limit < 1:
            raise UsageError(
                f"{limit} {unit} per second is no speed",
                where=WHERE,
                hint="Give a number of 1 or more.",
            )
    if refused:
        raise UsageError(
            refused,
            where=WHERE,
            hint=f"`mirrorlake reset {table}` loads the table anew.",
        )
    table = named(table, tables, where=WHERE)
    if table not in tables:
        raise UsageError(
            f"there is no captured table {printable(table)}",
            where=WHERE,
            hint=tables_like(table, tables),
        )
    new = BackfillRequest(
        str(uuid.uuid4()),
        table,
        where_key,
        max_rows_per_second,
        format_time(now),
        max_bytes_per_second=max_bytes_per_second,
    )
    jobs.request(new)
    return BackfillJob(new)


def stop(jobs: BackfillRecords, table: str) -> BackfillJob:
    """Request the end of the backfill of a table. Raises UsageError when there is none."""
    open_jobs = [job for job in jobs.jobs() if not job.state.is_over]
    table = named(table, [job.request.table for job in open_jobs], where=WHERE)
    for job in open_jobs:
        if job.request.table == table:
            jobs.stop(job)
            return job
    raise UsageError(
        f"no backfill of {printable(table)} is under way",
        where=WHERE,
        hint="`mirrorlake status` lists the backfills.",
    )
