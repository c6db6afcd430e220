"""Rules on the names and numbers of files (sections 6, 7 and 12 of the specification)."""

from __future__ import annotations

import json
import re
from itertools import groupby, pairwise

from mirrorlake.landing import layout
from mirrorlake.lint.finding import Report, Rule, Severity, counted, listed, shown
from mirrorlake.lint.table_view import PARQUET, TableView, has_metadata, moved_numbers
from mirrorlake.model.landed import FileName
from mirrorlake.storage.store import Store

ERROR, WARNING, NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE

OTHER = Rule(
    "LZ-023",
    "other-file",
    "A file in the table folder is not a data file",
    NOTE,
    "data files, and names that begin with an underscore",
    "The name is not that of a data file, so the file is ignored.",
    "Delete it, or rename it with a leading underscore.",
    "orders/readme.txt",
)
UNNUMBERED = Rule(
    "LZ-023",
    "data-without-number",
    "A data file without a number lies next to numbered files",
    WARNING,
    "20 digits and an extension",
    "In sequential mode a file whose name is not a number is ignored without an error: its rows "
    "are not applied.",
    "Give it the next number, or set `fileDetectionStrategy` to `LastUpdateTimeFileDetection` for "
    "the whole table.",
    "orders/00000000000000000001.parquet\norders/part-0.parquet",
    also=("LZ-112",),
)
SUBFOLDER = Rule(
    "LZ-024",
    "subfolder",
    "A table folder has a subfolder",
    WARNING,
    "data files in the table folder itself",
    "Subfolders of a table folder are ignored, whatever they contain.",
    "Move the files into the table folder, or rename the subfolder with a leading underscore.",
    "orders/2026/00000000000000000001.parquet",
)
PARTITION = Rule(
    "LZ-059",
    "partition-folder",
    "A table folder has partition folders",
    WARNING,
    "data files in the table folder itself",
    "Folders such as `Day=20260128` occur with the undocumented `isPartitionEnabled`, which is "
    "off by default: their files are not read.",
    "Write all files into the table folder, in one sequence; or see [partition folders]"
    "(../partitions.md).",
    "orders/Day=20260128/00000000000000000001.parquet",
)
DIGITS = Rule(
    "LZ-112",
    "number-of-digits",
    "The number in a file name does not have 20 digits",
    ERROR,
    "20 digits and an extension",
    "The name of a data file is exactly 20 digits and an extension. Any other file is ignored, "
    "so its rows are not applied and later numbers wait.",
    "Rename the file, with leading zeros.",
    "orders/1.parquet",
)
ZERO = Rule(
    "LZ-114",
    "number-zero",
    "A file has number 0",
    ERROR,
    "numbers from 00000000000000000001",
    "The sequence starts with 1. A file with number 0 is never applied.",
    "Rename it to the next free number.",
    "orders/00000000000000000000.parquet",
)
GAP = Rule(
    "LZ-117",
    "number-missing",
    "A number of the sequence is missing",
    ERROR,
    "numbers without a gap",
    "Files are applied in the order of their numbers, and neither our engine nor the original "
    "skips a number: all later files wait until the missing one appears.",
    "Publish the missing file. If there never was one, publish a file without rows under its "
    "number.",
    "orders/00000000000000000001.parquet\norders/00000000000000000003.parquet",
    also=(
        "LZ-111",
        "LZ-113",
    ),
)
FIRST = Rule(
    "LZ-119",
    "first-missing",
    "The sequence does not begin with 1",
    ERROR,
    "a first file 00000000000000000001",
    "A new table waits for number 1. If earlier files had been processed, they would be in the "
    "cleanup folder; but there is none.",
    "Publish the file with number 1. If an engine has already applied it and its cleanup folder "
    "was deleted, nothing is wrong.",
    "orders/00000000000000000002.parquet",
    also=("LZ-114",),
)
EQUAL = Rule(
    "LZ-120",
    "number-twice",
    "Two files have the same number",
    ERROR,
    "one file per number",
    "The order of two data files with the same number and different extensions is not defined. "
    "The table stops.",
    "Delete the one that does not belong there.",
    "orders/00000000000000000001.parquet\norders/00000000000000000001.csv",
)
REUSED = Rule(
    "LZ-121",
    "number-reused",
    "A number was used again after its file was processed",
    ERROR,
    "a number above those of processed files",
    "The number is not greater than that of a file which was processed and moved to the cleanup "
    "folder: the new file is considered applied, and its rows are never read.",
    "Publish the rows under the next free number. Determine it from your own record and from the "
    "cleanup folder, not from a listing of the table folder alone.",
    "orders/00000000000000000001.parquet\norders/_FilesReadyToDelete/00000000000000000001.parquet",
)
NO_NUMBERS = Rule(
    "LZ-122",
    "names-without-numbers",
    "No file has a number, and _metadata.json does not select another order",
    ERROR,
    "numbered files, or fileDetectionStrategy LastUpdateTimeFileDetection",
    "Names other than consecutive numbers are supported only if `fileDetectionStrategy` is "
    "`LastUpdateTimeFileDetection`. Without it, all of these files are ignored.",
    "Set the strategy in `_metadata.json`, or number the files.",
    "orders/part-0.parquet",
)
SAME_PATH = Rule(
    "LZ-123",
    "name-reused",
    "A name was used again after its file was processed",
    ERROR,
    "a name that was never used before",
    "With detection by time, a name can be used only once. A processed path that is written "
    "again is not read again.",
    "Publish the rows under a new name, for example one with a random part.",
    "orders/a.parquet\norders/_FilesReadyToDelete/a.parquet",
)
SAME_TIME = Rule(
    "LZ-125",
    "times-equal",
    "Several files have the same modification time",
    NOTE,
    "files whose order does not matter, or times that differ",
    "The original defines no order for equal times; our engine orders such files by path.",
    "If their order matters, number the files.",
    "orders/a.parquet 12:00:00\norders/b.parquet 12:00:00",
)
TEMPORARY = Rule(
    "LZ-131",
    "temporary-name",
    "A temporary file has no leading underscore",
    WARNING,
    "temporary names that begin with an underscore",
    "A file is uploaded under a name that begins with an underscore, and renamed when it is "
    "complete. Other temporary names are ignored only because of their extension, and not at all "
    "with detection by time.",
    "Begin temporary names with an underscore. If nobody is writing this file, delete it.",
    "orders/00000000000000000002.parquet.temp",
    also=("LZ-339",),
)
LEFT = Rule(
    "LZ-131",
    "upload-left",
    "An upload was not completed",
    NOTE,
    "no data file under a temporary name, unless it is being written",
    "A data file whose name begins with an underscore is not read. It is either being written or "
    "was left by an interrupted run.",
    "If no publisher is writing it, delete it.",
    "orders/_00000000000000000002.parquet",
)
EXTENSION = Rule(
    "LZ-158",
    "extension-unknown",
    "A numbered file has an extension that the table does not declare",
    ERROR,
    "parquet, or the FileExtension of the table",
    "`.parquet` means Parquet; every other data file has the `FileExtension` of "
    "`_metadata.json`, by default `csv`. A file with another extension is ignored, and later "
    "numbers wait.",
    "Declare the extension in `FileExtension`, or rename the file.",
    "orders/00000000000000000001.tsv",
)
FOREIGN = Rule(
    "LZ-210",
    "not-a-landing-format",
    "An Excel or JSON file is not a landing-zone format",
    ERROR,
    "Parquet or delimited text",
    "Excel and JSON files are not read.",
    "Convert the file to Parquet or delimited text before it is published.",
    "orders/00000000000000000001.json",
)
NO_FILES = Rule(
    "LZ-275",
    "no-data-file",
    "The table has metadata but no data file",
    NOTE,
    "a first data file",
    "The table waits for its first file. The original was observed to fail such a table as stuck "
    "after about two weeks; our engine waits indefinitely.",
    "Publish a first file; a file without rows creates the table.",
    "orders/_metadata.json",
    strict=WARNING,
)
CLEANUP_INFO = Rule(
    "LZ-248",
    "cleanup-record",
    "The record of the cleanup folder cannot be read",
    NOTE,
    '{"files": [{"name": …, "movedTimeUtc": …}]}',
    "`_FilesReadyToDeleteInfo.json` records when each file was moved to the cleanup folder. "
    "Without it the modification time is used, and a file may be deleted earlier or later.",
    "Only the engine should write this file; publishers may empty the folder.",
    "orders/_FilesReadyToDelete/_FilesReadyToDeleteInfo.json: {}",
)

RULES = (
    OTHER, UNNUMBERED, SUBFOLDER, PARTITION, DIGITS, ZERO, GAP, FIRST, EQUAL, REUSED, NO_NUMBERS,
    SAME_PATH, SAME_TIME, TEMPORARY, LEFT, EXTENSION, FOREIGN, NO_FILES, CLEANUP_INFO,
)  # fmt: skip

_FOREIGN = {"json", "jsonl", "ndjson", "xls", "xlsx", "xlsm", "xlsb"}
_TEXT = {"csv", "tsv", "psv", "txt"}
_TEMPORARY = re.compile(r"(?i).*(\.te?mp|_te?mp|\.part|\.partial|\.inprogress|\.crc|~)")


def check(view: TableView, report: Report) -> None:
    """All that names and times tell, without opening a data file."""
    _folders(view, report)
    _uploads(view, report)
    if view.is_timed:
        _timed(view, report)
    else:
        _numbered(view, report)


def check_cleanup(view: TableView, store: Store, report: Report) -> None:
    """The record of the cleanup folder."""
    for folder, listing in view.moved.items():
        if any(entry.name == layout.CLEANUP_INFO for entry in listing.files):
            path = f"{folder}/{layout.CLEANUP_INFO}"
            if (fault := _fault_of_record(store.read(path))) is not None:
                inner = path.removeprefix(f"{view.folder.path}/")
                report.add(CLEANUP_INFO, view.at(inner), fault)


def _fault_of_record(content: bytes) -> str | None:
    try:
        files = json.loads(content)["files"]
        for file in files:
            if not isinstance(file["name"], str) or not isinstance(file["movedTimeUtc"], str):
                return "a file without name or movedTimeUtc"
    except (ValueError, RecursionError) as error:
        return shown(error)
    except (KeyError, TypeError):
        return "not in this form"
    return None


def _folders(view: TableView, report: Report) -> None:
    plain = [name for name in view.listing.folders if not name.startswith("_")]
    parts = [name for name in plain if "=" in name]
    if parts and not view.is_partitioned(report.profile):
        report.add(PARTITION, view.at(parts[0]), listed(parts))
    if others := [name for name in plain if "=" not in name]:
        report.add(SUBFOLDER, view.at(others[0]), listed(others))


def _uploads(view: TableView, report: Report) -> None:
    endings = (f".{PARQUET}", f".{view.extension}")
    left = [
        file.name
        for file in view.listing.files
        if file.name.startswith("_") and file.name.lower().endswith(endings)
    ]
    if left:
        report.add(LEFT, view.at(left[0]), listed(left))


def _timed(view: TableView, report: Report) -> None:
    files = view.files
    moved = {entry.name for listing in view.moved.values() for entry in listing.files}
    if not files:
        report.add(NO_FILES, view.location, "no data file")
    for file in files:
        if file.name in moved:
            report.add(SAME_PATH, view.at(file.name), "it is in the cleanup folder as well")
    for _, alike in groupby(files, key=lambda file: file.modified):
        names = [file.name for file in alike]
        if len(names) > 1:
            report.add(SAME_TIME, view.at(names[0]), listed(names))
    known = {file.name for file in files}
    _ignored(view, [name for name in _plain_names(view) if name not in known], report)


def _numbered(view: TableView, report: Report) -> None:
    files = view.files
    known = {file.name for file in files}
    strange = [name for name in _plain_names(view) if name not in known]
    unread = _ignored(view, strange, report)
    taken = sorted({file.number or 0 for file in files} | unread)
    if not (taken or view.moved or any(map(view.is_data, strange))) and has_metadata(view.listing):
        report.add(NO_FILES, view.location, "no data file")
    for earlier, later in pairwise(files):
        if earlier.number == later.number:
            report.add(EQUAL, view.at(later.name), f"{earlier.name} and {later.name}")
    for file in files:
        if file.number == 0:
            report.add(ZERO, view.at(file.name), file.name)
    _gaps(view, [number for number in taken if number], report)


def _plain_names(view: TableView) -> list[str]:
    return [file.name for file in view.listing.files if not file.name.startswith("_")]


def _gaps(view: TableView, taken: list[int], report: Report) -> None:
    moved = moved_numbers(view)
    newest = max(moved, default=0)
    for number in taken:
        if number <= newest:
            found = f"number {number}, but {newest} has been processed"
            report.add(REUSED, view.at(_name_of(view, number)), found)
    rest = [number for number in taken if number > newest]
    if not rest:
        return
    if rest[0] > 1 and not view.moved:
        report.add(FIRST, view.at(_name_of(view, rest[0])), f"{rest[0]} is the lowest number")
    known = [newest, *rest] if moved else rest
    for before, after in pairwise(known):
        if after - before > 1:
            missing = f"{before + 1}" if after - before == 2 else f"{before + 1} to {after - 1}"
            waiting = len([number for number in rest if number >= after])
            verb = "waits" if waiting == 1 else "wait"
            found = f"{missing} missing; {counted(waiting, 'later file')} {verb}"
            report.add(GAP, view.at(_name_of(view, after)), found)


def _name_of(view: TableView, number: int) -> str:
    names = (file.name for file in view.listing.files if not file.name.startswith("_"))
    found = (name for name in names if (parsed := FileName.parse(name)) and parsed.number == number)
    return next(found)


def _ignored(view: TableView, names: list[str], report: Report) -> set[int]:
    """Tell why each of the names is ignored. Returns the numbers that some of them take."""
    taken: set[int] = set()
    by_rule: dict[Rule, list[str]] = {}
    for name in names:
        rule = _why_ignored(view, name)
        by_rule.setdefault(rule, []).append(name)
        parsed = FileName.parse(name)
        if parsed and rule is not TEMPORARY:
            taken.add(parsed.number)
    for rule, found in by_rule.items():
        report.add(rule, view.at(found[0]), listed(found))
    return taken


def _why_ignored(view: TableView, name: str) -> Rule:
    stem, _, extension = name.lower().partition(".")
    if _TEMPORARY.fullmatch(name):
        return TEMPORARY
    if extension.rpartition(".")[2] in _FOREIGN:
        return FOREIGN
    if FileName.parse(name) or (view.is_timed and extension in _TEXT):
        return EXTENSION
    if stem.isdigit() and (view.is_data(name) or extension in _TEXT):
        return DIGITS
    if view.is_data(name):
        return UNNUMBERED if view.files else NO_NUMBERS
    return OTHER
