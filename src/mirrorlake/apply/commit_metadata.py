"""The commit metadata of a batch, format version 1.

It is the only record of what was applied, and is committed together with the rows. Everything that
is shown about files, totals and states is derived from it. Facts about the whole table are copied
from commit to commit, so they outlive the retention of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from mirrorlake.landing.file_identity import Identity
from mirrorlake.landing.scan import Landed
from mirrorlake.mirror.engine import Counts
from mirrorlake.mirror.steps import ApplyFiles
from mirrorlake.mirror.table.progress import Progress
from mirrorlake.model.applied import FileRows, Totals, in_runs
from mirrorlake.model.change import Marker
from mirrorlake.model.landed import format_time

RUNS = 200
"""Maximum number of entries for files in a commit; more files are joined into equal runs."""

Rows = tuple[int, int, int, int]
"""Inserts, updates, deletes, upserts."""


def by_marker(marker: pa.Array | pa.ChunkedArray) -> Rows:
    """The number of rows of each marker."""
    counts = np.bincount(marker.to_numpy(zero_copy_only=False), minlength=Marker.UPSERT + 1)
    insert, update, delete, upsert = (int(counts[value]) for value in Marker)
    return insert, update, delete, upsert


def commit_metadata(
    step: ApplyFiles,
    before: Progress,
    counts: Counts,
    read: Sequence[Rows],
    identity: Callable[[Landed], Identity | None],
) -> dict[str, Any]:
    """The `userMetadata` of the commit.

    before: the progress of the version that the batch was computed on; read: rows of each of
    `step.files`; identity: returns the current identity of a landed file, None if it is missing.
    """
    previous = before.batch
    total = (previous.total if previous else Totals()) + Totals(
        counts.insert, counts.update, counts.delete, counts.duplicates, step.evidence.landed_bytes
    )
    metadata: dict[str, Any] = {
        "mirrorlake": 1,
        "files": [step.first, step.last],
        "on": before.version,
        "positions": list(step.evidence.positions) if step.evidence.positions else None,
        "cut": step.evidence.cut,
        "rows": {"insert": counts.insert, "update": counts.update, "delete": counts.delete},
        "total": total.as_record(),
        "read": [run.as_record() for run in in_runs(_files(step, read), RUNS)],
    }
    if step.names:
        metadata["names"] = list(step.names)
    if counts.duplicates:
        metadata["duplicates"] = counts.duplicates
    if step.evidence.source_time is not None:
        metadata["source_time"] = format_time(step.evidence.source_time)
    if step.evidence.loading:
        metadata["loading"] = True
    if step.backfill:
        metadata["backfill"] = {"id": step.backfill.backfill, "chunk": step.backfill.number}
    return metadata | _folder_identity(step, before, identity)


def _files(step: ApplyFiles, read: Sequence[Rows]) -> list[FileRows]:
    """The rows of each file, by number; in timestamp mode by the index of its name, from 1."""
    if step.names:
        return [FileRows(index, index, rows) for index, rows in enumerate(read, start=1)]
    files = [
        FileRows(file.number, file.number, rows)
        for file, rows in zip(step.files, read, strict=True)
    ]
    begin = step.files[0].number if step.files else step.last + 1
    unread = [FileRows(step.first, begin - 1, None)] if begin > step.first else []
    return unread + files


def _folder_identity(
    step: ApplyFiles, before: Progress, identity: Callable[[Landed], Identity | None]
) -> dict[str, Any]:
    """The facts by which a recreated folder of another publisher is detected; our own publisher
    writes a generation instead."""
    if step.evidence.positions is not None:
        return {}
    found = {
        "last": identity(step.files[-1]) if step.names else _identity_of(step, step.last, identity),
        "begin": _begin(step, before, identity),
    }
    known = {name: file.as_record() for name, file in found.items() if file is not None}
    return known | ({"described": step.evidence.described} if step.evidence.described else {})


def _identity_of(
    step: ApplyFiles, number: int, identity: Callable[[Landed], Identity | None]
) -> Identity | None:
    file = next((file for file in step.files if file.number == number), None)
    return identity(file) if file else None


def _begin(
    step: ApplyFiles, before: Progress, identity: Callable[[Landed], Identity | None]
) -> Identity | None:
    """The identity of file 1, if there is a single sequence."""
    if step.names:
        return None
    return _identity_of(step, 1, identity) if step.first == 1 else before.begin
