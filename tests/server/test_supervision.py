"""Streams under supervision: whatever dies, what is wanted is reached again."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from mirrorlake.model.landed import format_time
from mirrorlake.storage.lease import TERM
from tests.conftest import Database
from tests.crash.signalled import SECONDS
from tests.server.service import PARENT, Served, wait
from tests.server.test_official_client import landed

pytestmark = pytest.mark.postgres

STREAM = f"/v1/{PARENT}/streams/shop"


class Shop:
    """A service with one stream of a live database, which only captures."""

    def __init__(self, served: Served, database: Database) -> None:
        self.served, self.database = served, database
        database.execute(
            "create schema shop",
            "create table shop.orders (id bigint primary key)",
            "insert into shop.orders select generate_series(1, 3)",
        )
        facts = database.sql.info
        source = {
            "postgresqlProfile": {
                "hostname": facts.host,
                "port": facts.port,
                "username": facts.user,
                "secretManagerStoredPassword": "env:MIRRORLAKE_SECRET_SHOP",
                "database": facts.dbname,
            }
        }
        profiles = f"/v1/{PARENT}/connectionProfiles"
        self.call("POST", f"{profiles}?connectionProfileId=source", source)
        folder = {"fileSystemProfile": {"rootPath": "zones"}}
        self.call("POST", f"{profiles}?connectionProfileId=folder", folder)
        self.call("POST", f"/v1/{PARENT}/streams?streamId=shop", self.stream())

    def stream(self) -> dict[str, Any]:
        return {
            "sourceConfig": {
                "sourceConnectionProfile": f"{PARENT}/connectionProfiles/source",
                "postgresqlSourceConfig": {
                    "replicationSlot": f"slot_{self.database.name}",
                    "publication": f"pub_{self.database.name}",
                    "excludeObjects": {"postgresqlSchemas": [{"schema": "public"}]},
                },
            },
            "destinationConfig": {
                "destinationConnectionProfile": f"{PARENT}/connectionProfiles/folder",
                "fileSystemDestinationConfig": {"path": "shop", "landingZone": {}},
            },
            "backfillAll": {},
        }

    def call(self, method: str, path: str, body: Any = None) -> Any:
        code, answer = self.served.call(method, path, body)
        assert code == 200, answer
        assert "error" not in answer, answer
        return answer

    def ask(self, state: str) -> None:
        self.call("PATCH", f"{STREAM}?updateMask=state", {"state": state})

    @property
    def state(self) -> str:
        return str(self.call("GET", STREAM)["state"])

    def reaches(self, *states: str) -> None:
        wait(lambda: self.state in states, 120)

    def lands(self, *keys: int) -> None:
        root = self.served.folder / "data" / "files" / "zones" / "shop"
        wait(lambda: landed(root) == sorted(keys), 120)

    def reads_again(self, *keys: int) -> None:
        """These rows and no others are landed, perhaps more than once."""
        root = self.served.folder / "data" / "files" / "zones" / "shop"
        wait(lambda: sorted(set(landed(root))) == sorted(keys), 120)

    def insert(self, key: int) -> None:
        self.database.execute(f"insert into shop.orders values ({key})")

    def processes(self) -> list[int]:
        """The processes that the service started."""
        assert self.served.process
        task = Path(f"/proc/{self.served.process.pid}/task")
        return [
            int(child)
            for thread in task.iterdir()
            for child in (thread / "children").read_text().split()
            if "spawn_main" in Path(f"/proc/{child}/cmdline").read_text()
        ]


@pytest.fixture
def shop(tmp_path: Path, database: Database) -> Iterator[Shop]:
    password = {"MIRRORLAKE_SECRET_SHOP": database.sql.info.password}
    served = Served(tmp_path / "service", "--no-apply", **password).start()
    try:
        yield Shop(served, database)
    finally:
        served.stop()


@pytest.mark.full
def test_a_stream_is_changed_paused_and_deleted_while_it_runs(shop: Shop) -> None:
    shop.ask("RUNNING")
    shop.lands(1, 2, 3)
    config = shop.stream()["sourceConfig"]
    config["postgresqlSourceConfig"]["maxConcurrentBackfillTasks"] = 1
    before = shop.processes()
    shop.call("PATCH", f"{STREAM}?updateMask=sourceConfig", {"sourceConfig": config})
    wait(lambda: set(shop.processes()).isdisjoint(before) and shop.processes(), 120)
    shop.insert(4)
    shop.lands(1, 2, 3, 4)
    shop.ask("PAUSED")
    shop.reaches("PAUSED")
    shop.insert(5)
    shop.ask("RUNNING")
    shop.lands(1, 2, 3, 4, 5)
    shop.call("DELETE", STREAM)
    wait(lambda: shop.served.call("GET", STREAM)[0] == 404, 10)
    slots = "select count(*) from pg_replication_slots where slot_name = %s"
    name = [f"slot_{shop.database.name}"]
    wait(lambda: shop.database.sql.execute(slots, name).fetchone() == (0,), 20)


@pytest.mark.full
@pytest.mark.crash
@pytest.mark.parametrize("wanted", ["RUNNING", "STARTING", "DRAINING", "PAUSED", "DELETED", "LOST"])
def test_a_killed_service_reaches_what_was_wanted(shop: Shop, wanted: str) -> None:
    """LOST: it runs, and its database is gone too."""
    shop.ask("RUNNING")
    if wanted != "STARTING":
        shop.lands(1, 2, 3)
    if wanted in ("DRAINING", "PAUSED"):
        shop.ask("PAUSED")
    if wanted == "PAUSED":
        shop.reaches("PAUSED")
    if wanted == "DELETED":
        shop.call("DELETE", STREAM)
    shop.served.kill()
    if wanted == "LOST":
        for file in shop.served.folder.glob("streams.sqlite*"):
            file.unlink()
    shop.insert(4)
    shop.served.start()
    if wanted == "DELETED":
        wait(lambda: shop.served.call("GET", STREAM)[0] == 404, 10)
        return
    if wanted in ("DRAINING", "PAUSED"):
        shop.reaches("PAUSED")
        shop.ask("RUNNING")
    shop.reaches("RUNNING")
    shop.lands(1, 2, 3, 4)


@pytest.mark.crash
@pytest.mark.clause("ST-276")
def test_a_stream_whose_capture_or_source_goes_away_comes_back(shop: Shop) -> None:
    shop.ask("RUNNING")
    shop.lands(1, 2, 3)
    for process in shop.processes():
        os.kill(process, signal.SIGKILL)
    shop.reaches("FAILED")
    assert shop.call("GET", STREAM)["errors"][0]["message"]
    shop.reaches("RUNNING")
    shop.insert(4)
    shop.lands(1, 2, 3, 4)
    name = shop.database.name
    with psycopg.connect(shop.database.server.url, autocommit=True) as admin:
        admin.execute(f"alter database {name} with allow_connections false")
        admin.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s "
            "and pid <> %s",
            [name, shop.database.sql.info.backend_pid],
        )
        shop.reaches("FAILED")

        def is_told_now() -> bool:
            """Why it does not come back, and not only how the connection ended."""
            (error,) = shop.call("GET", STREAM)["errors"]
            return "is not currently accepting connections" in error["message"]

        wait(is_told_now, 30)
        admin.execute(f"alter database {name} with allow_connections true")
    shop.reaches("RUNNING")
    assert shop.call("GET", STREAM)["errors"] == []
    shop.insert(5)
    shop.lands(1, 2, 3, 4, 5)


@pytest.mark.full
@pytest.mark.crash
def test_a_capture_that_hangs_touches_no_other_stream_and_is_ended(shop: Shop) -> None:
    other = STREAM.replace("streams/shop", "streams/other")
    config = shop.stream()
    postgres = config["sourceConfig"]["postgresqlSourceConfig"]
    for name in ("replicationSlot", "publication"):
        postgres[name] += "_other"
    config["destinationConfig"]["fileSystemDestinationConfig"]["path"] = "other"
    shop.call("POST", f"/v1/{PARENT}/streams?streamId=other", config)
    shop.ask("RUNNING")
    shop.lands(1, 2, 3)
    (hanging,) = shop.processes()
    os.kill(hanging, signal.SIGSTOP)
    shop.call("PATCH", f"{other}?updateMask=state", {"state": "RUNNING"})
    shop.insert(4)
    root = shop.served.folder / "data" / "files" / "zones" / "other"
    wait(lambda: landed(root) == [1, 2, 3, 4], 120)
    shop.ask("PAUSED")
    shop.reaches("PAUSED")
    assert hanging not in shop.processes()
    shop.ask("RUNNING")
    shop.lands(1, 2, 3, 4)
    os.kill(next(iter(shop.processes())), signal.SIGSTOP)
    assert shop.served.stop() < SECONDS


@pytest.mark.full
@pytest.mark.full
def test_a_stream_whose_capture_is_suspended_says_so_until_it_goes_on(shop: Shop) -> None:
    shop.ask("RUNNING")
    shop.lands(1, 2, 3)
    shop.reaches("RUNNING")
    (capture,) = shop.processes()
    os.kill(capture, signal.SIGSTOP)
    try:
        leases = shop.served.folder / "data/files/zones/shop/Files/Mirrorlake/leases/capture"
        (lease,) = leases.glob("*.json")
        renewed = format_time(datetime.now(UTC) - TERM - timedelta(seconds=1))
        lease.write_text(json.dumps(json.loads(lease.read_text()) | {"renewed": renewed}))
        shop.insert(4)
        shop.reaches("FAILED")
        (error,) = shop.call("GET", STREAM)["errors"]
        assert error["reason"] == "PROCESS_SUSPENDED"
        assert f"`kill -CONT {capture}`" in error["message"]
    finally:
        os.kill(capture, signal.SIGCONT)
    shop.lands(1, 2, 3, 4)
    shop.reaches("RUNNING")
    assert not shop.call("GET", STREAM).get("errors")
    assert shop.processes() == [capture]


def test_a_stream_writes_json_files_in_a_folder(shop: Shop) -> None:
    destination = shop.stream()["destinationConfig"]
    destination["fileSystemDestinationConfig"] = {"path": "shop", "jsonFileFormat": {}}
    sent = {"destinationConfig": destination}
    shop.call("PATCH", f"{STREAM}?updateMask=destinationConfig", sent)
    shop.ask("RUNNING")
    files = shop.served.folder / "data/files/zones/shop"

    def keys() -> list[int]:
        lines = [line for path in files.rglob("*.jsonl") for line in path.open()]
        return sorted(json.loads(line)["payload"]["id"] for line in lines)

    wait(lambda: keys() == [1, 2, 3], 120)


@pytest.mark.full
@pytest.mark.clause("ST-282", "ST-285", "ST-291", "ST-292")
def test_a_stream_without_backfill_lands_only_changes_until_one_is_asked_for(shop: Shop) -> None:
    sent = shop.stream() | {"backfillNone": {}}
    del sent["backfillAll"]
    shop.call("PATCH", f"{STREAM}?updateMask=backfillAll,backfillNone", sent)
    shop.ask("RUNNING")
    shop.reaches("RUNNING")
    objects = f"{STREAM}/objects"
    (one,) = wait(lambda: shop.call("GET", objects)["streamObjects"], 120)
    wait(
        lambda: shop.call("GET", f"/v1/{one['name']}")["backfillJob"]["state"] == "NOT_STARTED", 60
    )
    shop.insert(4)
    shop.lands(4)
    shop.call("POST", f"/v1/{one['name']}:startBackfillJob")
    shop.reads_again(1, 2, 3, 4)


@pytest.mark.full
@pytest.mark.clause("ST-277", "ST-338")
def test_a_lost_slot_fails_permanently_until_a_run_reads_the_tables_again(shop: Shop) -> None:
    shop.ask("RUNNING")
    shop.lands(1, 2, 3)
    shop.ask("PAUSED")
    shop.reaches("PAUSED")
    shop.database.execute(f"select pg_drop_replication_slot('slot_{shop.database.name}')")
    shop.insert(4)
    shop.ask("RUNNING")
    shop.reaches("FAILED_PERMANENTLY")
    (error,) = shop.call("GET", STREAM)["errors"]
    assert error["reason"] == "SOURCE_GAP"
    assert ":run" in error["details"]["hint"]
    shop.call("POST", f"{STREAM}:run", {"cdcStrategy": {"nextAvailableStartPosition": {}}})
    shop.reaches("RUNNING")
    shop.reads_again(1, 2, 3, 4)
    assert shop.call("GET", STREAM)["lastRecoveryTime"]

    def is_over() -> bool:
        (orders,) = shop.call("GET", f"{STREAM}/objects")["streamObjects"]
        job = orders["backfillJob"]
        is_complete = (job["state"], job["trigger"]) == ("COMPLETED", "AUTOMATIC")
        has_read = job.get("progress", {}).get("rows") == 4
        return is_complete and has_read and orders["errors"] == []

    wait(is_over, 60)


@pytest.mark.full
@pytest.mark.crash
def test_a_killed_service_knows_again_what_failed_and_why(shop: Shop) -> None:
    shop.ask("RUNNING")
    shop.lands(1, 2, 3)
    name = shop.database.name
    with psycopg.connect(shop.database.server.url, autocommit=True) as admin:
        admin.execute(f"alter database {name} with allow_connections false")
        admin.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s "
            "and pid <> %s",
            [name, shop.database.sql.info.backend_pid],
        )
        shop.reaches("FAILED")
        shop.served.kill()
        shop.served.start()
        assert shop.state == "FAILED"
        assert shop.call("GET", STREAM)["errors"]
        admin.execute(f"alter database {name} with allow_connections true")
    shop.reaches("RUNNING")
    shop.ask("PAUSED")
    shop.reaches("PAUSED")
    shop.database.execute(f"select pg_drop_replication_slot('slot_{name}')")
    shop.ask("RUNNING")
    shop.reaches("FAILED_PERMANENTLY")
    shop.served.kill()
    shop.served.start()
    assert shop.state == "FAILED_PERMANENTLY"
    shop.insert(4)
    shop.call("POST", f"{STREAM}:run")
    shop.served.kill()  # whatever it has done of the recovery
    shop.served.start()
    shop.reaches("RUNNING")
    shop.reads_again(1, 2, 3, 4)


@pytest.mark.full
def test_a_stream_made_again_under_its_name_is_refused_until_a_run(shop: Shop) -> None:
    shop.ask("RUNNING")
    shop.lands(1, 2, 3)
    going = shop.call("DELETE", STREAM)
    wait(lambda: shop.call("GET", f"/v1/{going['name']}")["done"], 120)
    shop.insert(4)
    shop.call("POST", f"/v1/{PARENT}/streams?streamId=shop", shop.stream())
    shop.ask("RUNNING")
    wait(lambda: shop.state == "NOT_STARTED", 120)
    (error,) = shop.call("GET", STREAM)["errors"]
    assert "mirrorlake streams run shop" in error["message"]
    shop.lands(1, 2, 3)
    shop.call("POST", f"{STREAM}:run")
    shop.reaches("RUNNING")
    shop.lands(1, 2, 3, 4)


@pytest.mark.full
def test_the_service_drains_within_five_seconds_and_goes_on_where_it_was(shop: Shop) -> None:
    shop.ask("RUNNING")
    shop.lands(1, 2, 3)
    shop.insert(4)
    children = shop.processes()
    assert shop.served.stop() < SECONDS
    wait(lambda: not any(Path(f"/proc/{child}").exists() for child in children), 5)
    shop.insert(5)
    shop.served.start()
    shop.reaches("RUNNING")
    shop.lands(1, 2, 3, 4, 5)
