"""Rearranging the files of tables between batches, where it is time (CF-156)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from mirrorlake.mirror.engine import Applied, Conflicted, Failed, MirrorEngine, Unknown
from mirrorlake.mirror.steps import ApplyFiles, Compact

log = structlog.get_logger()

FILES_COMPACTED = "files_compacted"
COMPACTION_DEFERRED = "compaction_deferred"
COMPACTION_FAILED = "compaction_failed"


def rearrange(
    engine: MirrorEngine, applied: Sequence[ApplyFiles], before_commit: Callable[[], None]
) -> None:
    """Look after tables that were just written. What does not succeed is left to the next batch:
    rows are right without it."""
    if not applied:
        return
    steps = [Compact(step.table, step.path, step.key) for step in applied]
    for step, outcome in zip(steps, engine.compact(steps, before_commit), strict=True):
        match outcome:
            case Applied(version):
                log.info(FILES_COMPACTED, table=str(step.table), version=version)
            case Conflicted(reason) | Unknown(reason):
                log.info(COMPACTION_DEFERRED, table=str(step.table), reason=reason)
            case Failed(error):
                log.warning(COMPACTION_FAILED, table=str(step.table), code=error.code)
            case _:
                pass
