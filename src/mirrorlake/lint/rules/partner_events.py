"""Rules on `_partnerEvents.json` (section 3 of the specification)."""

from __future__ import annotations

from mirrorlake.landing import layout, partner_events
from mirrorlake.lint.finding import FindingLocation, Report
from mirrorlake.lint.json_members import Record, written
from mirrorlake.lint.target import Target
from mirrorlake.storage.store import Listing

_INVALID = "LZ-067/partner-events-invalid"


def check(target: Target, report: Report) -> None:
    """Check the file of the landing zone, and report files of this name in schema folders."""
    path = f"{target.zone}/{layout.PARTNER}"
    listing = target.store.list(target.zone)
    for name in listing.folders:
        if name.endswith(layout.SCHEMA_SUFFIX):
            folder = f"{target.zone}/{name}"
            check_level(target.store.list(folder), FindingLocation(folder), report)
    entry = next((file for file in listing.files if file.name == layout.PARTNER), None)
    if entry is None:
        report.add("LZ-060/partner-events-absent", FindingLocation(path), "no such file")
    elif entry.size > partner_events.LIMIT:
        report.add(_INVALID, FindingLocation(path), f"more than {partner_events.LIMIT:,} bytes")
    else:
        _content(target.store.read(path), FindingLocation(path), report)


def check_level(listing: Listing, folder: FindingLocation, report: Report) -> None:
    """Report the file in a folder where it has no effect."""
    if any(file.name == layout.PARTNER for file in listing.files):
        path = f"{folder.path}/{layout.PARTNER}"
        report.add(
            "LZ-062/partner-events-at-wrong-level",
            FindingLocation(path, folder.table),
            "it is in a subfolder",
        )


def _content(content: bytes, location: FindingLocation, report: Report) -> None:
    record = Record.read(
        content,
        location,
        report,
        unreadable=_INVALID,
        lenient=_INVALID,
        no_object=_INVALID,
        expected="strict JSON",
    )
    if record is None:
        return
    _member(record, "partnerName", str, report)
    if _member(record, "sourceInfo", dict, report):
        source = record.inside("sourceInfo")
        _member(source, "sourceType", str, report)
        _member(source, "sourceVersion", str, report)
        _member(source, "additionalInformation", dict, report)


def _member(record: Record, name: str, kind: type, report: Report) -> bool:
    """Check that a member exists and has its type. Returns whether it does."""
    value = record.get(name)
    if isinstance(value, kind):
        return True
    found = f"{name} is missing" if value is None else f"{name} is {written(value, 40)}"
    location = record.here() if value is None else record.at(name)
    report.add(
        "LZ-063/partner-events-members",
        location,
        found,
        f"{name} as {'a text' if kind is str else 'an object'}",
    )
    return False
