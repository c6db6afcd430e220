"""Streams, their source and destination configuration, and requests to run them (ST-264 to ST-282,
ST-326 to ST-338)."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Any

from pydantic import Field, StringConstraints, field_validator

from mirrorlake.control.shapes import hierarchies as shape
from mirrorlake.control.shapes.base import (
    PRINTABLE,
    ByName,
    Count,
    Duration,
    Empty,
    Labels,
    Shape,
    Text,
    Time,
    seconds,
)
from mirrorlake.control.states import StreamState

State = Annotated[StreamState, ByName(StreamState)]


class BinaryLogParser(Shape):
    one_of = (("oracle_asm_log_file_access", "log_file_directories"),)
    oracle_asm_log_file_access: Empty | None = None
    log_file_directories: LogFileDirectories | None = None


class LogFileDirectories(Shape):
    online_log_directory: Text = Field(min_length=1)
    archived_log_directory: Text = Field(min_length=1)


class OracleSourceConfig(Shape):
    one_of = (
        ("drop_large_objects", "stream_large_objects"),
        ("log_miner", "binary_log_parser"),
    )
    include_objects: shape.OracleRdbms | None = None
    exclude_objects: shape.OracleRdbms | None = None
    max_concurrent_cdc_tasks: Count = 0
    max_concurrent_backfill_tasks: Count = 0
    drop_large_objects: Empty | None = None
    stream_large_objects: Empty | None = None
    log_miner: Empty | None = None
    binary_log_parser: BinaryLogParser | None = None


class MysqlSourceConfig(Shape):
    one_of = (("binary_log_position", "gtid"),)
    include_objects: shape.MysqlRdbms | None = None
    exclude_objects: shape.MysqlRdbms | None = None
    max_concurrent_cdc_tasks: Count = 0
    max_concurrent_backfill_tasks: Count = 0
    binary_log_position: Empty | None = None
    gtid: Empty | None = None


class PostgresqlSourceConfig(Shape):
    """The slot is required and cannot be changed; the publication is required (ST-328)."""

    include_objects: shape.PostgresqlRdbms | None = None
    exclude_objects: shape.PostgresqlRdbms | None = None
    replication_slot: str = Field(pattern=r"^[a-z0-9_]{1,63}$")
    publication: Annotated[str, StringConstraints(min_length=1, max_length=56), PRINTABLE]
    max_concurrent_backfill_tasks: Count = 0


class ChangeTables(Shape):
    ddl_config: dict[Text, bool] | None = None


class SqlServerSourceConfig(Shape):
    one_of = (("transaction_logs", "change_tables"),)
    include_objects: shape.SqlServerRdbms | None = None
    exclude_objects: shape.SqlServerRdbms | None = None
    max_concurrent_cdc_tasks: Count = 0
    max_concurrent_backfill_tasks: Count = 0
    transaction_logs: Empty | None = None
    change_tables: ChangeTables | None = None


class SalesforceSourceConfig(Shape):
    include_objects: shape.SalesforceOrg | None = None
    exclude_objects: shape.SalesforceOrg | None = None
    polling_interval: Duration

    @field_validator("polling_interval")
    @classmethod
    def _within_a_day(cls, value: str) -> str:
        if not 300 <= seconds(value) <= 86_400:
            raise ValueError("the polling interval is from 300s to 86400s")
        return value


class JsonMode(IntEnum):
    """How documents are written."""

    MONGODB_JSON_MODE_UNSPECIFIED = 0
    STRICT = 1
    CANONICAL = 2


class MongodbSourceConfig(Shape):
    include_objects: shape.MongodbCluster | None = None
    exclude_objects: shape.MongodbCluster | None = None
    max_concurrent_backfill_tasks: Annotated[int, Field(ge=0, le=50)] = 0
    json_mode: Annotated[JsonMode, ByName(JsonMode)] | None = None


SOURCE_CONFIGS = {
    "postgresql_source_config": "postgresql_profile",
    "mysql_source_config": "mysql_profile",
    "oracle_source_config": "oracle_profile",
    "sql_server_source_config": "sql_server_profile",
    "salesforce_source_config": "salesforce_profile",
    "mongodb_source_config": "mongodb_profile",
}
"""The kind of profile for each source configuration."""


class SourceConfig(Shape):
    one_of = (tuple(SOURCE_CONFIGS),)
    source_connection_profile: Text = Field(min_length=1)
    postgresql_source_config: PostgresqlSourceConfig | None = None
    mysql_source_config: MysqlSourceConfig | None = None
    oracle_source_config: OracleSourceConfig | None = None
    sql_server_source_config: SqlServerSourceConfig | None = None
    salesforce_source_config: SalesforceSourceConfig | None = None
    mongodb_source_config: MongodbSourceConfig | None = None


class SchemaFileFormat(IntEnum):
    """Whether a schema file is written beside JSON files."""

    SCHEMA_FILE_FORMAT_UNSPECIFIED = 0
    NO_SCHEMA_FILE = 1
    AVRO_SCHEMA_FILE = 2


class JsonCompression(IntEnum):
    """How JSON files are compressed."""

    JSON_COMPRESSION_UNSPECIFIED = 0
    NO_COMPRESSION = 1
    GZIP = 2


class JsonFileFormat(Shape):
    schema_file_format: Annotated[SchemaFileFormat, ByName(SchemaFileFormat)] | None = None
    compression: Annotated[JsonCompression, ByName(JsonCompression)] | None = None


class EventFilesConfig(Shape):
    """How event files are rolled and written."""

    path: Text = ""
    file_rotation_mb: Count = 0
    file_rotation_interval: Duration | None = None
    avro_file_format: Empty | None = None
    json_file_format: JsonFileFormat | None = None


class GcsDestinationConfig(EventFilesConfig):
    """Event files in a bucket (ST-333)."""

    one_of = (("avro_file_format", "json_file_format"),)


class DatasetTemplate(Shape):
    location: Text = ""
    dataset_id_prefix: Text = ""
    kms_key_name: Text | None = None


class SourceHierarchyDatasets(Shape):
    dataset_template: DatasetTemplate | None = None
    project_id: Text | None = None


class SingleTargetDataset(Shape):
    dataset_id: Text = Field(min_length=1)


class BlmtConfig(Shape):
    bucket: Text = ""
    root_path: Text = ""
    connection_name: Text = ""
    file_format: Text | Count | None = None
    table_format: Text | Count | None = None


class BigqueryDestinationConfig(Shape):
    """Tables (ST-334); ours are Delta tables."""

    one_of = (
        ("single_target_dataset", "source_hierarchy_datasets"),
        ("merge", "append_only"),
    )
    single_target_dataset: SingleTargetDataset | None = None
    source_hierarchy_datasets: SourceHierarchyDatasets | None = None
    data_freshness: Duration | None = None
    merge: Empty | None = None
    append_only: Empty | None = None
    blmt_config: BlmtConfig | None = None


class FileSystemDestinationConfig(EventFilesConfig):
    """A landing zone with its Delta tables, or event files, in a folder (ST-325)."""

    one_of = (("landing_zone", "avro_file_format", "json_file_format"),)
    landing_zone: Empty | None = None


DESTINATION_CONFIGS = {
    "gcs_destination_config": "gcs_profile",
    "bigquery_destination_config": "bigquery_profile",
    "file_system_destination_config": "file_system_profile",
}
"""The kind of profile for each destination configuration."""


class DestinationConfig(Shape):
    one_of = (tuple(DESTINATION_CONFIGS),)
    destination_connection_profile: Text = Field(min_length=1)
    gcs_destination_config: GcsDestinationConfig | None = None
    bigquery_destination_config: BigqueryDestinationConfig | None = None
    file_system_destination_config: FileSystemDestinationConfig | None = None


class BackfillAll(Shape):
    """At most one field is set, for the kind of the source."""

    postgresql_excluded_objects: shape.PostgresqlRdbms | None = None
    mysql_excluded_objects: shape.MysqlRdbms | None = None
    oracle_excluded_objects: shape.OracleRdbms | None = None
    sql_server_excluded_objects: shape.SqlServerRdbms | None = None
    salesforce_excluded_objects: shape.SalesforceOrg | None = None
    mongodb_excluded_objects: shape.MongodbCluster | None = None


class Stream(Shape):
    """A stream, as sent and returned (ST-266). project_file: the file that lists it, unless the API
    created it. first_run_time: when it first ran, or failed."""

    one_of = (("backfill_all", "backfill_none"),)
    name: Text | None = None
    display_name: Text = ""
    labels: Labels = Field(default_factory=dict)
    create_time: Time | None = None
    update_time: Time | None = None
    state: State | None = None
    source_config: SourceConfig | None = None
    destination_config: DestinationConfig | None = None
    backfill_all: BackfillAll | None = None
    backfill_none: Empty | None = None
    errors: list[dict[str, Any]] | None = None
    customer_managed_encryption_key: Text | None = None
    first_run_time: Time | None = None
    last_recovery_time: Time | None = None
    project_file: Text | None = None
    satisfies_pzs: bool | None = None
    satisfies_pzi: bool | None = None


class MysqlLogPosition(Shape):
    log_file: Text = Field(min_length=1)
    log_position: Count | None = None


class OracleScnPosition(Shape):
    scn: Annotated[int, Field(ge=0)]


class SqlServerLsnPosition(Shape):
    lsn: Text = Field(min_length=1)


class MysqlGtidPosition(Shape):
    gtid_set: Text = Field(min_length=1)


class SpecificStartPosition(Shape):
    one_of = (
        (
            "mysql_log_position",
            "oracle_scn_position",
            "sql_server_lsn_position",
            "mysql_gtid_position",
        ),
    )
    mysql_log_position: MysqlLogPosition | None = None
    oracle_scn_position: OracleScnPosition | None = None
    sql_server_lsn_position: SqlServerLsnPosition | None = None
    mysql_gtid_position: MysqlGtidPosition | None = None


class CdcStrategy(Shape):
    """The position at which a recovery continues (ST-336, ST-337)."""

    one_of = (
        (
            "most_recent_start_position",
            "next_available_start_position",
            "specific_start_position",
        ),
    )
    most_recent_start_position: Empty | None = None
    next_available_start_position: Empty | None = None
    specific_start_position: SpecificStartPosition | None = None


class RunRequest(Shape):
    cdc_strategy: CdcStrategy | None = None
    force: bool = False


class EventFilter(Shape):
    """Which rows to backfill, as SQL; not supported."""

    sql_where_clause: Text = ""


class BackfillKeys(Shape):
    """The first and the last value of the first key column, both inclusive."""

    first: Text
    last: Text


class StartBackfillRequest(Shape):
    """A backfill of one object, whole or limited to key_range (ST-290)."""

    event_filter: EventFilter | None = None
    key_range: BackfillKeys | None = None
    max_rows_per_second: Annotated[int, Field(ge=1, le=2_147_483_647)] | None = None
    max_bytes_per_second: Annotated[int, Field(ge=1, le=2**53 - 1)] | None = None


BinaryLogParser.model_rebuild()
