"""Rules on the names and numbers of files (sections 6, 7 and 12 of the specification)."""

from __future__ import annotations

import json
import re
from itertools import groupby, pairwise

from mirrorlake.landing import layout
from mirrorlake.lint.finding import Report, counted, listed, shown
from mirrorlake.lint.table_view import PARQUET, TableView, has_metadata, moved_numbers
from mirrorlake.model.landed import FileName
from mirrorlake.storage.store import Store

_FOREIGN = {"json", "jsonl", "ndjson", "xls", "xlsx", "xlsm", "xlsb"}
_TEXT = {"csv", "tsv", "psv", "txt"}
_TEMPORARY = re.compile(r"(?i).*(\.te?mp|_te?mp|\.part|\.partial|\.inprogress|\.crc|~)")


def check(view: TableView, report: Report) -> None:
    """Check names and modification times, without opening data files."""
    _folders(view, report)
    _uploads(view, report)
    if view.is_timed:
        _timed(view, report)
    else:
        _numbered(view, report)


def check_cleanup(view: TableView, store: Store, report: Report) -> None:
    """Check the record in the cleanup folder."""
    for folder, listing in view.moved.items():
        if any(entry.name == layout.CLEANUP_INFO for entry in listing.files):
            path = f"{folder}/{layout.CLEANUP_INFO}"
            if (fault := _fault_of_record(store.read(path))) is not None:
                inner = path.removeprefix(f"{view.folder.path}/")
                report.add("LZ-248/cleanup-record", view.at(inner), fault)


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
        report.add("LZ-059/partition-folder", view.at(parts[0]), listed(parts))
    if others := [name for name in plain if "=" not in name]:
        report.add("LZ-024/subfolder", view.at(others[0]), listed(others))


def _uploads(view: TableView, report: Report) -> None:
    endings = (f".{PARQUET}", f".{view.extension}")
    left = [
        file.name
        for file in view.listing.files
        if file.name.startswith("_") and file.name.lower().endswith(endings)
    ]
    if left:
        report.add("LZ-131/upload-left", view.at(left[0]), listed(left))


def _timed(view: TableView, report: Report) -> None:
    files = view.files
    moved = {entry.name for listing in view.moved.values() for entry in listing.files}
    if not files:
        report.add("LZ-275/no-data-file", view.location, "no data file")
    for file in files:
        if file.name in moved:
            report.add(
                "LZ-123/name-reused", view.at(file.name), "it is in the cleanup folder as well"
            )
    for _, alike in groupby(files, key=lambda file: file.modified):
        names = [file.name for file in alike]
        if len(names) > 1:
            report.add("LZ-125/times-equal", view.at(names[0]), listed(names))
    known = {file.name for file in files}
    _ignored(view, [name for name in _plain_names(view) if name not in known], report)


def _numbered(view: TableView, report: Report) -> None:
    files = view.files
    known = {file.name for file in files}
    strange = [name for name in _plain_names(view) if name not in known]
    unread = _ignored(view, strange, report)
    taken = sorted({file.number or 0 for file in files} | unread)
    if not (taken or view.moved or any(map(view.is_data, strange))) and has_metadata(view.listing):
        report.add("LZ-275/no-data-file", view.location, "no data file")
    for earlier, later in pairwise(files):
        if earlier.number == later.number:
            report.add(
                "LZ-120/number-twice", view.at(later.name), f"{earlier.name} and {later.name}"
            )
    for file in files:
        if file.number == 0:
            report.add("LZ-114/number-zero", view.at(file.name), file.name)
    _gaps(view, [number for number in taken if number], report)


def _plain_names(view: TableView) -> list[str]:
    return [file.name for file in view.listing.files if not file.name.startswith("_")]


def _gaps(view: TableView, taken: list[int], report: Report) -> None:
    moved = moved_numbers(view)
    newest = max(moved, default=0)
    for number in taken:
        if number <= newest:
            found = f"number {number}, but {newest} has been processed"
            report.add("LZ-121/number-reused", view.at(_name_of(view, number)), found)
    rest = [number for number in taken if number > newest]
    if not rest:
        return
    if rest[0] > 1 and not view.moved:
        report.add(
            "LZ-119/first-missing",
            view.at(_name_of(view, rest[0])),
            f"{rest[0]} is the lowest number",
        )
    known = [newest, *rest] if moved else rest
    for before, after in pairwise(known):
        if after - before > 1:
            missing = f"{before + 1}" if after - before == 2 else f"{before + 1} to {after - 1}"
            waiting = len([number for number in rest if number >= after])
            verb = "waits" if waiting == 1 else "wait"
            found = f"{missing} missing; {counted(waiting, 'later file')} {verb}"
            report.add("LZ-117/number-missing", view.at(_name_of(view, after)), found)


def _name_of(view: TableView, number: int) -> str:
    names = (file.name for file in view.listing.files if not file.name.startswith("_"))
    found = (name for name in names if (parsed := FileName.parse(name)) and parsed.number == number)
    return next(found)


def _ignored(view: TableView, names: list[str], report: Report) -> set[int]:
    """Report why each name is ignored. Returns the file numbers in these names."""
    taken: set[int] = set()
    by_rule: dict[str, list[str]] = {}
    for name in names:
        rule = _why_ignored(view, name)
        by_rule.setdefault(rule, []).append(name)
        parsed = FileName.parse(name)
        if parsed and rule != "LZ-131/temporary-name":
            taken.add(parsed.number)
    for rule, found in by_rule.items():
        report.add(rule, view.at(found[0]), listed(found))
    return taken


def _why_ignored(view: TableView, name: str) -> str:
    stem, _, extension = name.lower().partition(".")
    if _TEMPORARY.fullmatch(name):
        return "LZ-131/temporary-name"
    if extension.rpartition(".")[2] in _FOREIGN:
        return "LZ-210/not-a-landing-format"
    if FileName.parse(name) or (view.is_timed and extension in _TEXT):
        return "LZ-158/extension-unknown"
    if stem.isdigit() and (view.is_data(name) or extension in _TEXT):
        return "LZ-112/number-of-digits"
    if view.is_data(name):
        return "LZ-023/data-without-number" if view.files else "LZ-122/names-without-numbers"
    return "LZ-023/other-file"
