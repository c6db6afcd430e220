"""Rules on `_partnerEvents.json` (section 3 of the specification)."""

from __future__ import annotations

from dataclasses import replace

from mirrorlake.landing import layout, lenient_json, partner_events
from mirrorlake.landing.lenient_json import NotJson
from mirrorlake.lint.finding import FindingLocation, Report, Rule, Severity, Version, shown
from mirrorlake.lint.json_members import Record, written
from mirrorlake.lint.target import Target
from mirrorlake.storage.store import Listing

_EXAMPLE = (
    '{"partnerName": "contoso", "sourceInfo": {"sourceType": "SQL", "sourceVersion": "2019", '
    '"additionalInformation": {}}}'
)

ABSENT = Rule(
    "LZ-060",
    "partner-events-absent",
    "There is no _partnerEvents.json",
    Severity.NOTE,
    f"{layout.PARTNER} in the landing zone",
    "The file names the publisher and the kind of source. It is not required but strongly "
    "recommended, and does not affect replication.",
    f"Write it once: `{_EXAMPLE}`.",
    "Files/LandingZone/orders/",
    only=Version.V2,
)
LEVEL = Rule(
    "LZ-062",
    "partner-events-at-wrong-level",
    "_partnerEvents.json lies in a table or schema folder",
    Severity.WARNING,
    f"{layout.PARTNER} directly in the landing zone",
    "The file describes the whole mirrored database. It is read only directly in the landing zone.",
    "Move it one level up.",
    "Files/LandingZone/orders/_partnerEvents.json",
)
SHAPE = Rule(
    "LZ-063",
    "partner-events-members",
    "A member of _partnerEvents.json is missing or has the wrong type",
    Severity.WARNING,
    "partnerName, and sourceInfo with sourceType, sourceVersion and additionalInformation",
    "The object has `partnerName`, and `sourceInfo` with `sourceType` and `sourceVersion` as "
    "strings and `additionalInformation` as any object.",
    "Write the members as in the example.",
    '{"partnerName": 7}',
)
INVALID = Rule(
    "LZ-067",
    "partner-events-invalid",
    "_partnerEvents.json cannot be read",
    Severity.WARNING,
    "one JSON object",
    "Replication does not depend on the file, but its information about the source is lost.",
    f"Write one JSON object in UTF-8: `{_EXAMPLE}`.",
    '{"partnerName": ',
)

RULES = (ABSENT, LEVEL, SHAPE, INVALID)


def check(target: Target, report: Report) -> None:
    """The file of the zone, and files of its name elsewhere."""
    path = f"{target.zone}/{layout.PARTNER}"
    listing = target.store.list(target.zone)
    for name in listing.folders:
        if name.endswith(layout.SCHEMA_SUFFIX):
            folder = f"{target.zone}/{name}"
            check_level(target.store.list(folder), FindingLocation(folder), report)
    entry = next((file for file in listing.files if file.name == layout.PARTNER), None)
    if entry is None:
        report.add(ABSENT, FindingLocation(path), "no such file")
    elif entry.size > partner_events.LIMIT:
        report.add(INVALID, FindingLocation(path), f"more than {partner_events.LIMIT:,} bytes")
    else:
        _content(target.store.read(path), FindingLocation(path), report)


def check_level(listing: Listing, folder: FindingLocation, report: Report) -> None:
    """The file does not belong into this folder."""
    if any(file.name == layout.PARTNER for file in listing.files):
        path = f"{folder.path}/{layout.PARTNER}"
        report.add(LEVEL, FindingLocation(path, folder.table), "it lies in a subfolder")


def _content(content: bytes, location: FindingLocation, report: Report) -> None:
    try:
        parsed = lenient_json.parse(content)
    except NotJson as error:
        at = replace(location, line=error.line, character=error.column)
        report.add(INVALID, at, shown(error.message))
        return
    for note in parsed.notes:
        at = replace(location, line=note.line, character=note.column)
        report.add(INVALID, at, shown(note.what), "strict JSON")
    if isinstance(parsed.value, dict):
        _members(Record.of(parsed.value, content, location), report)
    else:
        report.add(INVALID, location, shown(written(parsed.value)))


def _members(record: Record, report: Report) -> None:
    _member(record, "partnerName", str, report)
    if _member(record, "sourceInfo", dict, report):
        source = record.inside("sourceInfo")
        _member(source, "sourceType", str, report)
        _member(source, "sourceVersion", str, report)
        _member(source, "additionalInformation", dict, report)


def _member(record: Record, name: str, kind: type, report: Report) -> bool:
    """Whether a member is there and of its type."""
    value = record.value(name)
    if isinstance(value, kind):
        return True
    told = f"{name} is missing" if value is None else f"{name} is {shown(written(value), 40)}"
    location = record.here() if value is None else record.at(name)
    report.add(SHAPE, location, told, f"{name} as {'a text' if kind is str else 'an object'}")
    return False
