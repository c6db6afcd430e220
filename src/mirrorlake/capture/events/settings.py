"""The settings of a destination of event files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mirrorlake.capture.events.infinities import Infinite
from mirrorlake.events.metadata import MetadataSwitches
from mirrorlake.events.paths import EventExtension
from mirrorlake.storage.urls import StorageLocation

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class EventsSettings:
    """Where event files are written, and in which form.

    stream: the name in every event. location: a folder, or a URL and how to access it. path: the
    folder below it. truncations: a truncation is an event of its own (ST-256). long_tx_id: the
    number of a transaction is written as a number (ST-069). infinite: what becomes of infinite
    intervals, and of dates and moments within arrays, which is what becomes of infinite dates.
    """

    stream: str
    location: StorageLocation | Path
    path: str = ""
    extension: EventExtension = EventExtension.AVRO
    is_deflated: bool = False
    rotation_bytes: int = 50 * MIB
    rotation_seconds: float = 60.0
    schema_file: bool = False
    truncations: bool = False
    long_tx_id: bool = False
    infinite: Infinite = "clamp"

    @property
    def described(self) -> str:
        """The URL of the destination, which identifies it."""
        location = self.location
        url = location.url if isinstance(location, StorageLocation) else str(location)
        return f"{url}/{self.path}".removesuffix("/")

    @property
    def switches(self) -> MetadataSwitches:
        return MetadataSwitches(long_tx_id=self.long_tx_id)

    def events_per_file(self, count: int, size: int) -> int:
        """How many of so many events, of so many bytes together, are about as large as a file may
        be."""
        return max(-(-count // max(-(-size // self.rotation_bytes), 1)), 1)
