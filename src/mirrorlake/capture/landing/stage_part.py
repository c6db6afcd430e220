"""Reads one part of a load and stages its files, in any process on any machine."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from mirrorlake.capture.landing.files.load_files import LoadFiles, groups
from mirrorlake.capture.landing.load_tasks import PartAnswer, PartFailure
from mirrorlake.capture.staged.parts import VersionsFile
from mirrorlake.errors import (
    MirrorlakeError,
    RowsMoved,
    SourceUnavailable,
    StorageUnavailable,
    TableError,
)
from mirrorlake.model.position import Position
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import SharedSnapshot
from mirrorlake.sources.table import SnapshotPart
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.store import Store
from mirrorlake.storage.urls import open_store

STAGED = "_load-"
"""Prefix of the files of a load before it is complete."""

_SAME_STORAGE = "Executors need the same access to the landing zone as capture."

REACH_PAUSES = (1.0, 2.0, 4.0)
"""Seconds between attempts to connect."""


@dataclass(frozen=True, slots=True)
class PartTask:
    """A part, and where its files belong: location, options: those of the folder of the table.
    is_noted: as in `TableTasks.parts`."""

    snapshot: SharedSnapshot
    part: SnapshotPart
    number: int
    is_noted: bool
    location: str
    options: ObjectOptions | None
    stream: str
    stream_id: str
    metadata: bool
    file_bytes: int


def stage_part(task: PartTask, pause: Callable[[float], None] = time.sleep) -> PartAnswer:
    """Stage the rows of a part under names that no other attempt has: only the files in the answer
    that counts are used, whatever else attempts leave behind. Failures are answers as well."""
    server = task.snapshot.server
    try:
        _reach(task.snapshot, pause)
    except MirrorlakeError as error:
        what = f"the executors of Spark cannot connect to {server}: {error.what}"
        hint = "Let their hosts reach it and log in with source.url, or set load.on to capture."
        return PartAnswer(failure=PartFailure.UNREACHABLE, code=error.code, what=what, hint=hint)
    try:
        return _staged(task)
    except MirrorlakeError as error:
        failure = PartFailure.TASK
        if isinstance(error, TableError):
            failure = PartFailure.TABLE
        elif isinstance(error, RowsMoved):
            failure = PartFailure.MOVED
        elif isinstance(error, SourceUnavailable):
            failure = PartFailure.READING
        return PartAnswer(failure=failure, code=error.code, what=error.what, hint=error.hint)
    except OSError as error:
        known = StorageUnavailable.of(error)
        what = f"an executor cannot write to {task.location}: {known.what if known else error}"
        return PartAnswer(
            failure=PartFailure.TASK, what=what, hint=known.hint if known else _SAME_STORAGE
        )


def _reach(snapshot: SharedSnapshot, pause: Callable[[float], None]) -> None:
    for seconds in REACH_PAUSES:
        try:
            return snapshot.reach()
        except SourceUnavailable:
            pause(seconds)
    return snapshot.reach()


def _staged(task: PartTask) -> PartAnswer:
    """Deletes what it has written when the rest fails."""
    store, names = open_store(task.location, task.options), list[str]()
    try:
        return _written(task, store, names)
    except BaseException:
        for name in names:
            store.delete(name)
        raise


def _written(task: PartTask, store: Store, names: list[str]) -> PartAnswer:
    """Adds the names of files to `names` as they are complete."""
    replaced: Counter[str] = Counter()

    def noted(_table: TableId, column: str, count: int) -> None:
        replaced[column] += count

    found: list[tuple[str, int]] = []
    token = f"{STAGED}{uuid.uuid4().hex}-{task.number}"
    snapshot = task.snapshot.open(noted)
    try:
        files = LoadFiles(
            store,
            task.part.table.schema,
            Position(snapshot.point, 0),
            task.stream,
            task.stream_id,
            task.metadata,
        )
        recognising = snapshot.recognising if task.is_noted else None
        versions = f"{token}-versions.parquet"
        with VersionsFile(store, versions) as noting:
            if recognising is not None:
                names.append(versions)
                batches = noting.noted(recognising.versioned(task.part))
            else:
                batches = snapshot.read(task.part)
            for index, group in enumerate(groups(batches, task.file_bytes)):
                name = f"{token}-{index}.parquet"
                found.append((name, files.write(name, group)))
                names.append(name)
    finally:
        snapshot.close()
    has_versions = recognising is not None and found
    rows = sum(count for _name, count in found)
    return PartAnswer(rows, tuple(found), versions if has_versions else "", dict(replaced))
