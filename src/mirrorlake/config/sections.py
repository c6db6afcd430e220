"""The shape of a project file, section by section."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, ByteSize, Field, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from mirrorlake.apply.events.settings import EventInput
from mirrorlake.capture.events.settings import EventsSettings
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.config.elsewhere import ElsewhereSection, EventLocationSection, beside
from mirrorlake.config.event_input import EventInputSection
from mirrorlake.config.project import Project
from mirrorlake.config.sources import AnySource
from mirrorlake.config.targets import ArchiveSection, HistorySection, targets_of
from mirrorlake.errors import ConfigError
from mirrorlake.events.paths import EventExtension
from mirrorlake.mirror.row_checks import RowChecks
from mirrorlake.mirror.settings import MirrorSettings, TableTemplate
from mirrorlake.mirror.strategy import Wanted
from mirrorlake.model.change import UNPROVED, SchemaChangeKind
from mirrorlake.sources.section import Section
from mirrorlake.spark.settings import SparkSettings
from mirrorlake.storage.urls import StorageLocation

ON_OBJECTS = ("s3", "s3a")
"""Schemes of URLs below which tables are written."""
ONLY_ON_OBJECTS = "tables can be stored only in a folder or on S3 (or a compatible storage)"
_SAFE_DAYS = 7
_LONGEST_DAYS, _LONGEST_SECONDS = 36_500, 86_400
_MOST_MEGABYTES = 1024

_CAPTURE, _MIRROR = CaptureSettings(), MirrorSettings()


class CaptureSection(Section):
    roll_bytes: ByteSize = ByteSize(_CAPTURE.roll_bytes)
    roll_seconds: float = Field(default=_CAPTURE.roll_seconds, gt=0, le=_LONGEST_SECONDS)
    debounce_seconds: float = Field(default=_CAPTURE.debounce_seconds, ge=0, le=_LONGEST_SECONDS)
    heartbeat_seconds: float = Field(default=_CAPTURE.heartbeat_seconds, gt=0, le=_LONGEST_SECONDS)


class RootSection(ElsewhereSection):
    """A folder or a URL, and how the URL is reached. A text alone is the folder or the URL."""

    url: str = Field(min_length=1)
    account: str | None = Field(default=None, min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _of_text(cls, given: object) -> object:
        return given if isinstance(given, dict) else {"url": given}

    def location(self, path: Path) -> Path | StorageLocation:
        """Raises ConfigError."""
        if "://" in self.url:
            found = self.location_in(path, "root", self.account)
            assert found is not None
            return found
        for name in ("endpoint", "region", "account", "anonymous"):
            if name in self.model_fields_set:
                raise ConfigError(
                    "this setting describes how to access a URL, but root is a folder",
                    where=f"{path}, field root.{name}",
                    hint="Remove this setting, or set root.url to a URL.",
                )
        return beside(path, Path(self.url))


class LandingSection(ElsewhereSection):
    account: str | None = Field(default=None, min_length=1)
    strict: bool = False
    metadata_required: bool = True
    strict_text: bool = False
    partitions: bool = False
    retention_days: float = Field(default=7, gt=0, le=_LONGEST_DAYS)

    def location(self, path: Path) -> StorageLocation | None:
        return self.location_in(path, "landing", self.account)


class EventsSection(EventLocationSection):
    """Event files as the destination of a stream."""

    type: Literal["events"]
    format: Literal["avro", "json"] = "avro"
    rotation_mb: float = Field(default=50, gt=0, le=_MOST_MEGABYTES)
    rotation_seconds: float = Field(default=60, gt=0, le=_LONGEST_SECONDS)
    compression: Literal["none", "gzip", "deflate"] = "none"
    schema_file: bool = False

    def settings(self, path: Path, name: str) -> EventsSettings:
        """path: of the project file; name: of the project. Raises ConfigError."""
        return EventsSettings(
            stream=name,
            location=self.location(path, "destination"),
            path=self.folder(path, "destination"),
            extension=self._extension(path),
            is_deflated=self.compression == "deflate",
            rotation_bytes=max(round(self.rotation_mb * (1 << 20)), 1),
            rotation_seconds=self.rotation_seconds,
            schema_file=self.schema_file,
        )

    def _extension(self, path: Path) -> EventExtension:
        is_avro = self.format == "avro"
        if self.compression == ("gzip" if is_avro else "deflate"):
            raise ConfigError(
                f"files of {self.format} are not compressed with {self.compression}",
                where=f"{path}, field destination.compression",
                hint=f"Write {'deflate' if is_avro else 'gzip'}, or none.",
            )
        if is_avro and self.schema_file:
            raise ConfigError(
                "Avro files hold their schema themselves",
                where=f"{path}, field destination.schema_file",
                hint="Remove the setting, or write format: json.",
            )
        if is_avro:
            return EventExtension.AVRO
        zipped = self.compression == "gzip"
        return EventExtension.JSON_GZIP if zipped else EventExtension.JSON


class TablesSection(ElsewhereSection):
    def location(self, path: Path) -> StorageLocation | None:
        found = self.location_in(path, "tables")
        if found is None or holds_tables(found):
            return found
        raise ConfigError(
            ONLY_ON_OBJECTS,
            where=f"{path}, field tables.url",
            hint="Write s3://bucket/path, or remove the setting: tables are then stored below "
            "root, which may be a mounted folder.",
        )


def holds_tables(location: StorageLocation) -> bool:
    """Whether tables are written to a place on objects."""
    return location.url.partition("://")[0].lower() in ON_OBJECTS


Policy = Literal["evolve", "stop"]


class MirrorSection(Section):
    # Where there is one value for now, the others are refused rather than ignored.
    change_feed: Literal[True] = True
    metadata_columns: Literal[False] = False
    deletes: Literal["hard"] = "hard"
    uncaptured_changes: Literal["mark", "stop"] = "mark"
    schema_change: Policy | dict[SchemaChangeKind, Policy] = "evolve"
    strategy: Literal["auto", "direct", "merge"] = "auto"
    template: Literal["fast", "compatible"] = "fast"
    compaction: bool = True
    strict_keys: bool = False
    file_bytes: ByteSize = ByteSize(RowChecks().file_bytes)
    drop_tables: bool = True
    drop_after_seconds: float = Field(default=60, ge=0, le=_LONGEST_DAYS * _LONGEST_SECONDS)
    max_tables: PositiveInt | None = None
    max_bytes_per_day: ByteSize | None = Field(default=None, gt=0)
    vacuum_days: float | None = Field(default=7, gt=0, le=_LONGEST_DAYS)
    vacuum_early: bool = False
    subscription_days: float = Field(default=14, ge=0, le=_LONGEST_DAYS)
    subscription_warning: float = Field(default=0.25, ge=0, le=1)

    @property
    def stops_at(self) -> frozenset[SchemaChangeKind]:
        """The changes of columns that stop a table."""
        if self.schema_change == "stop":
            return frozenset(SchemaChangeKind)
        said = self.schema_change if isinstance(self.schema_change, dict) else {}
        evolving = {kind for kind, policy in said.items() if policy == "evolve"}
        return (UNPROVED - evolving) | (said.keys() - evolving)


def _memory(text: str) -> str:
    """An amount of memory as the JVM takes it. Raises PydanticCustomError."""
    if re.fullmatch(r"[1-9][0-9]*[kmgtKMGT]", text) is None:
        raise PydanticCustomError(
            "memory", "This must be a whole number and a unit, such as 512m or 2g"
        )
    return text


class SparkSection(Section):
    master: str | None = "local[*]"
    jars: Path | None = None
    conf: dict[str, str] = Field(default_factory=dict)
    driver_memory: Annotated[str, AfterValidator(_memory)] = "2g"


class ProjectFile(Section):
    name: str = Field(min_length=1)
    root: RootSection
    default_schema: str | None = None
    source: AnySource | None = None
    destination: EventsSection | None = None
    capture: CaptureSection = Field(default_factory=CaptureSection)
    landing: LandingSection = Field(default_factory=LandingSection)
    tables: TablesSection = Field(default_factory=TablesSection)
    mirror: MirrorSection = Field(default_factory=MirrorSection)
    spark: SparkSection = Field(default_factory=SparkSection)
    histories: list[HistorySection] = Field(default_factory=list)
    archives: list[ArchiveSection] = Field(default_factory=list)

    def project(self, path: Path) -> Project:
        root = self._root(path)
        landing, tables = self.landing.location(path), self.tables.location(path)
        events, source = None, None
        if isinstance(self.source, EventInputSection):
            events = self._events(self.source, path, root)
        elif self.source is not None:
            source = self.source.settings(self.name)
        capture = CaptureSettings(
            roll_bytes=self.capture.roll_bytes,
            roll_seconds=self.capture.roll_seconds,
            debounce_seconds=self.capture.debounce_seconds,
            heartbeat_seconds=self.capture.heartbeat_seconds,
            strict=self.landing.strict,
            stops_at=self.mirror.stops_at,
            stops_where_rows_differ=self.mirror.uncaptured_changes == "stop",
        )
        mirror = MirrorSettings(
            default_schema=self.default_schema,
            metadata_required=self.landing.metadata_required,
            strict_text=self.landing.strict_text,
            partitions=self.landing.partitions,
            # Where a look is a request that is paid for, a pause is a pause.
            look_seconds=math.inf
            if landing or not isinstance(root, Path)
            else _MIRROR.look_seconds,
            retention=timedelta(days=self.landing.retention_days),
            strategy=Wanted(self.mirror.strategy),
            template=self._template(path),
            compaction=self.mirror.compaction,
            row_checks=RowChecks(self.mirror.strict_keys, self.mirror.file_bytes),
            drop_tables=self.mirror.drop_tables,
            drop_after=timedelta(seconds=self.mirror.drop_after_seconds),
            max_tables=self.mirror.max_tables,
            max_bytes_per_day=self.mirror.max_bytes_per_day,
            vacuum=self._vacuum(path),
            subscription_hold=timedelta(days=self.mirror.subscription_days),
            subscription_warning=self.mirror.subscription_warning,
            stops_at=self.mirror.stops_at,
        )
        spark = SparkSettings(
            master=self.spark.master,
            jars=beside(path, self.spark.jars) if self.spark.jars else None,
            conf=self.spark.conf,
            driver_memory=self.spark.driver_memory,
        )
        if source is not None:
            capture = replace(capture, load_workers=source.load_workers)
        targets = targets_of(self.histories, self.archives, path)
        destination = self._destination(path)
        return Project(
            self.name,
            root,
            source,
            capture,
            mirror,
            spark,
            landing,
            tables,
            targets=targets,
            destination=destination,
            events=events,
        )

    def _root(self, path: Path) -> Path | StorageLocation:
        found = self.root.location(path)
        if isinstance(found, Path) or self.tables.url or self.destination or holds_tables(found):
            return found
        raise ConfigError(
            ONLY_ON_OBJECTS,
            where=f"{path}, field root",
            hint="Write s3://bucket/path, or set tables.url to such a place.",
        )

    def _events(
        self, section: EventInputSection, path: Path, root: Path | StorageLocation
    ) -> EventInput:
        if not isinstance(root, Path):
            raise ConfigError(
                "root is a URL, but what is remembered of events lies in a folder",
                where=f"{path}, field root",
                hint="Name a folder. To store the tables elsewhere, set tables.url.",
            )
        others = self.model_fields_set - {"name", "root", "source", "tables", "mirror"}
        of_mirror = self.mirror.model_fields_set - {"vacuum_days", "vacuum_early"}
        without_effect = sorted(others | {f"mirror.{name}" for name in of_mirror})
        if without_effect:
            raise ConfigError(
                f"tables are made of event files, so {without_effect[0]} has no effect",
                where=f"{path}, field {without_effect[0]}",
                hint="Remove this setting.",
            )
        return section.settings(path)

    def _destination(self, path: Path) -> EventsSettings | None:
        if self.destination is None:
            return None
        if self.source is None:
            raise ConfigError(
                "a destination is for the changes of a source, and there is none",
                where=f"{path}, field destination",
                hint="Add a section source, or remove the destination.",
            )
        for name in ("landing", "tables", "mirror", "spark", "histories", "archives"):
            if name in self.model_fields_set:
                raise ConfigError(
                    f"event files take the place of the landing zone and the tables, so {name} has "
                    "no effect",
                    where=f"{path}, field {name}",
                    hint="Remove this section, or the destination.",
                )
        return self.destination.settings(path, self.name)

    def _template(self, path: Path) -> TableTemplate:
        template = TableTemplate(self.mirror.template)
        if template is TableTemplate.COMPATIBLE and self.mirror.strategy == "direct":
            raise ConfigError(
                "compatible tables have no deletion vectors, and strategy direct needs them",
                where=f"{path}, field mirror.template",
                hint="Remove mirror.strategy, or set it to auto or merge.",
            )
        return template

    def _vacuum(self, path: Path) -> timedelta | None:
        days = self.mirror.vacuum_days
        if days is not None and days < _SAFE_DAYS and not self.mirror.vacuum_early:
            raise ConfigError(
                f"less than {_SAFE_DAYS} days removes files that readers of older versions, or "
                "writers that run longer than that, still need",
                where=f"{path}, field mirror.vacuum_days",
                hint="Set it to 7 or more, or also set mirror.vacuum_early: true.",
            )
        return None if days is None else timedelta(days=days)
