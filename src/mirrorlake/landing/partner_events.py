"""`_partnerEvents.json`: who fills this landing zone, in their own words (section 3).

It is for people to read. Whatever it holds, and whether it is there, changes nothing (LZ-067).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mirrorlake.landing import layout, lenient_json
from mirrorlake.landing.lenient_json import NotJson
from mirrorlake.landing.text.members import Members, WrongMember
from mirrorlake.storage.store import Store

LIMIT = 1 << 20
"""Bytes of a file that is read at all."""


@dataclass(frozen=True, slots=True)
class PartnerEvents:
    """The record of LZ-063; what it leaves out is empty.

    problem: why a file that is there could not be read, empty when it was, or when there is none.
    """

    name: str = ""
    source_type: str = ""
    source_version: str = ""
    information: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""

    @property
    def is_told(self) -> bool:
        return self != PartnerEvents()

    def facts(self) -> dict[str, Any]:
        """As `status --json` prints it (LZ-068)."""
        return {
            "partner": self.name or None,
            "source_type": self.source_type or None,
            "source_version": self.source_version or None,
            "additional_information": dict(self.information),
            "problem": self.problem or None,
        }


def read(store: Store, zone: str) -> PartnerEvents:
    """What the zone says of its publisher. Raises nothing."""
    try:
        entry = next((f for f in store.list(zone).files if f.name == layout.PARTNER), None)
        if entry is None:
            return PartnerEvents()
        if entry.size > LIMIT:
            return PartnerEvents(problem=f"it has more than {LIMIT:,} bytes")
        return decode(store.read(f"{zone}/{layout.PARTNER}"))
    except FileNotFoundError:
        return PartnerEvents()  # gone since we looked
    except OSError as error:
        return PartnerEvents(problem=f"it cannot be read: {error.strerror or type(error).__name__}")


def decode(content: bytes) -> PartnerEvents:
    """Read the file, with names of members in any case; its faults become `problem`."""
    try:
        parsed = lenient_json.parse(content)
        if not isinstance(parsed.value, dict):
            return PartnerEvents(problem="it is not a single JSON object (LZ-063)")
        top = Members(parsed.value)
        source = top.inner("sourceInfo")
        information = source.get("additionalInformation")
        if information is not None and not isinstance(information, dict):
            raise source.wrong("additionalInformation", "an object")
        return PartnerEvents(
            name=top.text("partnerName") or "",
            source_type=source.text("sourceType") or "",
            source_version=source.text("sourceVersion") or "",
            information=information or {},
        )
    except (NotJson, WrongMember) as error:
        return PartnerEvents(problem=str(error))
