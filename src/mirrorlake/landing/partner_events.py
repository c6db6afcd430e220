"""`_partnerEvents.json`: the publisher's description of itself (section 3 of the specification).

The file is for people. Neither its content nor its existence affects replication (LZ-067).
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
"""Maximum size of the file, in bytes."""


@dataclass(frozen=True, slots=True)
class PartnerEvents:
    """The record of LZ-063; members that are missing are empty.

    problem: why an existing file could not be read; empty if it was read, or does not exist.
    """

    name: str = ""
    source_type: str = ""
    source_version: str = ""
    information: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""

    @property
    def is_present(self) -> bool:
        """Whether the file exists."""
        return self != PartnerEvents()

    def facts(self) -> dict[str, Any]:
        """As printed by `status --json` (LZ-068)."""
        return {
            "partner": self.name or None,
            "source_type": self.source_type or None,
            "source_version": self.source_version or None,
            "additional_information": dict(self.information),
            "problem": self.problem or None,
        }


def read(store: Store, zone: str) -> PartnerEvents:
    """The description of the publisher. Raises nothing."""
    try:
        entry = next((f for f in store.list(zone).files if f.name == layout.PARTNER), None)
        if entry is None:
            return PartnerEvents()
        if entry.size > LIMIT:
            return PartnerEvents(problem=f"it has more than {LIMIT:,} bytes")
        return decode(store.read(f"{zone}/{layout.PARTNER}"))
    except FileNotFoundError:
        return PartnerEvents()  # deleted since it was listed
    except OSError as error:
        return PartnerEvents(problem=f"it cannot be read: {error.strerror or type(error).__name__}")


def decode(content: bytes) -> PartnerEvents:
    """Read the file, with names of members in any case; errors are stored in `problem`."""
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
