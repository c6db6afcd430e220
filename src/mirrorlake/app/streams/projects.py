"""From a stream to the settings of its mirror, the same that a project file would give."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from mirrorlake.app.streams.connections import check_connectivity, check_live, postgres_url
from mirrorlake.app.streams.destinations import below, in_bucket, in_folder
from mirrorlake.app.streams.included import selection, tables_of
from mirrorlake.capture.events.settings import EventsSettings
from mirrorlake.capture.settings import LOAD_BESIDE, CaptureSettings
from mirrorlake.config import Project
from mirrorlake.control.names import ResourceName
from mirrorlake.control.reports import Document
from mirrorlake.control.shapes.profiles import ConnectionProfile
from mirrorlake.control.shapes.streams import (
    BigqueryDestinationConfig,
    FileSystemDestinationConfig,
    Stream,
)
from mirrorlake.errors import NotOffered
from mirrorlake.model.change import SchemaChangeKind
from mirrorlake.sources.postgresql.settings import PostgresSettings
from mirrorlake.spark.settings import SparkSettings
from mirrorlake.storage.urls import StorageLocation

ProfileOf = Callable[[str], tuple[ConnectionProfile, dict[str, str]]]
"""A profile by name, with its secrets by path. Raises ResourceNotFound."""


@dataclass(frozen=True, slots=True)
class ServiceFolders:
    """Where a service keeps things. folder: its own state; data: what streams write."""

    folder: Path
    data: Path
    spark: SparkSettings = field(default_factory=SparkSettings)

    def __post_init__(self) -> None:
        assert self.folder.is_absolute()
        assert self.data.is_absolute()

    @property
    def certificates(self) -> Path:
        return self.folder / "tls"


@dataclass(frozen=True, slots=True)
class StreamProjects:
    """The settings of each stream of a service. declared: of those that a project file lists, by
    the name of the stream; the others are made by the API."""

    profiles: ProfileOf
    places: ServiceFolders
    declared: Mapping[str, Project] = field(default_factory=dict)

    def of(self, name: ResourceName, document: Document) -> Project:
        """Raises NotOffered for what this release does not do, InvalidRequest, UsageError."""
        if (found := self.declared.get(str(name))) is not None:
            return found
        return project_of(name, Stream.model_validate(document), self.profiles, self.places)

    def root_of(self, name: ResourceName, document: Document) -> Path | StorageLocation:
        """Where a stream keeps what it has done. Raises as `of` does."""
        if (found := self.declared.get(str(name))) is not None:
            return found.root
        stream = Stream.model_validate(document)
        return destination_of(name, stream, self.profiles, self.places)[0]


def project_of(
    name: ResourceName, stream: Stream, profiles: ProfileOf, places: ServiceFolders
) -> Project:
    """Raises NotOffered for what this release does not do, InvalidRequest, UsageError."""
    if stream.customer_managed_encryption_key:
        raise NotOffered(
            "customerManagedEncryptionKey is not offered",
            where="customerManagedEncryptionKey",
            hint="Leave it out, and let the bucket or the disk encrypt what is written.",
        )
    source = _source(stream, profiles, places)
    assert stream.destination_config is not None
    check_connectivity(profiles(stream.destination_config.destination_connection_profile)[0])
    root, events = destination_of(name, stream, profiles, places)
    return Project(
        name=name.id,
        root=root,
        source=source,
        capture=replace(_capture(stream), load_workers=source.load_workers),
        spark=places.spark,
        destinations=(events,) if events else (),
        lands=events is None,
    )


def _source(stream: Stream, profiles: ProfileOf, places: ServiceFolders) -> PostgresSettings:
    assert stream.source_config is not None
    profile, secrets = profiles(stream.source_config.source_connection_profile)
    check_live(profile)
    config = stream.source_config.postgresql_source_config
    assert config is not None
    settings = PostgresSettings(
        url=postgres_url(profile, secrets, places.certificates),
        selection=selection(config.include_objects, config.exclude_objects),
        slot=config.replication_slot,
        publication=config.publication,
    )
    if config.max_concurrent_backfill_tasks:
        settings = replace(settings, load_workers=min(config.max_concurrent_backfill_tasks, 50))
    return settings


def _capture(stream: Stream) -> CaptureSettings:
    """Rows are loaded of the tables that are there when the stream begins (ST-285, ST-291): of
    large ones beside their changes. A table that is dropped has an error (ST-256)."""
    stops_at = frozenset({SchemaChangeKind.TABLE_DROPPED})
    if stream.backfill_none is not None:
        return CaptureSettings(load=("!*",), load_joining=False, stops_at=stops_at)
    excluded = stream.backfill_all.postgresql_excluded_objects if stream.backfill_all else None
    patterns = [f"!{pattern}" for pattern in tables_of(excluded)]
    return CaptureSettings(
        load=("*.*", *patterns), load_joining=False, load_beside=LOAD_BESIDE, stops_at=stops_at
    )


def destination_of(
    name: ResourceName, stream: Stream, profiles: ProfileOf, places: ServiceFolders
) -> tuple[Path, EventsSettings | None]:
    """The root of the stream, below the data folder, and where its events are written, if that is
    what it does. Raises NotOffered, InvalidRequest, UsageError."""
    destination = stream.destination_config
    assert destination is not None
    profile, _secrets = profiles(destination.destination_connection_profile)
    project, location = name.parent.split("/")[1::2]
    if (tables := destination.bigquery_destination_config) is not None:
        _check_tables(tables)
        return places.data / "tables" / project / location / name.id, None
    state = places.data / "events" / project / location / name.id
    if (bucket := destination.gcs_destination_config) is not None:
        assert profile.gcs_profile is not None
        place = profile.gcs_profile
        return state, in_bucket(
            str(name), place.bucket, place.root_path, bucket, places.data / "files"
        )
    files = destination.file_system_destination_config
    assert files is not None
    assert profile.file_system_profile is not None
    folder = below(places.data / "files", profile.file_system_profile.root_path, files.path)
    if files.avro_file_format is not None or files.json_file_format is not None:
        return state, in_folder(str(name), folder, files)
    _check_landing(files)
    return folder, None


def _check_tables(config: BigqueryDestinationConfig) -> None:
    """Refuse by name what our tables do not do."""
    template = (
        config.source_hierarchy_datasets and config.source_hierarchy_datasets.dataset_template
    )
    for found, name in (
        (config.append_only, "appendOnly"),
        (config.blmt_config, "blmtConfig"),
        (config.single_target_dataset, "singleTargetDataset"),
        (template and template.dataset_id_prefix, "datasetTemplate.datasetIdPrefix"),
        (template and template.kms_key_name, "datasetTemplate.kmsKeyName"),
    ):
        if found:
            raise NotOffered(
                f"{name} is not offered",
                where=f"destinationConfig.bigqueryDestinationConfig.{name}",
                hint="Use merge with sourceHierarchyDatasets: each table is a Delta table below "
                "the schema of its source.",
            )


def _check_landing(config: FileSystemDestinationConfig) -> None:
    for name in ("fileRotationMb", "fileRotationInterval"):
        if config.document().get(name):
            raise NotOffered(
                f"{name} is for event files, not for a landing zone",
                where="destinationConfig.fileSystemDestinationConfig",
                hint="Leave it out, or send avroFileFormat or jsonFileFormat.",
            )
