"""Rules on `_partnerEvents.json` (section 3 of the specification)."""

from __future__ import annotations

import json
from typing import Any

from mirrorlake.landing import layout
from mirrorlake.landing.lint.finding import Place, Report, Rule, Severity, Version, shown
from mirrorlake.landing.lint.target import Target
from mirrorlake.landing.store import Listing

_EXAMPLE = (
    '{"partnerName": "contoso", "sourceInfo": {"sourceType": "SQL", "sourceVersion": "2019", '
    '"additionalInformation": {}}}'
)

ABSENT = Rule(
    "LZ-060",
    "partner-events-absent",
    "_partnerEvents.json is not there",
    Severity.NOTE,
    f"{layout.PARTNER} in the landing zone",
    "The file says who publishes and from what kind of source. It is not required but strongly "
    "recommended, and changes nothing in replication.",
    f"Write it once: `{_EXAMPLE}`.",
    "Files/LandingZone/orders/",
    only=Version.V2,
)
LEVEL = Rule(
    "LZ-062",
    "partner-events-at-wrong-level",
    "_partnerEvents.json lies in a table or schema folder",
    Severity.WARNING,
    f"{layout.PARTNER} in the landing zone itself",
    "The file speaks of the whole mirrored database. It is read in the landing zone itself and "
    "nowhere else.",
    "Move it one level up.",
    "Files/LandingZone/orders/_partnerEvents.json",
)
SHAPE = Rule(
    "LZ-063",
    "partner-events-members",
    "_partnerEvents.json lacks a member, or has one of another type",
    Severity.WARNING,
    "partnerName, and sourceInfo with sourceType, sourceVersion and additionalInformation",
    "The record has `partnerName`, and `sourceInfo` with `sourceType` and `sourceVersion` as text "
    "and the free object `additionalInformation`.",
    "Write the members of the example.",
    '{"partnerName": 7}',
)
INVALID = Rule(
    "LZ-067",
    "partner-events-invalid",
    "_partnerEvents.json cannot be read",
    Severity.WARNING,
    "one JSON object",
    "Replication does not depend on the file; what it says about the source is lost.",
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
            check_level(target.store.list(folder), Place(folder), report)
    if all(file.name != layout.PARTNER for file in listing.files):
        report.add(ABSENT, Place(path), "no such file")
        return
    try:
        record = json.loads(target.store.read(path).decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        place = Place(path, line=error.lineno, character=error.colno)
        report.add(INVALID, place, error.msg)
    except (ValueError, RecursionError) as error:
        report.add(INVALID, Place(path), shown(error))
    else:
        _members(record, Place(path), report)


def check_level(listing: Listing, folder: Place, report: Report) -> None:
    """The file does not belong into this folder."""
    if any(file.name == layout.PARTNER for file in listing.files):
        path = f"{folder.path}/{layout.PARTNER}"
        report.add(LEVEL, Place(path, folder.table), "it lies in a folder below")


def _members(record: Any, place: Place, report: Report) -> None:
    if not isinstance(record, dict):
        report.add(INVALID, place, f"a JSON {type(record).__name__}")
        return
    source = record.get("sourceInfo")
    inner = source if isinstance(source, dict) else {}
    wanted: list[tuple[str, Any, type]] = [
        ("partnerName", record.get("partnerName"), str),
        ("sourceInfo", source, dict),
        ("sourceInfo.sourceType", inner.get("sourceType"), str),
        ("sourceInfo.sourceVersion", inner.get("sourceVersion"), str),
        ("sourceInfo.additionalInformation", inner.get("additionalInformation"), dict),
    ]
    if not isinstance(source, dict):
        wanted = wanted[:2]
    for name, value, kind in wanted:
        if not isinstance(value, kind):
            told = "is missing" if value is None else f"is {shown(json.dumps(value), 40)}"
            said = "a text" if kind is str else "an object"
            report.add(SHAPE, place, f"{name} {told}", f"{name} as {said}")
