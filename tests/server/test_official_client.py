"""The official client, unmodified, drives a stream of a live database into Delta tables."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from mirrorlake.cli.main import app
from tests.conftest import Database
from tests.delta.readers import rows_by_duckdb
from tests.server.service import PARENT, Served, wait

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture(
    params=["capture", pytest.param("mirror", marks=[pytest.mark.spark, pytest.mark.full])]
)
def served(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Served]:
    """A service that only captures, and one that mirrors too."""
    options = ["--no-apply"] if request.param == "capture" else []
    service = Served(tmp_path / "service", *options).start()
    yield service
    assert service.stop() < 10


def landed(root: Path) -> list[Any]:
    """The keys of all rows that are landed."""
    files = root.glob("Files/LandingZone/shop.schema/orders/[0-9]*.parquet")
    return sorted(key for file in files for key in pq.read_table(file)["id"].to_pylist())


def profile_of(database: Database, **more: Any) -> dict[str, Any]:
    """A profile as the client takes it."""
    facts = database.sql.info
    return {
        "display_name": "shop",
        "postgresql_profile": {
            "hostname": facts.host,
            "port": facts.port,
            "username": facts.user,
            "password": facts.password or "none",
            "database": facts.dbname,
            **more,
        },
        "static_service_ip_connectivity": {},
    }


def stream_of(database: Database, name: str = "shop") -> dict[str, Any]:
    return {
        "display_name": name,
        "source_config": {
            "source_connection_profile": f"{PARENT}/connectionProfiles/source",
            "postgresql_source_config": {
                "replication_slot": f"slot_{database.name}",
                "publication": f"pub_{database.name}",
                "include_objects": {
                    "postgresql_schemas": [
                        {"schema": "shop", "postgresql_tables": [{"table": "orders"}]}
                    ]
                },
            },
        },
        "destination_config": {
            "destination_connection_profile": f"{PARENT}/connectionProfiles/tables",
            "bigquery_destination_config": {"merge": {}, "source_hierarchy_datasets": {}},
        },
        "backfill_all": {},
    }


@pytest.mark.clause("ST-001", "ST-002", "ST-274", "ST-280", "ST-298", "ST-302")
@pytest.mark.clause("ST-287", "ST-289", "ST-290")
@pytest.mark.clause("FD-070", "FD-074", "FD-075")
@pytest.mark.clause("ST-307", "ST-308", "ST-309", "ST-310", "ST-311", "ST-312", "ST-345")
def test_a_stream_lives_its_whole_life(served: Served, database: Database) -> None:
    from google.api_core import exceptions
    from google.cloud import datastream_v1 as api
    from google.protobuf.field_mask_pb2 import FieldMask

    database.execute(
        "create schema shop",
        "create table shop.orders (id bigint primary key, note text)",
        "insert into shop.orders select g, 'a' from generate_series(1, 10) g",
    )
    client = served.client()

    def create_profile(name: str, profile: dict[str, Any], **more: Any) -> Any:
        request = {
            "parent": PARENT,
            "connection_profile_id": name,
            "connection_profile": profile,
            **more,
        }
        return client.create_connection_profile(request=request).result(60)

    made = create_profile("source", profile_of(database))
    assert made.name == f"{PARENT}/connectionProfiles/source"
    assert not made.postgresql_profile.password
    create_profile("tables", {"display_name": "tables", "bigquery_profile": {}})
    with pytest.raises(exceptions.Conflict):
        create_profile("source", profile_of(database))
    with pytest.raises(exceptions.NotFound):
        client.get_connection_profile(name=f"{PARENT}/connectionProfiles/none")
    assert [one.name for one in client.list_connection_profiles(parent=PARENT)] == [
        f"{PARENT}/connectionProfiles/source",
        f"{PARENT}/connectionProfiles/tables",
    ]
    found = client.discover_connection_profile(
        request={
            "parent": PARENT,
            "connection_profile_name": made.name,
            "full_hierarchy": True,
            "postgresql_rdbms": {"postgresql_schemas": [{"schema": "shop"}]},
        }
    )
    (schema,) = found.postgresql_rdbms.postgresql_schemas
    (table,) = schema.postgresql_tables
    assert [(c.column, c.data_type, c.primary_key) for c in table.postgresql_columns] == [
        ("id", "int8", True),
        ("note", "text", False),
    ]

    inline = {"parent": PARENT, "connection_profile": profile_of(database), "hierarchy_depth": 1}
    found = client.discover_connection_profile(request={**inline, "postgresql_rdbms": {}})
    levels = {
        one.schema: list(one.postgresql_tables) for one in found.postgresql_rdbms.postgresql_schemas
    }
    assert levels["shop"] == []

    stream = stream_of(database)
    name = f"{PARENT}/streams/shop"
    asked = {"parent": PARENT, "stream_id": "shop", "stream": stream}
    client.create_stream(request={**asked, "validate_only": True}).result(60)
    with pytest.raises(exceptions.NotFound):
        client.get_stream(name=name)
    request_id = str(uuid.uuid4())
    first = client.create_stream(request={**asked, "request_id": request_id})
    again = client.create_stream(request={**asked, "request_id": request_id})
    assert first.operation.name == again.operation.name
    assert first.result(60).state == api.Stream.State.NOT_STARTED
    with pytest.raises(exceptions.Conflict):
        client.create_stream(request=asked)

    def move(state: Any) -> Any:
        wanted = api.Stream(name=name, state=state)
        return client.update_stream(stream=wanted, update_mask=FieldMask(paths=["state"])).result(
            90
        )

    assert move(api.Stream.State.RUNNING).state == api.Stream.State.RUNNING
    root = served.folder / "data" / "tables" / "p" / "l" / "shop"

    table_path = root / "Tables" / "shop" / "orders"

    applies = not served.options

    def rows() -> list[Any]:
        if not applies:
            return landed(root)
        if not list(table_path.glob("_delta_log/*0.json")):
            return []
        return sorted(row[0] for row in rows_by_duckdb(table_path))

    wait(lambda: rows() == list(range(1, 11)), 120)
    objects = wait(lambda: list(client.list_stream_objects(parent=name)), 120)
    (one,) = objects
    assert one.source_object.postgresql_identifier.table == "orders"
    state = api.BackfillJob.State
    backfill = state.COMPLETED if applies else state.ACTIVE
    wait(lambda: client.get_stream_object(name=one.name).backfill_job.state == backfill, 120)
    if applies:
        line = f'mirrorlake_stream_event_count_total{{stream="{name}"}} 10.0'
        wait(lambda: line in served.call("GET", "/metrics")[1].decode(), 120)
    same = client.lookup_stream_object(
        request={
            "parent": name,
            "source_object_identifier": {
                "postgresql_identifier": {"schema": "shop", "table": "orders"}
            },
        }
    )
    assert same.name == one.name == client.get_stream_object(name=one.name).name
    refused = exceptions.BadRequest if applies else exceptions.MethodNotImplemented
    with pytest.raises(refused, match=r"no backfill|the load"):
        client.stop_backfill_job(object_=one.name)

    changed = api.Stream(name=name, display_name="new", labels={"a": "b"})
    client.update_stream(
        stream=changed, update_mask=FieldMask(paths=["display_name", "labels"])
    ).result(60)
    assert client.get_stream(name=name).display_name == "new"
    assert client.get_stream(name=name).state == api.Stream.State.RUNNING

    database.execute("insert into shop.orders values (11, 'b')")
    if not applies:
        wait(lambda: rows() == list(range(1, 12)), 120)
    assert move(api.Stream.State.PAUSED).state == api.Stream.State.PAUSED
    before = rows()
    database.execute("insert into shop.orders values (12, 'c')")
    with pytest.raises(exceptions.BadRequest, match="PAUSED"):
        move(api.Stream.State.DRAINING)
    assert rows() == before
    assert move(api.Stream.State.RUNNING).state == api.Stream.State.RUNNING
    wait(lambda: rows() == list(range(1, 13)), 120)

    _backfill_starts_and_stops_while_changes_flow(served, one.name)
    database.execute("insert into shop.orders values (13, 'd')")
    wait(lambda: set(rows()) == set(range(1, 14)), 120)

    assert [one.name for one in client.list_streams(parent=PARENT)] == [name]
    if applies:
        for metric in ("slot_lag_bytes", "total_latency_seconds_count", "freshness_seconds"):
            line = f'mirrorlake_stream_{metric}{{stream="{name}"}}'
            wait(lambda line=line: line in served.call("GET", "/metrics")[1].decode(), 120)
    client.delete_stream(name=name).result(60)
    with pytest.raises(exceptions.NotFound):
        client.get_stream(name=name)
    slots = "select count(*) from pg_replication_slots where slot_name = %s"
    assert database.sql.execute(slots, [f"slot_{database.name}"]).fetchone() == (0,)
    client.delete_connection_profile(name=made.name).result(60)


def _backfill_starts_and_stops_while_changes_flow(served: Served, name: str) -> None:
    from google.api_core import exceptions
    from google.cloud.datastream_v1 import BackfillJob

    client = served.client()
    state = BackfillJob.State

    def becomes(*wanted: Any) -> Any:
        def job() -> Any:
            found = client.get_stream_object(name=name).backfill_job
            return found if found.state in wanted else None

        return wait(job, 120)

    slow = ["--max-rows-per-second", "1", "--where-key", "1", "1000000", "--json"]
    command = ["objects", "shop", "backfill", "shop.orders", *slow, "--location", PARENT]
    done = CliRunner().invoke(app, [*command, "--folder", str(served.folder)])
    assert json.loads(done.stdout)[0]["backfillJob"]["state"] == "PENDING"
    with pytest.raises(exceptions.BadRequest, match="cannot become PENDING"):
        client.start_backfill_job(object_=name)
    becomes(state.ACTIVE)
    asked = client.stop_backfill_job(object_=name).object_
    assert asked.backfill_job.trigger == BackfillJob.Trigger.MANUAL
    becomes(state.STOPPED)
    assert client.start_backfill_job(object_=name).object_.backfill_job.state == state.PENDING
    ended = becomes(state.COMPLETED)
    assert ended.last_end_time >= ended.last_start_time
    progress = served.call("GET", f"/v1/{name}")[1]["backfillJob"]["progress"]
    assert progress["rows"] == 12
    filtered = {"object_": name, "event_filter": {"sql_where_clause": "true"}}
    with pytest.raises(exceptions.MethodNotImplemented, match="keyRange"):
        client.start_backfill_job(request=filtered)
