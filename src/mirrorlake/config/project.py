"""A mirror as it is configured."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path

from mirrorlake.apply.events.settings import EventInput
from mirrorlake.capture.events.settings import EventsSettings
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.errors import ConfigError
from mirrorlake.feed.targets.settings import TargetSettings
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.sources.section import SourceSettings
from mirrorlake.spark.settings import SparkSettings
from mirrorlake.storage.urls import StorageLocation


@dataclass(frozen=True, slots=True)
class Project:
    """A mirror: what it is called, where it lies, and the settings of its parts.

    root: a folder, or a place on an object store. source: None for a landing zone that others fill.
    landing, tables: where `Files/LandingZone` and `Tables` lie when they are not below root. unset:
    why the source cannot be connected to, because the environment does not have its URL; what does
    not connect works all the same. targets: the tables that are built from change feeds.
    destination: where event files are written instead of a landing zone and tables.
    events: the event files that the tables are made of, where there are such; source is None then.
    """

    name: str
    root: Path | StorageLocation
    source: SourceSettings | None = None
    capture: CaptureSettings = field(default_factory=CaptureSettings)
    mirror: MirrorSettings = field(default_factory=MirrorSettings)
    spark: SparkSettings = field(default_factory=SparkSettings)
    landing: StorageLocation | None = None
    tables: StorageLocation | None = None
    unset: ConfigError | None = None
    targets: tuple[TargetSettings, ...] = ()
    destination: EventsSettings | None = None
    events: EventInput | None = None

    @classmethod
    def of_root(cls, root: Path | StorageLocation) -> Project:
        """A mirror of a landing zone that somebody else fills, with nothing configured."""
        if isinstance(root, Path):
            return cls(name=root.absolute().name, root=root)
        name = root.url.rstrip("/").rpartition("/")[2]
        return cls(name=name, root=root, mirror=replace(MirrorSettings(), look_seconds=math.inf))

    @property
    def where(self) -> str:
        """The root, for messages."""
        return self.root.url if isinstance(self.root, StorageLocation) else str(self.root)

    @property
    def tables_elsewhere(self) -> StorageLocation | None:
        """Where the tables lie, if that is on an object store."""
        return self.tables or (self.root if isinstance(self.root, StorageLocation) else None)


TEMPLATE = """\
# A mirror: keeps Delta tables equal to a database. docs/reference/configuration.md has every field.
name: {name}
root: {root}                # Files/LandingZone and Tables lie below it; relative to this file
source:
  type: postgresql
  url: {url}
  tables: ["public.*"]      # patterns; "!public.audit_*" takes tables away again
spark:
  master: local[*]          # or spark://..., or leave out inside an existing session
"""
"""What `mirrorlake init` writes."""
