"""What the commit of a batch says of it, format version 1.

It is the one record of what was applied: written with the rows or not at all. Every later view, of
files, totals and states, is read from it, so that none can say something else. What concerns the
table as a whole is carried on from commit to commit, and so outlives the log's retention.
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
"""Files that are acknowledged one by one in a commit; of more, equal runs are."""

Rows = tuple[int, int, int, int]
"""Inserts, updates, deletes, upserts."""


def by_marker(marker: pa.Array | pa.ChunkedArray) -> Rows:
    """How many rows of a file have which marker."""
    counts = np.bincount(marker.to_numpy(zero_copy_only=False), minlength=Marker.UPSERT + 1)
    insert, update, delete, upsert = (int(counts[one]) for one in Marker)
    return insert, update, delete, upsert


def commit_metadata(
    step: ApplyFiles,
    before: Progress,
    counts: Counts,
    read: Sequence[Rows],
    identity: Callable[[Landed], Identity | None],
) -> dict[str, Any]:
    """The commit's userMetadata.

    before: the table that the batch was computed on; read: rows of each of `step.files`; identity:
    of a landed file now, None when it is gone.
    """
    previous = before.batch
    total = (previous.total if previous else Totals()) + Totals(
        counts.insert, counts.update, counts.delete, counts.duplicates, step.evidence.landed_bytes
    )
    said: dict[str, Any] = {
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
        said["names"] = list(step.names)
    if counts.duplicates:
        said["duplicates"] = counts.duplicates
    if step.evidence.source_time is not None:
        said["source_time"] = format_time(step.evidence.source_time)
    if step.evidence.loading:
        said["loading"] = True
    if step.backfill:
        said["backfill"] = {"id": step.backfill.backfill, "chunk": step.backfill.number}
    return said | _folder(step, before, identity)


def _files(step: ApplyFiles, read: Sequence[Rows]) -> list[FileRows]:
    """By number; in timestamp mode by the place of the name among those of the batch, from 1 on."""
    if step.names:
        return [FileRows(index, index, rows) for index, rows in enumerate(read, start=1)]
    files = [
        FileRows(file.number, file.number, rows)
        for file, rows in zip(step.files, read, strict=True)
    ]
    begin = step.files[0].number if step.files else step.last + 1
    unread = [FileRows(step.first, begin - 1, None)] if begin > step.first else []
    return unread + files


def _folder(
    step: ApplyFiles, before: Progress, identity: Callable[[Landed], Identity | None]
) -> dict[str, Any]:
    """How the folder of others is known again, who write no generation."""
    if step.evidence.positions is not None:
        return {}
    found = {
        "last": identity(step.files[-1]) if step.names else _of(step, step.last, identity),
        "begin": _begin(step, before, identity),
    }
    known = {name: one.as_record() for name, one in found.items() if one is not None}
    return known | ({"described": step.evidence.described} if step.evidence.described else {})


def _of(
    step: ApplyFiles, number: int, identity: Callable[[Landed], Identity | None]
) -> Identity | None:
    file = next((file for file in step.files if file.number == number), None)
    return identity(file) if file else None


def _begin(
    step: ApplyFiles, before: Progress, identity: Callable[[Landed], Identity | None]
) -> Identity | None:
    """File 1, where there is one sequence."""
    if step.names:
        return None
    return _of(step, 1, identity) if step.first == 1 else before.begin
