"""The batches of one table: the file numbers and the progress of each.

The following order of effects ensures that no batch is lost or published twice; each arrow has a
crash test:

    numbers assigned → files staged → table described → batch sealed → files published → recorded

A sealed batch is complete under underscore names, with the digest of each file: the next run can
publish it without its rows. No file of an unsealed batch is visible, and the batch starts over.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import structlog

from mirrorlake.errors import BatchPending, NameTaken
from mirrorlake.landing.scan import CLEANUP_FOLDERS
from mirrorlake.model.crash_points import CrashHook, CrashPoint
from mirrorlake.model.types import DataType
from mirrorlake.publisher import state as states
from mirrorlake.publisher.locations import Workshop
from mirrorlake.publisher.state import Assignment, DataFile, State
from mirrorlake.storage.store import Store

log = structlog.get_logger()

BATCH_COMPLETED = "batch_completed"
BATCH_WITHDRAWN = "batch_withdrawn"

_NUMBER = re.compile(r"([0-9]{20})[.-]")


class Outcome(StrEnum):
    PUBLISHED = "published"
    ALREADY_PUBLISHED = "already published"


@dataclass(frozen=True, slots=True)
class Published:
    """The result of a batch: its files in order, and its rows by operation."""

    table: str
    batch: str | None
    outcome: Outcome
    files: tuple[DataFile, ...]

    @property
    def rows(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for file in self.files:
            for kind, count in file.rows.items():
                counts[kind] = counts.get(kind, 0) + count
        return counts

    def facts(self) -> dict[str, Any]:
        """As printed by `mirrorlake publish --json`."""
        return {
            "table": self.table,
            "batch": self.batch,
            "outcome": str(self.outcome),
            "rows": self.rows,
            "files": [
                {"number": file.number, "name": file.name, "size": file.size} for file in self.files
            ],
        }


class Journal:
    """The journal of one table. state: the durable state. Not thread-safe."""

    def __init__(
        self,
        store: Store,
        workshop: Workshop,
        state: State,
        reached: CrashHook,
        keep: Callable[[], None],
        *,
        table: str,
    ) -> None:
        """keep: called before each visible step; raises if the lease is lost."""
        self._store, self._workshop, self._table = store, workshop, table
        self._folder = workshop.table
        self._reached, self._keep = reached, keep
        self.state = state

    def save(self, state: State) -> None:
        states.save(self._store, self._folder, state)
        self.state = state

    def complete(self) -> None:
        """Publish a batch that an earlier run left sealed (LZ-136).

        A batch without a name, none of whose files are visible, is not published: its caller got no
        result, and sends it again. Raises NameTaken (LZ-137).
        """
        pending = self.state.pending
        if pending is None or not pending.is_sealed:
            return
        if pending.batch is None and not self.is_visible(pending):
            return
        if self._finish(pending):
            log.warning(BATCH_COMPLETED, table=self._table, first=pending.first)
        else:  # a staged file is missing: the batch starts over
            self.save(replace(self.state, pending=replace(pending, files=None)))

    def published(self, batch: str | None) -> Published | None:
        """The batch if it is already published (LZ-135): its files are the assigned ones.

        Raises NameTaken if a path has other content (LZ-137).
        """
        done = self.state.known(batch)
        if done and all(self._is_there(f) or self._was_consumed(f) for f in done.files or ()):
            return self._result(done, Outcome.ALREADY_PUBLISHED)
        return None

    def begin(self, batch: str | None) -> None:
        """Prepare for a batch: a pending batch must be the same one, or is withdrawn.

        A finished batch with a missing file gets its numbers again, so that a bad file that was
        deleted can be replaced (LZ-268). Raises BatchPending if another named batch is pending,
        which only its caller can send again.
        """
        pending = self.state.pending
        if pending and pending.batch is not None and pending.batch != batch:
            raise BatchPending(
                f"batch {pending.batch!r} was started but is not published yet",
                table=self._table,
                hint="First publish it again under its name, or withdraw it with `mirrorlake "
                f"publish --give-up {pending.batch} --table {self._table}`.",
            )
        if pending and pending.batch is None:
            log.warning(BATCH_WITHDRAWN, table=self._table, first=pending.first)
            self.withdraw()
        if (done := self.state.known(batch)) and self.state.pending is None:
            self.save(replace(self.state, pending=replace(done, files=None)))

    def assign(self, batch: str | None) -> Assignment:
        """Assign file numbers to a batch; durable before anything of it is written (LZ-121)."""
        assigned = self.state.pending or Assignment(batch, self.next_number())
        self.save(replace(self.state, pending=assigned))
        self._reached(CrashPoint.BATCH_ASSIGNED)
        self._workshop.clean_up(self._store)
        return assigned

    def withdraw(self) -> None:
        """Drop a batch without visible files; the next batch gets its numbers."""
        self.save(replace(self.state, pending=None))
        self._workshop.clean_up(self._store)

    def publish(
        self, files: Sequence[DataFile], columns: Mapping[str, DataType], *, marked: bool
    ) -> Published:
        """Seal the assigned batch and give its staged files their final names. Raises NameTaken."""
        assigned = self.state.pending
        assert assigned is not None
        sealed = replace(assigned, files=tuple(files), columns=dict(columns), marked=marked)
        self._check_count(sealed)
        self.save(replace(self.state, pending=sealed))
        self._reached(CrashPoint.BATCH_SEALED)
        if not self._finish(sealed):
            raise NameTaken(
                "its staged file was removed before it was published",
                table=self._table,
                hint="Another process removed it. Stop that process, and publish the batch again.",
            )
        return self._result(sealed, Outcome.PUBLISHED)

    def is_visible(self, sealed: Assignment) -> bool:
        """Whether any file of a sealed batch is visible. Raises NameTaken."""
        return any(self._is_there(file) for file in sealed.files or ())

    def next_number(self) -> int:
        """The number after the recorded one and those of all files in the folder and the cleanup
        folders (LZ-140)."""
        locations = (self._folder, *(f"{self._folder}/{name}" for name in CLEANUP_FOLDERS))
        seen = [
            int(match[1])
            for location in locations
            for entry in self._store.list(location).files
            if (match := _NUMBER.match(entry.name))
        ]
        return max(self.state.next, max(seen, default=0) + 1)

    # -- files ----------------------------------------------------------------------------------

    def _finish(self, sealed: Assignment) -> bool:
        """Publish the files of a sealed batch and record it; False if a staged file is lost."""
        for file in sealed.files or ():
            self._keep()
            if not self._publish(file):
                return False
            self._reached(CrashPoint.BATCH_PUBLISHED_ONE)
        self._keep()
        self.save(self.state.finished(sealed))
        self._reached(CrashPoint.BATCH_RECORDED)
        return True

    def _publish(self, file: DataFile) -> bool:
        final = f"{self._folder}/{file.name}"
        for staged in self._workshop.paths(file.name):
            try:
                self._store.publish(staged, final)
            except FileExistsError:
                self._check(final, file)
                self._store.flush(self._folder)  # its run may not have flushed it
                self._store.delete(staged)
            except FileNotFoundError:
                continue
            return True
        self._store.flush(self._folder)
        return self._is_there(file) or self._was_consumed(file)

    def _is_there(self, file: DataFile) -> bool:
        """Whether the file is in the folder or in the cleanup folder. Raises NameTaken."""
        for location in (self._folder, *(f"{self._folder}/{name}" for name in CLEANUP_FOLDERS)):
            if any(entry.name == file.name for entry in self._store.list(location).files):
                self._check(f"{location}/{file.name}", file)
                return True
        return False

    def _was_consumed(self, file: DataFile) -> bool:
        """Whether the mirror has applied and deleted a file that does not exist any more.

        Files move to the cleanup folder in the order of their numbers, except the last (LZ-243,
        LZ-244). So if a lower number is left, or nothing was moved, another program deleted the
        file.
        """
        listing = self._store.list(self._folder)
        numbers = [int(m[1]) for entry in listing.files if (m := _NUMBER.match(entry.name))]
        moved = any(name in listing.folders for name in CLEANUP_FOLDERS)
        return moved and bool(numbers) and min(numbers) > file.number

    def _check(self, path: str, file: DataFile) -> None:
        """Check that a path has the content that was assigned to it."""
        digest, size = hashlib.sha256(), 0
        with self._store.open(path) as handle:
            while part := handle.read(1 << 20):
                digest.update(part)
                size += len(part)
        if (size, digest.hexdigest()) != (file.size, file.sha256):
            raise NameTaken(
                "the path of this batch already has other content (LZ-137)",
                table=self._table,
                file=file.name,
                hint="If two publishers write to this table, stop one of them. Then decide which "
                "content is right; nothing was overwritten.",
            )

    def _check_count(self, sealed: Assignment) -> None:
        """A batch that is published again keeps its numbers."""
        before = next((done for done in self.state.done if done.first == sealed.first), None)
        if before and len(before.files or ()) != len(sealed.files or ()):
            raise NameTaken(
                f"the batch had {len(before.files or ())} files and now has "
                f"{len(sealed.files or ())}",
                table=self._table,
                hint="Publish it with the same rows and settings as before.",
            )

    def _result(self, batch: Assignment, outcome: Outcome) -> Published:
        return Published(self._table, batch.batch, outcome, batch.files or ())
