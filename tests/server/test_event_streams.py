"""Streams to event files by the API: one beside a stream to tables, of the same database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.urls import open_store
from tests.conftest import Database
from tests.delta.readers import rows_by_duckdb
from tests.doubles.google_storage import GoogleStorage
from tests.events.values import decoded
from tests.objects import S3Server
from tests.server.service import PARENT, Served, wait
from tests.server.test_official_client import profile_of, stream_of

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture(
    params=["capture", pytest.param("mirror", marks=[pytest.mark.spark, pytest.mark.full])]
)
def served(
    tmp_path: Path, s3: S3Server, google: GoogleStorage, request: pytest.FixtureRequest
) -> Iterator[Served]:
    options = ["--no-apply"] if request.param == "capture" else []
    where = {"AWS_ENDPOINT_URL": s3.endpoint, "AWS_REGION": "us-east-1"}
    where["GOOGLE_BASE_URL"] = google.endpoint
    service = Served(tmp_path / "service", *options, **where).start()
    yield service
    assert service.stop() < 10


def events_in(url: str, options: ObjectOptions) -> list[dict[str, Any]]:
    """The events of all files, by key, in the order of their sort keys."""
    store = open_store(url, options)
    names = [
        f"{folder}/{entry.name}" if folder else entry.name
        for folder, listing in store.tree("").items()
        for entry in listing.files
    ]
    found = [event for name in names for event in decoded(store.read(name))]
    return sorted(found, key=lambda event: event["sort_keys"])


def rows_of(events: list[dict[str, Any]]) -> dict[int, str]:
    """The table that the events make."""
    rows: dict[int, str] = {}
    for event in events:
        key = event["payload"]["id"]
        if event["source_metadata"]["is_deleted"]:
            rows.pop(key, None)
        else:
            rows[key] = event["payload"]["note"]
    return rows


@pytest.mark.full
@pytest.mark.clause("ST-030", "ST-265", "ST-313", "ST-321", "ST-333")
def test_the_official_client_runs_a_stream_to_avro_files_beside_one_to_tables(
    served: Served, database: Database, s3: S3Server, google: GoogleStorage
) -> None:
    from google.api_core import exceptions
    from google.cloud import datastream_v1 as api
    from google.protobuf.field_mask_pb2 import FieldMask

    database.execute(
        "create schema shop",
        "create table shop.orders (id bigint primary key, note text)",
        "insert into shop.orders select g, 'a' from generate_series(1, 10) g",
    )
    client = served.client()
    storage: S3Server | GoogleStorage = google if served.options else s3
    bucket = storage.new_bucket()
    profiles = {
        "source": profile_of(database),
        "tables": {"bigquery_profile": {}},
        "events": {"gcs_profile": {"bucket": bucket.removeprefix("gs://"), "root_path": "/shop"}},
    }
    for name, profile in profiles.items():
        client.create_connection_profile(
            parent=PARENT, connection_profile_id=name, connection_profile=profile
        ).result(60)
    with pytest.raises(exceptions.GoogleAPICallError, match="cannot be listed"):
        client.create_connection_profile(
            parent=PARENT,
            connection_profile_id="missing",
            connection_profile={"gcs_profile": {"bucket": "s3://there-is-none"}},
        ).result(60)
    to_tables, to_events = stream_of(database, "tables"), stream_of(database, "events")
    config = to_events["source_config"]["postgresql_source_config"]
    config["replication_slot"] += "_events"
    config["publication"] += "_events"
    to_events["destination_config"] = {
        "destination_connection_profile": f"{PARENT}/connectionProfiles/events",
        "gcs_destination_config": {
            "path": "/orders",
            "file_rotation_mb": 5,
            "file_rotation_interval": {"seconds": 1},
            "avro_file_format": {},
        },
    }

    def move(name: str, state: str) -> None:
        wanted = api.Stream(name=f"{PARENT}/streams/{name}", state=state)
        client.update_stream(stream=wanted, update_mask=FieldMask(paths=["state"])).result(90)

    for name, stream in (("tables", to_tables), ("events", to_events)):
        client.create_stream(parent=PARENT, stream_id=name, stream=stream).result(60)
        move(name, "RUNNING")

    def written() -> dict[int, str]:
        return rows_of(events_in(f"{bucket}/shop/orders", storage.options))

    wait(lambda: len(written()) == 10, 120)
    database.execute(
        "update shop.orders set note = 'b' where id <= 5",
        "delete from shop.orders where id = 10",
        "insert into shop.orders values (11, 'c')",
    )
    rows = database.sql.execute("select id, note from shop.orders").fetchall()
    wait(lambda: written() == dict(rows), 120)
    event = events_in(f"{bucket}/shop/orders", storage.options)[0]
    assert event["stream_name"] == f"{PARENT}/streams/events"
    if not served.options:
        table = served.folder / "data/tables/p/l/tables/Tables/shop/orders"
        wait(
            lambda: (
                any(table.glob("_delta_log/*.json"))
                and sorted(tuple(row[:2]) for row in rows_by_duckdb(table)) == sorted(rows)
            ),
            120,
        )
    (one,) = wait(lambda: list(client.list_stream_objects(parent=f"{PARENT}/streams/events")), 120)
    state = api.BackfillJob.State.COMPLETED
    wait(lambda: client.get_stream_object(name=one.name).backfill_job.state == state, 120)
    client.start_backfill_job(object_=one.name)
    manual = api.BackfillJob.Trigger.MANUAL

    def backfilled() -> bool:
        job = client.get_stream_object(name=one.name).backfill_job
        return (job.state, job.trigger) == (state, manual)

    wait(backfilled, 120)

    told = client.discover_connection_profile(
        request={
            "parent": PARENT,
            "connection_profile_name": f"{PARENT}/connectionProfiles/events",
            "full_hierarchy": True,
            "postgresql_rdbms": {},
        }
    )
    (schema,) = told.postgresql_rdbms.postgresql_schemas
    (table,) = schema.postgresql_tables
    assert [(one.column, one.data_type, one.primary_key) for one in table.postgresql_columns] == [
        ("id", "LONG", True),
        ("note", "STRING", False),
    ]

    move("events", "PAUSED")
    database.execute("insert into shop.orders values (12, 'd')")
    before = written()
    assert 12 not in before
    move("events", "RUNNING")
    wait(lambda: written() == before | {12: "d"}, 120)
    client.delete_stream(name=f"{PARENT}/streams/events").result(60)
    client.create_stream(parent=PARENT, stream_id="events", stream=to_events).result(60)
    move("events", "RUNNING")  # it begins anew beside the files of the first
