"""Every source and destination configuration, as the official client sends it and reads it back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.app.running.capturing import backfill_settings
from mirrorlake.app.streams.projects import ServiceFolders, project_of
from mirrorlake.control.names import ResourceName
from mirrorlake.control.secrets import secrets_of
from mirrorlake.control.shapes.profiles import ConnectionProfile
from mirrorlake.control.shapes.streams import Stream
from mirrorlake.model.change import SchemaChangeKind
from mirrorlake.sources.selection import matches
from tests.server.test_client_requests import PARENT, Api, api

__all__ = ["api"]

PROFILES: Mapping[str, Any] = {
    "mysql": {"mysqlProfile": {"hostname": "h", "username": "u"}},
    "oracle": {"oracleProfile": {"hostname": "h", "username": "u", "databaseService": "s"}},
    "sql-server": {"sqlServerProfile": {"hostname": "h", "username": "u", "database": "d"}},
    "postgresql": {"postgresqlProfile": {"hostname": "h", "username": "u", "database": "d"}},
    "mongodb": {"mongodbProfile": {"hostAddresses": [{"hostname": "h"}], "username": "u"}},
}
COLUMNS = [{"column": "id"}, {"column": "note"}]
ORACLE = {"oracleSchemas": [{"schema": "S", "oracleTables": [{"table": "T"}]}]}
SOURCES = [
    pytest.param(
        "mysql",
        {
            "mysqlSourceConfig": {
                "includeObjects": {
                    "mysqlDatabases": [
                        {"database": "d", "mysqlTables": [{"table": "t", "mysqlColumns": COLUMNS}]}
                    ]
                },
                "excludeObjects": {"mysqlDatabases": [{"database": "e"}]},
                "maxConcurrentCdcTasks": 5,
                "maxConcurrentBackfillTasks": 12,
                **position,
            }
        },
        marks=pytest.mark.clause("ST-326"),
    )
    for position in ({"binaryLogPosition": {}}, {"gtid": {}})
]
SOURCES += [
    pytest.param(
        "oracle",
        {
            "oracleSourceConfig": {
                "includeObjects": ORACLE,
                "excludeObjects": ORACLE,
                "maxConcurrentCdcTasks": 5,
                "maxConcurrentBackfillTasks": 12,
                **more,
            }
        },
        marks=pytest.mark.clause("ST-327"),
    )
    for more in (
        {"dropLargeObjects": {}, "logMiner": {}},
        {"streamLargeObjects": {}, "binaryLogParser": {"oracleAsmLogFileAccess": {}}},
        {
            "binaryLogParser": {
                "logFileDirectories": {"onlineLogDirectory": "/o", "archivedLogDirectory": "/a"}
            }
        },
    )
]
SOURCES += [
    pytest.param(
        "sql-server",
        {
            "sqlServerSourceConfig": {
                "includeObjects": {
                    "schemas": [{"schema": "s", "tables": [{"table": "t", "columns": COLUMNS}]}]
                },
                "excludeObjects": {"schemas": [{"schema": "x"}]},
                "maxConcurrentCdcTasks": 5,
                "maxConcurrentBackfillTasks": 12,
                **method,
            }
        },
        marks=pytest.mark.clause("ST-329"),
    )
    for method in ({"transactionLogs": {}}, {"changeTables": {}})
]
SOURCES += [
    pytest.param(
        "mongodb",
        {
            "mongodbSourceConfig": {
                "includeObjects": {
                    "databases": [{"database": "d", "collections": [{"collection": "c"}]}]
                },
                "excludeObjects": {"databases": [{"database": "x"}]},
                "maxConcurrentBackfillTasks": 50,
            }
        },
        marks=pytest.mark.clause("ST-331"),
    ),
]


def to_tables(config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "destinationConnectionProfile": f"{PARENT}/connectionProfiles/tables",
        "bigqueryDestinationConfig": dict(config),
    }


def stream_of(api: Api, source: str, config: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A stream with a new profile of its source."""
    query = {"connectionProfileId": source, "force": "true"}
    api.post("connectionProfiles", PROFILES[source], **query)
    return {
        "displayName": "all of it",
        "sourceConfig": {"sourceConnectionProfile": f"{PARENT}/connectionProfiles/{source}"}
        | config,
        "destinationConfig": to_tables({"merge": {}}),
        "backfillAll": {},
        **more,
    }


def kept(api: Api, stream: Mapping[str, Any]) -> tuple[Any, Any]:
    """A stream as the client writes it, and as it reads it then."""
    from google.cloud import datastream_v1
    from google.protobuf.json_format import MessageToDict

    sent = datastream_v1.Stream.from_json(json.dumps(stream))
    body = MessageToDict(datastream_v1.Stream.pb(sent), use_integers_for_enums=True)
    api.post("streams", body, streamId="all", force="true")
    return sent, datastream_v1.Stream.from_json(json.dumps(api.get("streams/all")))


def forced_update(api: Api, mask: str, sent: Mapping[str, Any]) -> None:
    """No database is there to validate the stream with."""
    api("PATCH", f"{PARENT}/streams/all", sent, updateMask=mask, force="true")


@pytest.mark.parametrize(("source", "config"), SOURCES)
def test_a_source_configuration_is_kept_as_it_was_sent(
    api: Api, source: str, config: Mapping[str, Any]
) -> None:
    sent, found = kept(api, stream_of(api, source, config))
    assert found.source_config == sent.source_config


@pytest.mark.clause("ST-256", "ST-282", "ST-285", "ST-291")
@pytest.mark.parametrize(
    ("backfill", "loaded"),
    [
        ({"backfillAll": {}}, ["a.big", "a.small", "b.t"]),
        ({"backfillNone": {}}, []),
        (
            {
                "backfillAll": {
                    "postgresqlExcludedObjects": {
                        "postgresqlSchemas": [
                            {"schema": "a", "postgresqlTables": [{"table": "big"}]},
                            {"schema": "b"},
                        ]
                    }
                }
            },
            ["a.small"],
        ),
    ],
)
def test_a_stream_loads_the_rows_that_it_was_told_to_and_stops_a_dropped_table(
    backfill: Mapping[str, Any], loaded: list[str]
) -> None:
    sent = {
        "sourceConfig": {
            "sourceConnectionProfile": "postgresql",
            "postgresqlSourceConfig": {"replicationSlot": "s", "publication": "p"},
        },
        "destinationConfig": {
            "destinationConnectionProfile": "tables",
            "bigqueryDestinationConfig": {"merge": {}},
        },
        **backfill,
    }
    profiles = {**PROFILES, "tables": {"bigqueryProfile": {}}}
    project = project_of(
        ResourceName.parse(f"{PARENT}/streams/s"),
        Stream.model_validate(sent),
        lambda name: (ConnectionProfile.model_validate(profiles[name]), {}),
        ServiceFolders(Path("/service"), Path("/data")),
    )
    tables = ["a.big", "a.small", "b.t"]
    assert [one for one in tables if matches(one, project.capture.load)] == loaded
    assert not project.capture.load_joining
    assert project.capture.load_beside == (10 << 30 if loaded else None)
    assert project.capture.stops_at == {SchemaChangeKind.TABLE_DROPPED}


@pytest.mark.clause("ST-334")
@pytest.mark.parametrize(
    "config",
    [
        {"singleTargetDataset": {"datasetId": "p:d"}, "dataFreshness": "900s", "merge": {}},
        {
            "sourceHierarchyDatasets": {
                "datasetTemplate": {"location": "eu", "datasetIdPrefix": "x", "kmsKeyName": "k"},
                "projectId": "p",
            },
            "appendOnly": {},
        },
        {
            "blmtConfig": {
                "bucket": "b",
                "rootPath": "/r",
                "connectionName": "c",
                "fileFormat": "PARQUET",
                "tableFormat": "ICEBERG",
            }
        },
    ],
)
def test_a_destination_configuration_is_kept_and_what_is_not_done_is_named_at_the_start(
    api: Api, config: Mapping[str, Any]
) -> None:
    postgresql = {"postgresqlSourceConfig": {"replicationSlot": "s", "publication": "p"}}
    stream = stream_of(api, "postgresql", postgresql, destinationConfig=to_tables(config))
    sent, found = kept(api, stream)
    assert found.destination_config == sent.destination_config
    tried = api.post("streams", api.get("streams/all"), streamId="tried", validateOnly="true")[
        "metadata"
    ]["validationResult"]["validations"][0]
    assert tried["state"] == "NOT_EXECUTED"
    assert "is not offered" in tried["message"][0]["message"]


@pytest.mark.parametrize(
    ("source", "config", "field"),
    [
        ("mongodb", {"mongodbSourceConfig": {"maxConcurrentBackfillTasks": 51}}, "maxConcurrent"),
        (
            "mysql",
            {"mysqlSourceConfig": {"gtid": {}, "binaryLogPosition": {}}},
            "binaryLogPosition",
        ),
        ("mysql", {"mysqlSourceConfig": {"maxConcurrentCdcTasks": -1}}, "maxConcurrentCdcTasks"),
        ("oracle", {"oracleSourceConfig": {"logMiner": {}, "binaryLogParser": {}}}, "logMiner"),
        ("sql-server", {"sqlServerSourceConfig": {"none": {}}}, "none"),
        (
            "postgresql",
            {"postgresqlSourceConfig": {"replicationSlot": "s", "publication": "p" * 57}},
            "publication",
        ),
    ],
)
def test_a_configuration_that_contradicts_itself_is_refused_with_its_field(
    api: Api, source: str, config: Mapping[str, Any], field: str
) -> None:
    told = api.post("streams", stream_of(api, source, config), 400, streamId="all")["error"]
    assert field in told["message"]


def test_a_way_to_a_destination_that_would_not_be_taken_is_refused(api: Api) -> None:
    private = {"privateConnectivity": {"privateConnection": "c"}}
    profile = {"fileSystemProfile": {"rootPath": "r"}, **private}
    made = api.post("connectionProfiles", profile, connectionProfileId="private")
    told = made["metadata"]["validationResult"]["validations"][0]
    assert told["state"] == "NOT_EXECUTED"
    assert "private connectivity is not offered" in told["message"][0]["message"]
    assert "tunnel" not in told["message"][0]["message"]  # a folder has no host
    postgresql = {"postgresqlSourceConfig": {"replicationSlot": "s", "publication": "p"}}
    to = {
        "destinationConnectionProfile": f"{PARENT}/connectionProfiles/private",
        "fileSystemDestinationConfig": {"path": "p"},
    }
    stream = stream_of(api, "postgresql", postgresql, destinationConfig=to)
    tried = api.post("streams", stream, streamId="tried", validateOnly="true")
    found = tried["metadata"]["validationResult"]["validations"][0]["message"][0]["message"]
    assert "private connectivity is not offered" in found

    api.patch("connectionProfiles/private", {}, "privateConnectivity")
    assert "privateConnectivity" not in api.get("connectionProfiles/private")
    tried = api.post("streams", stream, streamId="tried", validateOnly="true")
    assert "is not offered" not in json.dumps(tried)


@pytest.mark.parametrize("missing", ["clientCertificate", "clientKey", "caCertificate"])
def test_a_verification_of_both_sides_needs_all_its_certificates(api: Api, missing: str) -> None:
    all_of_them = {"clientCertificate": "c", "clientKey": "k", "caCertificate": "a"}
    given = {name: pem for name, pem in all_of_them.items() if name != missing}
    source = PROFILES["postgresql"]["postgresqlProfile"]
    profile = {**source, "sslConfig": {"serverAndClientVerification": given}}
    tried = api.post("connectionProfiles", {"postgresqlProfile": profile}, connectionProfileId="c")
    assert f"serverAndClientVerification.{missing}" in tried["error"]["message"]


@pytest.mark.clause("ST-282")
def test_columns_that_are_excluded_from_a_load_refuse_no_stream(api: Api) -> None:
    postgresql = {"postgresqlSourceConfig": {"replicationSlot": "s", "publication": "p"}}
    tables = [{"table": "t", "postgresqlColumns": [{"column": "c"}]}]
    excluded = {"postgresqlSchemas": [{"schema": "a", "postgresqlTables": tables}]}
    backfill = {"postgresqlExcludedObjects": excluded}
    stream = stream_of(api, "postgresql", postgresql, backfillAll=backfill)
    kept(api, stream)
    assert api.get("streams/all")["backfillAll"] == backfill
    labels = {"labels": {"a": "b"}}
    forced_update(api, "labels", labels)
    assert api.get("streams/all")["labels"] == labels["labels"]


def test_an_encryption_key_is_not_passed_over(api: Api) -> None:
    postgresql = {"postgresqlSourceConfig": {"replicationSlot": "s", "publication": "p"}}
    stream = stream_of(api, "postgresql", postgresql, customerManagedEncryptionKey="k")
    kept(api, stream)
    tried = api.post("streams", api.get("streams/all"), streamId="tried", validateOnly="true")
    found = tried["metadata"]["validationResult"]["validations"][0]["message"][0]["message"]
    assert "customerManagedEncryptionKey is not offered" in found
    forced_update(api, "customerManagedEncryptionKey", {})
    assert not api.get("streams/all").get("customerManagedEncryptionKey")


@pytest.mark.clause("ST-332")
def test_a_limit_of_tasks_that_is_not_set_is_the_default(tmp_path: Any) -> None:
    profile = ConnectionProfile.model_validate(PROFILES["postgresql"])
    tables = ConnectionProfile.model_validate({"bigqueryProfile": {}})
    places = ServiceFolders(tmp_path, tmp_path / "data")

    def workers(**limit: int) -> tuple[int, int]:
        """For tables that are loaded, and for those that are backfilled."""
        source = {"replicationSlot": "s", "publication": "p", **limit}
        sent = {
            "sourceConfig": {"sourceConnectionProfile": "source", "postgresqlSourceConfig": source},
            "destinationConfig": to_tables({}),
            "backfillAll": {},
        }
        found = project_of(
            ResourceName.parse(f"{PARENT}/streams/all"),
            Stream.model_validate(sent),
            lambda name: (profile if name == "source" else tables, dict(secrets_of(profile))),
            places,
        )
        return found.capture.load_workers, backfill_settings(found).at_once

    assert workers() == workers(maxConcurrentBackfillTasks=0) == (2, 2)
    assert workers(maxConcurrentBackfillTasks=1) == (1, 1)
    assert workers(maxConcurrentBackfillTasks=7) == (7, 2)
    assert workers(maxConcurrentBackfillTasks=7_000) == (50, 2)


@pytest.mark.clause("FD-073")
@pytest.mark.parametrize(
    "position",
    [
        {"mysqlLogPosition": {"logFile": "binlog.000007", "logPosition": 4}},
        {"mysqlGtidPosition": {"gtidSet": "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"}},
        {"oracleScnPosition": {"scn": "7"}},
        {"sqlServerLsnPosition": {"lsn": "00000027:00000758:0003"}},
    ],
)
def test_a_run_from_a_position_is_read_as_the_client_sends_it(
    api: Api, position: Mapping[str, Any]
) -> None:
    kept(api, stream_of(api, "mysql", {"mysqlSourceConfig": {"gtid": {}}}))
    run = {"cdcStrategy": {"specificStartPosition": position}, "force": True}
    refused = api.post("streams/all:run", run, 501)["error"]
    assert refused["status"] == "UNIMPLEMENTED"
    assert next(iter(position)) in refused["message"]
    both = {"cdcStrategy": {"specificStartPosition": position, "mostRecentStartPosition": {}}}
    assert "only one of" in api.post("streams/all:run", both, 400)["error"]["message"]
