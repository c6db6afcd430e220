"""Whether the folder of another publisher was recreated since its table was made (LZ-232, LZ-233).

Our own publisher writes a generation; others leave only their files. Such a folder begins again at
number 1, so that its numbers say "applied" of files that never were. Where that can be seen the
table stops, because moving these files aside would lose them silently (LZ-251).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mirrorlake.errors import ForeignTable
from mirrorlake.landing.identity import Identity
from mirrorlake.landing.scan import Landed, TableScan
from mirrorlake.mirror.progress import Progress


def recreation(
    scan: TableScan, progress: Progress, tail: Callable[[Landed], str]
) -> ForeignTable | None:
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
        return _stop(scan, recorded, f"is gone, and file {left[0].number} is there")
    if progress.last is not None and not _is_same(left[-1], progress.last, tail):
        return _stop(scan, recorded, "is not the file that was applied under this number")
    return _again(scan, left, recorded)


def _is_same(file: Landed, applied: Identity, tail: Callable[[Landed], str]) -> bool:
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
        f"file {again[0].number} was applied and put aside, and is in the folder again; the last "
        f"one applied was {recorded}",
        table=str(scan.table),
        file=str(again[0].name),
        hint="Remove it, and land its rows under the next number (LZ-268); or " + _anew(scan),
    )


def _stop(scan: TableScan, recorded: int, what: str) -> ForeignTable:
    return ForeignTable(
        f"its folder seems to be recreated: file {recorded}, the last one applied, {what}",
        table=str(scan.table),
        hint=f"Put back file {recorded} as it was; or " + _anew(scan),
    )


def _anew(scan: TableScan) -> str:
    return (
        "if the folder was recreated with all its data, remove its _FilesReadyToDelete and run "
        f"`mirrorlake reset {scan.table}`."
    )
