"""Divides event files into batches, and what is read of these into what a replay applies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from mirrorlake.apply.events.listing import FoundFile
from mirrorlake.apply.events.reading import FileEvents

BATCH_BYTES, BATCH_FILES = 384 << 20, 1_000
"""Maximum size and number of files that are applied together, because their events are held in
memory. With many keys, each batch reads most of the table, so that few large ones are faster."""


def chosen(
    groups: Iterator[Sequence[FileEvents]], only: Sequence[np.ndarray | None]
) -> Iterator[Sequence[FileEvents]]:
    """Groups with one entry per file, of which only the events with some numbers are left: `only`
    of each file, None for all; all of all files without it."""
    for parts in groups:
        yield [_only(part, rows) for part, rows in zip(parts, only, strict=True)] if only else parts
        del parts  # before the next ones are read


def _only(part: FileEvents, rows: np.ndarray | None) -> FileEvents:
    if rows is None:
        return part
    found = (events.only(np.isin(events.row, rows)) for events in part.tables)
    return replace(part, tables=[events for events in found if len(events)])


def batches_of(files: Iterable[FoundFile], *, by_folder: bool = False) -> Iterator[list[FoundFile]]:
    """by_folder: files of one folder are divided only where they are too large together."""
    batch: list[FoundFile] = []
    size = 0
    for file in files:
        is_full = len(batch) >= BATCH_FILES
        if is_full and not (by_folder and _folder(file) == _folder(batch[-1])):
            yield batch
            batch, size = [], 0
        while batch and size + file.unpacked_size > BATCH_BYTES:
            part = _folders_before(batch, file) if by_folder else batch
            yield part
            batch = batch[len(part) :]
            size = sum(one.unpacked_size for one in batch)
        batch.append(file)
        size += file.unpacked_size
    if batch:
        yield batch


def _folders_before(batch: Sequence[FoundFile], file: FoundFile) -> list[FoundFile]:
    """The files of other folders than the one of the next file; all if there are none."""
    return [one for one in batch if _folder(one) != _folder(file)] or [*batch]


def _folder(file: FoundFile) -> str:
    return file.path.rpartition("/")[0]
