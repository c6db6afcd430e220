"""The models of a project file, section by section."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, ByteSize, Field, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from mirrorlake.apply.events.settings import EventInput
from mirrorlake.capture.events.settings import EventsSettings
from mirrorlake.capture.settings import LOAD_BESIDE, CaptureSettings
from mirrorlake.capture.watch.append_only import UncapturedPolicy
from mirrorlake.capture.watch.retention import RetentionPolicy
from mirrorlake.config.destinations import AnyDestination, event_destinations, lands
from mirrorlake.config.effects import check_events_alone, check_executors, check_release
from mirrorlake.config.elsewhere import ElsewhereSection, beside
from mirrorlake.config.event_input import EventInputSection
from mirrorlake.config.project import Project
from mirrorlake.config.sources import AnySource
from mirrorlake.config.targets import ArchiveSection, HistorySection, targets_of
from mirrorlake.delta.schema import FeedMode
from mirrorlake.errors import ConfigError
from mirrorlake.mirror.row_checks import RowChecks
from mirrorlake.mirror.settings import MirrorSettings, TableOptions, TableTemplate
from mirrorlake.mirror.strategy import StrategySetting
from mirrorlake.model.change import SchemaChangeKind
from mirrorlake.model.table import printed
from mirrorlake.sources.postgresql.section import PostgresSection
from mirrorlake.sources.postgresql.settings import PostgresSettings
from mirrorlake.sources.section import Section, SourceSettings
from mirrorlake.spark.settings import SparkSettings
from mirrorlake.storage.urls import StorageLocation

ON_OBJECTS = ("s3", "s3a")
"""URL schemes of object stores on which tables can be stored."""
ONLY_ON_OBJECTS = "tables can be stored only in a folder or on S3 (or a compatible storage)"
_SAFE_DAYS = 7
_LONGEST_DAYS, _LONGEST_SECONDS = 36_500, 86_400
_PAGE = 8192
"""Bytes that are read together at least."""

_CAPTURE, _MIRROR = CaptureSettings(), MirrorSettings()


class CaptureSection(Section):
    roll_bytes: ByteSize = ByteSize(_CAPTURE.roll_bytes)
    roll_seconds: float = Field(default=_CAPTURE.roll_seconds, gt=0, le=_LONGEST_SECONDS)
    debounce_seconds: float = Field(default=_CAPTURE.debounce_seconds, ge=0, le=_LONGEST_SECONDS)
    retained_limit: ByteSize | None = None
    retained_policy: RetentionPolicy = _CAPTURE.retained_policy
    heartbeat_seconds: float = Field(default=_CAPTURE.heartbeat_seconds, gt=0, le=_LONGEST_SECONDS)


class RootSection(ElsewhereSection):
    """A folder or a URL, and how to access the URL. A string is the folder or the URL."""

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


class LoadSection(Section):
    """Where large tables are read for their initial load."""

    on: Literal["capture", "spark"] = "capture"
    connections: PositiveInt = _CAPTURE.spark_connections
    beside_bytes: ByteSize | None = ByteSize(LOAD_BESIDE)
    part_bytes: ByteSize = Field(default=ByteSize(PostgresSettings("").part_bytes), ge=_PAGE)


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
    """Whether tables can be stored at a location on an object store."""
    return location.url.partition("://")[0].lower() in ON_OBJECTS


def _refuse_backfills(path: Path, field: str, what: str, opposed: Mapping[str, bool]) -> None:
    """what: a field leads to. opposed: settings that allow no backfills for that, and whether they
    are set. Raises ConfigError."""
    for name in (name for name, is_set in opposed.items() if is_set):
        raise ConfigError(
            f"{what}, which are not possible with this value of {name}",
            where=f"{path}, field {field}",
            hint="Remove this setting.",
        )


Policy = Literal["evolve", "stop"]
PolicyOrIgnore = Literal["evolve", "ignore", "stop"]

_NEVER_IGNORED = {
    SchemaChangeKind.COLUMN_RENAMED: "later values come under the new name, and the former column "
    "would be NULL in later rows",
    SchemaChangeKind.TYPE_WIDENED: "later values may not fit the column of the table",
    SchemaChangeKind.TYPE_CHANGED: "later values may not fit the column of the table",
    SchemaChangeKind.KEY_CHANGED: "the rows of later changes could not be found",
    SchemaChangeKind.TABLE_RECREATED: "rows of two tables would be mixed",
    SchemaChangeKind.TABLE_RENAMED: "with evolve it goes on under the name with which it was "
    "loaded",
}
"""The schema changes that no table can go on without, and why."""
_NEVER_STOPPED = {
    SchemaChangeKind.TABLE_CREATED: "a table that joins has nothing that could stop, and with "
    "ignore it is left out",
}
"""Those at which no table can stop, and why."""


class TableSection(Section):
    """Settings of one table that differ from those of the mirror."""

    change_feed: bool | None = None
    apply: Literal["images", "replace"] = "images"
    suppress_unchanged: bool = False
    change_log: bool | Annotated[str, Field(min_length=1)] = False

    def options(self, *, change_feed: bool) -> TableOptions:
        """change_feed: that of the mirror."""
        is_on = change_feed if self.change_feed is None else self.change_feed
        mode = FeedMode(self.apply) if is_on else FeedMode.OFF
        return TableOptions(mode, self.suppress_unchanged)


class SchemaChangeSection(Section):
    """What a change of a table in the source does, per kind. drop: columns that are dropped in the
    source are dropped in the table too; rename: columns that are renamed in the source are renamed
    in the table, and not copied; widen: columns are widened by type widening, and files are not
    rewritten. A string is a policy of all kinds; of those for which it is not possible it is
    `evolve`."""

    column_added: PolicyOrIgnore = "evolve"
    column_dropped: PolicyOrIgnore = "evolve"
    column_renamed: Policy = "evolve"
    type_widened: Policy = "evolve"
    type_changed: Policy = "evolve"
    key_changed: Policy = "evolve"
    table_created: PolicyOrIgnore = "evolve"
    table_recreated: Policy = "evolve"
    table_renamed: Policy = "evolve"
    table_truncated: PolicyOrIgnore = "evolve"
    table_dropped: PolicyOrIgnore = "evolve"
    partition_changed: PolicyOrIgnore = "evolve"
    publication_changed: PolicyOrIgnore = "evolve"
    drop: bool = False
    rename: bool = False
    widen: bool = False

    @model_validator(mode="before")
    @classmethod
    def _of_text(cls, given: object) -> object:
        match given:
            case "evolve":
                return {}
            case "ignore":
                return dict.fromkeys(set(SchemaChangeKind) - _NEVER_IGNORED.keys(), given)
            case "stop":
                return dict.fromkeys(set(SchemaChangeKind) - _NEVER_STOPPED.keys(), given)
            case str():
                raise PydanticCustomError("policy", "This must be evolve, ignore, stop or a map")
            case dict():
                for kind, why in _NEVER_IGNORED.items():
                    if given.get(kind) == "ignore":
                        raise PydanticCustomError(
                            "policy", f"{kind} can be evolve or stop, and not ignore: {why}"
                        )
                for kind, why in _NEVER_STOPPED.items():
                    if given.get(kind) == "stop":
                        raise PydanticCustomError(
                            "policy", f"{kind} can be evolve or ignore, and not stop: {why}"
                        )
        return given

    @property
    def drops_columns(self) -> bool:
        """Whether the table loses columns that are dropped in the source."""
        return self.drop and self.column_dropped != "ignore"

    @property
    def ignores(self) -> frozenset[SchemaChangeKind]:
        """The schema changes that a table does not follow."""
        return frozenset(kind for kind in SchemaChangeKind if getattr(self, kind) == "ignore")

    @property
    def stops_at(self) -> frozenset[SchemaChangeKind]:
        """The schema changes that stop a table."""
        return frozenset(kind for kind in SchemaChangeKind if getattr(self, kind) == "stop")


class MirrorSection(Section):
    change_feed: bool = True
    tables: dict[str, TableSection] = Field(default_factory=dict)
    metadata_columns: bool = False
    deletes: Literal["hard", "soft"] = "hard"
    uncaptured_changes: UncapturedPolicy = UncapturedPolicy.MARK
    schema_change: SchemaChangeSection = Field(default_factory=SchemaChangeSection)
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


def _memory(text: str) -> str:
    """An amount of memory in the JVM's format. Raises PydanticCustomError."""
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

    def settings(self, path: Path) -> SparkSettings:
        """path: of the project file."""
        return SparkSettings(
            master=self.master,
            jars=beside(path, self.jars) if self.jars else None,
            conf=self.conf,
            driver_memory=self.driver_memory,
        )


class ProjectFile(Section):
    name: str = Field(min_length=1)
    root: RootSection
    default_schema: str | None = None
    source: AnySource | None = None
    destination: AnyDestination | None = None
    capture: CaptureSection = Field(default_factory=CaptureSection)
    load: LoadSection = Field(default_factory=LoadSection)
    landing: LandingSection = Field(default_factory=LandingSection)
    tables: TablesSection = Field(default_factory=TablesSection)
    mirror: MirrorSection = Field(default_factory=MirrorSection)
    spark: SparkSection = Field(default_factory=SparkSection)
    histories: list[HistorySection] = Field(default_factory=list)
    archives: list[ArchiveSection] = Field(default_factory=list)

    def project(self, path: Path) -> Project:
        self._check_effects(path)
        root = self._root(path)
        landing, tables = self.landing.location(path), self.tables.location(path)
        events, source = None, None
        if isinstance(self.source, EventInputSection):
            events = self._events(self.source, path, root)
        elif self.source is not None:
            source = self._read_in_parts(self.source.settings(self.name))
        capture = CaptureSettings(
            roll_bytes=self.capture.roll_bytes,
            roll_seconds=self.capture.roll_seconds,
            debounce_seconds=self.capture.debounce_seconds,
            heartbeat_seconds=self.capture.heartbeat_seconds,
            retained_limit=self.capture.retained_limit,
            retained_policy=self.capture.retained_policy,
            metadata_columns=self._metadata_columns(path),
            soft_deletes=self._soft_deletes(path),
            strict=self.landing.strict,
            stops_at=self.mirror.schema_change.stops_at,
            ignores=self.mirror.schema_change.ignores,
            drop_after_seconds=self.mirror.drop_after_seconds,
            uncaptured=self._uncaptured(path),
            parts_on_spark=self._parts_on_spark(path, source),
            load_beside=self._load_beside(path),
            spark_connections=self.load.connections,
        )
        mirror = MirrorSettings(
            default_schema=self.default_schema,
            metadata_required=self.landing.metadata_required,
            strict_text=self.landing.strict_text,
            partitions=self.landing.partitions,
            # On an object store each listing is a paid request: no waking up in between.
            look_seconds=math.inf
            if landing or not isinstance(root, Path)
            else _MIRROR.look_seconds,
            retention=timedelta(days=self.landing.retention_days),
            soft_deletes=self._soft_deletes(path),
            strategy=StrategySetting(self.mirror.strategy),
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
            stops_at=self.mirror.schema_change.stops_at,
            ignores_new_columns=self.mirror.schema_change.column_added == "ignore",
            drops_columns=self.mirror.schema_change.drops_columns,
            renames_columns=self.mirror.schema_change.rename,
            widens_types=self.mirror.schema_change.widen,
            options=TableSection().options(change_feed=self.mirror.change_feed),
            tables=self._tables(path),
        )
        spark = self.spark.settings(path)
        if source is not None:
            capture = replace(capture, load_workers=source.load_workers)
        targets = targets_of(self.histories, self.archives, self._change_logs(path), path)
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
            destinations=self._event_destinations(path),
            lands=lands(self._destinations),
            events=events,
        )

    def _check_effects(self, path: Path) -> None:
        given = self.capture
        check_release(path, given.retained_policy, given.retained_limit)
        check_executors(path, self.load.model_fields_set, on_spark=self.load.on == "spark")
        if not lands(self._destinations):
            check_events_alone(path, self.model_fields_set, given.model_fields_set)

    def _root(self, path: Path) -> Path | StorageLocation:
        found = self.root.location(path)
        if (
            isinstance(found, Path)
            or self.tables.url
            or not lands(self._destinations)
            or holds_tables(found)
        ):
            return found
        raise ConfigError(
            ONLY_ON_OBJECTS,
            where=f"{path}, field root",
            hint="Write s3://bucket/path, or set tables.url to such a place.",
        )

    def _read_in_parts(self, source: SourceSettings) -> SourceSettings:
        if isinstance(source, PostgresSettings):
            return replace(source, part_bytes=self.load.part_bytes)
        return source

    def _parts_on_spark(self, path: Path, source: SourceSettings | None) -> bool:
        if self.load.on == "spark" and (source is None or not lands(self._destinations)):
            raise ConfigError(
                "the mirror's Spark reads tables of a source for a landing zone, and this project "
                f"has no {'source' if source is None else 'landing zone'}",
                where=f"{path}, field load.on",
                hint="Remove this setting.",
            )
        return self.load.on == "spark"

    def _load_beside(self, path: Path) -> int | None:
        is_given = "beside_bytes" in self.load.model_fields_set
        if not is_given and (self.load.on == "spark" or self.landing.strict):
            return None
        if self.load.beside_bytes is not None:
            what = "tables are read beside their changes by backfills"
            strict = {"landing.strict": self.landing.strict}
            _refuse_backfills(path, "load.beside_bytes", what, strict)
        return self.load.beside_bytes

    def _uncaptured(self, path: Path) -> UncapturedPolicy:
        if self.mirror.uncaptured_changes is UncapturedPolicy.BACKFILL:
            opposed = {
                "landing.strict": self.landing.strict,
                "destination": bool(self._event_destinations(path)),
                "mirror.deletes": self.mirror.deletes == "soft",
            }
            field, what = "mirror.uncaptured_changes", "tables are read again by backfills"
            _refuse_backfills(path, field, what, opposed)
        return self.mirror.uncaptured_changes

    def _events(
        self, section: EventInputSection, path: Path, root: Path | StorageLocation
    ) -> EventInput:
        others = self.model_fields_set - {"name", "root", "source", "tables", "mirror"}
        of_mirror = self.mirror.model_fields_set - {
            "metadata_columns",
            "vacuum_days",
            "vacuum_early",
        }
        if self.spark.master is None or self.spark.settings(path).is_cluster:
            others -= {"spark"}
        without_effect = sorted(others | {f"mirror.{name}" for name in of_mirror})
        if without_effect:
            hint = "Remove this setting"
            if without_effect[0] == "spark":
                hint += ", or set spark.master to a cluster, whose tasks then apply large batches"
            raise ConfigError(
                f"tables are made of event files, so {without_effect[0]} has no effect",
                where=f"{path}, field {without_effect[0]}",
                hint=f"{hint}.",
            )
        settings = section.settings(path, root)
        return replace(settings, metadata_columns=self.mirror.metadata_columns)

    def _metadata_columns(self, path: Path) -> bool:
        if self.mirror.metadata_columns and self.source is None:
            raise ConfigError(
                "metadata columns are written by capture, and there is no source to capture from",
                where=f"{path}, field mirror.metadata_columns",
                hint="Set it in the project that writes the landing zone, and remove it here: the "
                "tables get the columns that the landed files have.",
            )
        return self.mirror.metadata_columns or (
            self.mirror.deletes == "soft" and self.source is not None
        )

    def _soft_deletes(self, path: Path) -> bool:
        """Whether deletes are soft."""
        if self.mirror.deletes == "hard":
            return False
        if self.landing.strict:
            raise ConfigError(
                "mirror.deletes is soft, which is not possible with this value of landing.strict: "
                "a truncation would begin the table anew",
                where=f"{path}, field landing.strict",
                hint="Remove this setting, or set mirror.deletes to hard.",
            )
        return True

    def _change_logs(self, path: Path) -> dict[str, str | bool]:
        found = {name: said.change_log for name, said in self.mirror.tables.items()}
        for name in (name for name, to in found.items() if to):
            if not self.mirror.tables[name].options(change_feed=self.mirror.change_feed).has_feed:
                raise ConfigError(
                    "a change log follows the change feed of its table, and the table has none",
                    where=f"{path}, field mirror.tables.{name}.change_log",
                    hint="Remove this setting, or set change_feed to true.",
                )
        return found

    def _tables(self, path: Path) -> dict[str, TableOptions]:
        opposed = {
            "mirror.deletes": self.mirror.deletes == "soft",
            "mirror.strategy": self.mirror.strategy == "merge",
            "mirror.template": self.mirror.template == "compatible",
        }
        found = {}
        for name, said in self.mirror.tables.items():
            options = said.options(change_feed=self.mirror.change_feed)
            where = f"{path}, field mirror.tables.{name}.apply"
            if said.apply == "replace" and not options.has_feed:
                raise ConfigError(
                    "apply says what the change feed records, and the table has none",
                    where=where,
                    hint="Remove this setting, or set change_feed to true.",
                )
            if closed := [
                one for one, is_set in opposed.items() if is_set and said.apply == "replace"
            ]:
                raise ConfigError(
                    f"apply is replace, which is not possible with this value of {closed[0]}",
                    where=where,
                    hint=f"Remove this setting, or {closed[0]}.",
                )
            found[printed(name)] = options
        return found

    @property
    def _destinations(self) -> Sequence[Section]:
        found = self.destination
        return found if isinstance(found, list) else [found] if found is not None else []

    def _event_destinations(self, path: Path) -> tuple[EventsSettings, ...]:
        if self.destination is None:
            return ()
        if self.source is None:
            raise ConfigError(
                "a destination is for the changes of a source, and there is none",
                where=f"{path}, field destination",
                hint="Add a section source, or remove the destination.",
            )
        for name in ("landing", "tables", "mirror", "spark", "histories", "archives"):
            if name in self.model_fields_set and not lands(self._destinations):
                raise ConfigError(
                    f"event files take the place of the landing zone and the tables, so {name} has "
                    "no effect",
                    where=f"{path}, field {name}",
                    hint="Remove this section, or write both destinations: `type: landing` and "
                    "`type: events`.",
                )
        given = self.source
        infinite = given.extremes.dates if isinstance(given, PostgresSection) else "clamp"
        return event_destinations(self._destinations, path, self.name, infinite)

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
