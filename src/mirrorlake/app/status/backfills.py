"""How a backfill stands, as people read it."""

from __future__ import annotations

from mirrorlake.app.status.amounts import duration, size
from mirrorlake.capture.backfill.jobs import BackfillJob


def sentence(job: BackfillJob) -> str:
    """Its state, how far it is, how fast, and about how long it takes yet."""
    of = f" of about {job.expected:,}" if job.expected else ""
    rate = job.per_second() if job.state == "ACTIVE" else None
    left = job.seconds_left()
    speed = f", {rate[0]:,.0f} rows/s ({size(int(rate[1]))}/s)" if rate else ""
    time = "" if left is None else f", about {duration(left)} left"
    reason = "".join(f": {why}" for why in (job.request.reason, job.message) if why)
    return (
        f"{job.request.table}: backfill {job.request.id} is {job.state}, {job.rows:,}{of} rows "
        f"({size(job.bytes)}) in {job.chunks:,} chunks{speed}{time}{reason}"
    )
