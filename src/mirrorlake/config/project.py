"""The configuration of a mirror."""

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
    """A mirror: its name, its location, and the settings of its parts.

    root: a folder, or a location on an object store.
    source: None for a landing zone that others fill.
    landing, tables: the locations of `Files/LandingZone` and `Tables` when they are not below root.
    unset: the error that the environment has no URL of the source; raised only by what connects.
    targets: the tables that are built from change feeds.
    destinations: where event files are written.
    lands: whether there are a landing zone and tables; otherwise the project only writes event
        files.
    events: the event files from which the tables are built, if any; then source is None.
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
    destinations: tuple[EventsSettings, ...] = ()
    lands: bool = True
    events: EventInput | None = None

    @classmethod
    def of_root(cls, root: Path | StorageLocation) -> Project:
        """A mirror with default settings, of a landing zone that others fill."""
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
        """The location of the tables on an object store, if they are on one."""
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
"""The file that `mirrorlake init` writes."""
