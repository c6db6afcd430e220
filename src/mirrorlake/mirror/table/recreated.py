"""Whether the folder of another publisher was recreated since its table was made (LZ-232, LZ-233).

Our own publisher writes a generation; others leave only their files. Such a folder begins again at
number 1, so that its numbers say "applied" of files that never were. A table begins anew where that
is certain, and stops where it only seems so: moving these files aside would lose them silently
(LZ-251), and beginning anew from a part of them would lose what was applied.
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
    """Whether the folder begins again: file 1 is there, and is not, or not only, the one applied.
    Names without numbers do not tell it.

    The identity of a folder alone proves nothing, since copies change it. Neither does an applied
    file that was written over, as long as the last one applied stands beside it (LZ-268), nor a
    `_metadata.json` that was written again.
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
    rewritten = bool(progress.described) and _described(scan) != progress.described
    if kept:
        # All files are there, so that nothing can be lost; a copy in this state is read again too.
        return rewritten and 1 < progress.recorded == len(left)
    if last is None and any(file.number == progress.recorded for file in scan.moved()):
        return False
    other = not _is_same(first, progress.begin, tail)
    return rewritten or (other and progress.recorded > 1)


def is_begun_anew(scan: TableScan, progress: Progress, applied: Processed, tail: Tail) -> bool:
    """Whether a folder without one sequence begins again: nothing of what was applied is left.

    Names that are new do not tell it, and names that are not are passed over (LZ-127). What tells
    it is a `_metadata.json` that was written again (LZ-233), where the last applied file, which
    stays, is gone, and with it whatever cleanup folder there was. Where files have numbers in their
    partition folders, a last one that is another file is gone too.
    """
    if not scan.files or not applied.last or scan.has_cleanup:
        return False
    if not progress.described or _described(scan) == progress.described:
        return False
    last = next((file for file in scan.files if str(file.name) == applied.last), None)
    if last is None or progress.last is None:
        return last is None
    return isinstance(last.name, PartName) and not _is_same(last, progress.last, tail)


def lost_last(scan: TableScan, applied: Processed) -> ForeignTable | None:
    """Why files of a partition folder cannot be those that were applied under their numbers: the
    last of them is gone, and earlier ones are there (LZ-243)."""
    left: dict[str, int] = {}
    for file in scan.files:
        if isinstance(file.name, PartName) and file.number <= applied.numbers.get(
            file.name.folder, 0
        ):
            left[file.name.folder] = max(file.number, left.get(file.name.folder, 0))
    for folder, number in left.items():
        recorded = applied.numbers[folder]
        if number != recorded and not _is_aside(scan, folder, recorded):
            what = f"is missing from {printable(folder or 'the table folder')}, while file {number}"
            return _stop(scan, recorded, f"{what} is there")
    return None


def _is_aside(scan: TableScan, folder: str, number: int) -> bool:
    return any(
        isinstance(file.name, PartName) and (file.name.folder, file.number) == (folder, number)
        for file in scan.moved()
    )


def recreation(scan: TableScan, progress: Progress, tail: Tail) -> ForeignTable | None:
    """Why files of the folder cannot be those that were applied under their numbers.

    Applied files go aside in ascending order, and never the last of them (LZ-243): what is left of
    them in the folder ends with the recorded number.
    """
    recorded = progress.recorded
    left = [file for file in scan.files if file.number <= recorded]
    if not left:
        return None
    if left[-1].number != recorded:
        if any(file.number == recorded for file in scan.moved()):
            return None
        return _stop(scan, recorded, f"is missing, while file {left[0].number} is there")
    if progress.last is not None and not _is_same(left[-1], progress.last, tail):
        return _stop(scan, recorded, "is not the file that was applied under this number")
    return _again(scan, left, recorded)


def _described(scan: TableScan) -> str:
    return scan.described.etag if scan.described else ""


def _is_untouched(file: Landed, applied: Identity) -> bool:
    return (file.size, file.modified) == (applied.size, applied.modified)


def _is_same(file: Landed, applied: Identity, tail: Tail) -> bool:
    if file.size != applied.size:
        return False
    return file.modified == applied.modified or tail(file) in {"", applied.tail}


def _again(scan: TableScan, left: Sequence[Landed], recorded: int) -> ForeignTable | None:
    """A number that went aside and is in the folder once more.

    The cleanup folder is large; it is looked at only when there are gaps in what is left, or an
    earlier file is younger than the last one.
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
        hint="Delete it and publish its rows under the next number (LZ-268); or, " + _anew(scan),
    )


def _stop(scan: TableScan, recorded: int, what: str) -> ForeignTable:
    return ForeignTable(
        f"its folder seems to be recreated: file {recorded}, the last one applied, {what}",
        table=str(scan.table),
        hint=(
            f"Restore file {recorded} as it was, or recreate the folder from file 1 with its "
            "_metadata.json (LZ-239); or, "
        )
        + _anew(scan),
    )


def _anew(scan: TableScan) -> str:
    return (
        "if the folder was recreated with all its data, delete its _FilesReadyToDelete and run "
        f"`mirrorlake reset {scan.table}`."
    )
