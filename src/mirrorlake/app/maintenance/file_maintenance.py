"""Looking after the files of tables between batches (CF-156): few data files, a recent checkpoint.

Nothing depends on it: rows are right without it, and what does not succeed is left to the next
batch. What is short is done within the cycle, what is long beside it. A table whose files are
compacted waits with its batches, for as long as one step of that takes, which is no larger than a
batch (`mirror/compaction.py`). Tables that are written together become due together: what is not
begun at once waits for the next batch of its table, or for the end of the batches, and no batch for
the turn of its table. For a checkpoint none waits.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import structlog

from mirrorlake.app.loop.background import BackgroundJobs, Kind
from mirrorlake.errors import TableError
from mirrorlake.mirror.batch_limits import CHECKPOINT_EVERY
from mirrorlake.mirror.engine import Applied, Conflicted, Failed, MirrorEngine, Outcome, Unknown
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.mirror.steps import ApplyFiles, Compact, TablePlan
from mirrorlake.model.clock import Clock

log = structlog.get_logger()

FILES_COMPACTED = "files_compacted"
COMPACTION_DEFERRED = "compaction_deferred"
COMPACTION_FAILED = "compaction_failed"
CHECKPOINT_WRITTEN = "checkpoint_written"
CHECKPOINT_FAILED = "checkpoint_failed"
REST_SECONDS = 600.0
"""After a compaction that failed, and may have cost an executor, or found nothing to do."""


@dataclass(frozen=True, slots=True)
class WrittenBatch:
    """A table that has just got a batch. version: the one that holds it."""

    plan: TablePlan
    step: ApplyFiles
    version: int


class FileMaintenance:
    """For the tables of one loop. before_commit: refuses a commit by raising; may_clean_log:
    whether the log of the table at a path may be cleaned, as a checkpoint does."""

    def __init__(
        self,
        engine: MirrorEngine,
        background: BackgroundJobs,
        before_commit: Callable[[], None],
        settings: MirrorSettings,
        clock: Clock,
        may_clean_log: Callable[[str], bool] = lambda _path: True,
    ) -> None:
        self._engine, self._background, self._before_commit = engine, background, before_commit
        self._settings, self._clock = settings, clock
        self._may_clean_log = may_clean_log
        self._last_checkpoint: dict[
            str, int
        ] = {}  # version up to which a checkpoint was begun, by path
        self._rests: dict[str, float] = {}  # until when files are left as they are, by path
        self._due: dict[str, Compact] = {}  # whose turn has not come, by path
        self._turns: dict[str, int] = {}  # when each had its last one, by path
        self._turn = itertools.count(1)

    def after(self, written: Sequence[WrittenBatch]) -> None:
        """Do what tables need that were just written."""
        for one in written:
            self._checkpoint(one.step.path, one.version)
        if self._settings.compaction:
            self._compact(written)

    def finish(self) -> None:
        """Rearrange what is still due, when there are no more batches that would wait for it."""
        while self._due:
            _path, step = self._due.popitem()
            if self._engine.compaction(step.path) is not None:
                self._report([step], self._engine.compact([step], self._before_commit))

    def _compact(self, written: Sequence[WrittenBatch]) -> None:
        short, together, limits = [], 0, self._settings.limits
        # Whose turn is longest ago comes first: one that is always due keeps none waiting for ever.
        for one in sorted(written, key=lambda one: self._turns.get(one.step.path, 0)):
            if self._clock.monotonic() < self._rests.get(one.step.path, 0.0):
                continue
            step = self._engine.compaction(one.step.path)
            self._due.pop(one.step.path, None)
            if step is None:
                continue
            if not limits.is_large(together + step.rows):
                short.append(step)
                together += step.rows
            elif limits.is_large(step.rows) and self._background.may_compact:
                work = partial(self._engine.compact, [step], self._before_commit)
                on_done = partial(self._report, [step])
                self._background.begin(Kind.COMPACTION, work, [one.plan], on_done)
            else:
                self._due[one.step.path] = step
                continue
            self._turns[one.step.path] = next(self._turn)
        if short:
            self._report(short, self._engine.compact(short, self._before_commit))

    def _report(self, steps: Sequence[Compact], outcomes: Sequence[Outcome | None]) -> bool:
        """Say what became of compactions. No table has got on by them."""
        for step, outcome in zip(steps, outcomes, strict=True):
            match outcome:
                case Applied(version):
                    log.info(FILES_COMPACTED, table=str(step.table), version=version)
                case Conflicted(reason) | Unknown(reason):
                    log.info(COMPACTION_DEFERRED, table=str(step.table), reason=reason)
                case Failed(error):
                    log.warning(COMPACTION_FAILED, table=str(step.table), code=error.code)
            if outcome is None or isinstance(outcome, Failed):
                self._rests[step.path] = self._clock.monotonic() + REST_SECONDS
        return False

    def _checkpoint(self, path: str, version: int) -> None:
        begun = self._last_checkpoint.get(path, version + 1)
        if begun > version:  # not known yet, or made anew since
            begun = self._last_checkpoint[path] = _last_due(path, version)
        if version - begun >= CHECKPOINT_EVERY:
            self._last_checkpoint[path] = version
            work = partial(self._write_checkpoint, path, version)
            self._background.begin(Kind.MAINTENANCE, work)

    def _write_checkpoint(self, path: str, version: int) -> None:
        if not self._may_clean_log(path):
            return
        began = self._clock.monotonic()
        try:
            self._engine.checkpoint(path)
        except TableError as error:
            log.warning(CHECKPOINT_FAILED, path=path, code=error.code)
        else:
            seconds = round(self._clock.monotonic() - began, 3)
            log.info(CHECKPOINT_WRITTEN, path=path, version=version, seconds=seconds)


def _last_due(path: str, version: int) -> int:
    """The version at which a table was due last. Tables that are written together are due one after
    another: many checkpoints at once would take both cores from the cycles for seconds."""
    return version - (version - zlib.crc32(path.encode())) % CHECKPOINT_EVERY
