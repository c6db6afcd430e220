"""Detects whether the folder of another publisher was recreated since its table was created
(LZ-232, LZ-233).

Our own publisher writes a generation; for other publishers only the files show it. A recreated
folder begins again at number 1, so its new files have numbers that were already applied. If it is
certain that the folder was recreated, the table is rebuilt; if it is only likely, the table stops.
Moving the new files to the cleanup folder would lose them silently (LZ-251), and rebuilding the
table from a part of its files would lose rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mirrorlake.errors import ForeignTable, printable
from mirrorlake.landing.file_identity import Identity
from mirrorlake.landing.metadata import NAMED
from mirrorlake.landing.scan import Landed, TableScan
from mirrorlake.mirror.table.processed import Processed
from mirrorlake.mirror.table.progress import Progress
from mirrorlake.model.landed import PartName

Tail = Callable[[Landed], str]


def is_recreated(scan: TableScan, progress: Progress, tail: Tail) -> bool:
    """Whether the folder was certainly recreated: file 1 exists, and differs from the applied one,
    or `_metadata.json` was also rewritten. False for files without a single sequence.

    The identity of a folder proves nothing, because copies change it. Neither does a rewritten
    applied file while the last applied file still exists (LZ-268), nor a rewritten
    `_metadata.json`.
    """
    if NAMED & {scan.detection, progress.detection}:
        return False
    first = scan.files[0] if scan.files else None
    if first is None or first.number != 1 or not progress.recorded or progress.begin is None:
        return False
    if _is_untouched(first, progress.begin):
        return False
    left = {file.number: file for file in scan.files if file.number <= progress.recorded}
    last = left.get(progress.recorded)
    kept = last is not None and (progress.last is None or _is_same(last, progress.last, tail))
    rewritten = bool(progress.described) and _metadata_etag(scan) != progress.described
    if kept:
        # All files exist, so nothing can be lost. A copied folder in this state is also read again.
        return rewritten and 1 < progress.recorded == len(left)
    if last is None and any(file.number == progress.recorded for file in scan.moved()):
        return False
    other = not _is_same(first, progress.begin, tail)
    return rewritten or (other and progress.recorded > 1)


def is_recreated_unnumbered(
    scan: TableScan, progress: Progress, applied: Processed, tail: Tail
) -> bool:
    """Whether a folder without a single sequence was recreated: no applied file is left.

    New names prove nothing, and known names are skipped (LZ-127). The evidence is a rewritten
    `_metadata.json` (LZ-233) if the last applied file, which is never moved, no longer exists, and
    there is no cleanup folder. With numbers in partition folders, the last applied file may also
    have been replaced by another.
    """
    if not scan.files or not applied.last or scan.has_cleanup:
        return False
    if not progress.described or _metadata_etag(scan) == progress.described:
        return False
    last = next((file for file in scan.files if str(file.name) == applied.last), None)
    if last is None or progress.last is None:
        return last is None
    return isinstance(last.name, PartName) and not _is_same(last, progress.last, tail)


def missing_last_file(scan: TableScan, applied: Processed) -> ForeignTable | None:
    """The error if the files of a partition folder cannot be those that were applied under their
    numbers: the last applied file is missing, but earlier ones exist (LZ-243)."""
    left: dict[str, int] = {}
    for file in scan.files:
        if isinstance(file.name, PartName) and file.number <= applied.numbers.get(
            file.name.folder, 0
        ):
            left[file.name.folder] = max(file.number, left.get(file.name.folder, 0))
    for folder, number in left.items():
        recorded = applied.numbers[folder]
        if number != recorded and not _is_in_cleanup(scan, folder, recorded):
            what = f"is missing from {printable(folder or 'the table folder')}, while file {number}"
            return _seems_recreated(scan, recorded, f"{what} is there")
    return None


def _is_in_cleanup(scan: TableScan, folder: str, number: int) -> bool:
    return any(
        isinstance(file.name, PartName) and (file.name.folder, file.number) == (folder, number)
        for file in scan.moved()
    )


def likely_recreated(scan: TableScan, progress: Progress, tail: Tail) -> ForeignTable | None:
    """The error if the files of the folder cannot be those that were applied under their numbers.

    Applied files are moved to the cleanup folder in ascending order, except the last (LZ-243), so
    the remaining ones must end with the recorded number.
    """
    recorded = progress.recorded
    left = [file for file in scan.files if file.number <= recorded]
    if not left:
        return None
    if left[-1].number != recorded:
        if any(file.number == recorded for file in scan.moved()):
            return None
        return _seems_recreated(scan, recorded, f"is missing, while file {left[0].number} is there")
    if progress.last is not None and not _is_same(left[-1], progress.last, tail):
        return _seems_recreated(
            scan, recorded, "is not the file that was applied under this number"
        )
    return _reappeared(scan, left, recorded)


def _metadata_etag(scan: TableScan) -> str:
    return scan.described.etag if scan.described else ""


def _is_untouched(file: Landed, applied: Identity) -> bool:
    return (file.size, file.modified) == (applied.size, applied.modified)


def _is_same(file: Landed, applied: Identity, tail: Tail) -> bool:
    if file.size != applied.size:
        return False
    return file.modified == applied.modified or tail(file) in {"", applied.tail}


def _reappeared(scan: TableScan, left: Sequence[Landed], recorded: int) -> ForeignTable | None:
    """The error for a number that is both in the folder and in the cleanup folder.

    The cleanup folder is large, so it is listed only if the remaining numbers have gaps, or an
    earlier file is newer than the last one.
    """
    gaps = left[-1].number - left[0].number + 1 != len(left)
    if not gaps and all(file.modified <= left[-1].modified for file in left):
        return None
    aside = {file.number for file in scan.moved()}
    again = [file for file in left if file.number in aside]
    if not again:
        return None
    return ForeignTable(
        f"file {again[0].number} was applied and moved to the cleanup folder, but is in the "
        f"table folder again; the last applied file is {recorded}",
        table=str(scan.table),
        file=str(again[0].name),
        hint="Delete it and publish its rows under the next number (LZ-268); or, "
        + _reset_hint(scan),
    )


def _seems_recreated(scan: TableScan, recorded: int, what: str) -> ForeignTable:
    return ForeignTable(
        f"its folder seems to be recreated: file {recorded}, the last one applied, {what}",
        table=str(scan.table),
        hint=(
            f"Restore file {recorded} as it was, or recreate the folder from file 1 with its "
            "_metadata.json (LZ-239); or, "
        )
        + _reset_hint(scan),
    )


def _reset_hint(scan: TableScan) -> str:
    return (
        "if the folder was recreated with all its data, delete its _FilesReadyToDelete and run "
        f"`mirrorlake reset {scan.table}`."
    )
