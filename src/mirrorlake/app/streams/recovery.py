"""How a stream goes on after its place in the log of its source was lost (ST-335)."""

from __future__ import annotations

from contextlib import closing

from mirrorlake.app.mirror import Mirror
from mirrorlake.app.reset import plan_reset
from mirrorlake.config import Project


def recover(project: Project) -> None:
    """Repair a stream: it goes on at the end of the log, and its tables are compared with the
    source. Where nothing can be corrected, as in event files, all tables are loaded again.

    May be repeated after a crash. Raises LeaseHeld while capture runs, UsageError,
    PrerequisiteMissing.
    """
    with closing(Mirror(project).capture()) as capture:
        repair = capture.repair()
        if not repair.refused:
            repair.done()
            return
    plan_reset(project, None).execute()
