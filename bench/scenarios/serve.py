"""The service: how fast its API answers with many streams, and what it costs when nothing happens.

`serve-api`: 100 streams of 100 objects each, of which none runs; one client, one request after the
other on one connection. The seconds are the 95th percentile of the slowest kind of request.
`serve-overview`: the page of all streams, of 100 streams with 100 tables each that somebody
has looked at, 10,000 in all; the seconds are the 95th percentile.
`serve-idle`: ten streams capture from one database in which nothing changes, once the log of the
server has stood still for a minute. The percentages are of one core: of the process of the service,
and of all ten processes of capture together; the limit is for all of them. Nothing is compared with
a peer. Equal: what is answered is what was stored; all streams run.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import psycopg
import uvicorn
from starlette.applications import Starlette

from bench import server as servers
from bench.result import Result
from bench.rounds import Plan, say, timed
from mirrorlake.app.running.batches import ServiceBatches
from mirrorlake.app.running.capture_keeper import CaptureKeeper
from mirrorlake.app.status.mirror_status import Status
from mirrorlake.app.status.table_status import TableStatus
from mirrorlake.app.streams.projects import ServiceFolders
from mirrorlake.app.streams.service import opened
from mirrorlake.app.streams.supervisor import Work
from mirrorlake.app.streams.validation import WorldValidator
from mirrorlake.capture.watch.still_log import AFTER_SECONDS
from mirrorlake.control.control import Control
from mirrorlake.control.names import ResourceKind, ResourceName
from mirrorlake.control.requests import Asked
from mirrorlake.control.secrets import SecretFile
from mirrorlake.control.store.database import Database
from mirrorlake.model.applied import Totals
from mirrorlake.model.clock import WallClock
from mirrorlake.model.state import TableState
from mirrorlake.server.application import application
from mirrorlake.server.connections import IDLE_SECONDS as KEPT_SECONDS
from mirrorlake.server.connections import BoundedConnection

STREAMS, OBJECTS, REQUESTS = 100, 100, 100
LIMIT_SECONDS, LIMIT_PAGE_SECONDS = 0.05, 0.3
IDLE_STREAMS, IDLE_SECONDS = 10, 30
BEGIN_SECONDS = AFTER_SECONDS + 10
LIMIT_PERCENT = 1.0
_WAIT_SECONDS = 120
_PARENT = "projects/bench/locations/local"


def run(plan: Plan) -> list[Result]:
    return [_api(plan), _overview(plan), _idle(plan)]


def _api(plan: Plan) -> Result:
    folder = plan.folder / "api"
    streams, objects = plan.sized(STREAMS), plan.sized(OBJECTS)
    say(f"  storing {streams} streams of {objects} objects")
    one = _stored(folder, streams, objects)
    paths = {
        "list streams": f"/v1/{_PARENT}/streams?pageSize=1000",
        "filter streams": f"/v1/{_PARENT}/streams?filter=state=NOT_STARTED&pageSize=1000",
        "get stream": f"/v1/{one.parent}",
        "list objects": f"/v1/{one.parent}/objects?pageSize=1000",
        "get object": f"/v1/{one}",
        "metrics": "/metrics",
    }
    found: dict[str, list[float]] = {name: [] for name in paths}
    with _service(folder) as (_process, ask):
        listed = json.loads(ask("GET", paths["list streams"]))["streams"]
        inside = json.loads(ask("GET", paths["list objects"]))["streamObjects"]
        for _ in range(plan.rounds * REQUESTS):
            for name, path in paths.items():
                with timed() as watch:
                    ask("GET", path)
                found[name].append(watch.seconds)
    tails = {name: statistics.quantiles(all_, n=20)[-1] for name, all_ in found.items()}
    worst = max(tails, key=lambda name: tails[name])
    over = (
        f"p95 of {worst} is {tails[worst] * 1e3:.0f} ms, the limit is {LIMIT_SECONDS * 1e3:.0f} ms"
        if tails[worst] > LIMIT_SECONDS
        else ""
    )
    more: dict[str, float] = {"streams": streams, "objects": objects}
    more |= {f"p95 ms {name}": round(seconds * 1e3, 1) for name, seconds in tails.items()}
    is_whole = (len(listed), len(inside)) == (streams, objects)
    return Result("serve-api", tails[worst], over=over, equal=is_whole, more=more)


class _Looked:
    """What a supervisor has seen of streams that do not run here."""

    def __init__(self, works: list[Work]) -> None:
        self._works, self.batches = works, ServiceBatches()
        self.batches.follow({str(work.name) for work in works})

    def works(self) -> list[Work]:
        return self._works


def _overview(plan: Plan) -> Result:
    folder = plan.folder / "overview"
    streams, tables = plan.sized(STREAMS), plan.sized(OBJECTS)
    say(f"  storing {streams} streams of {tables} tables")
    _stored(folder, streams, tables)
    works = [
        Work(
            ResourceName(_PARENT, ResourceKind.STREAM, f"s{one}"),
            CaptureKeeper(WallClock()),
            status=_status(one, tables),
        )
        for one in range(streams)
    ]
    seconds: list[float] = []
    page = ""
    places = ServiceFolders(folder, folder / "data")
    with opened(places, threading.Event(), applies=False) as service:
        looked: Any = _Looked(works)
        app = application(replace(service, supervisor=looked), token=None)
        with _listening(app) as port:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
            for _ in range(plan.rounds * REQUESTS):
                with timed() as watch:
                    connection.request("GET", "/")
                    page = connection.getresponse().read().decode()
                seconds.append(watch.seconds)
    tail = statistics.quantiles(seconds, n=20)[-1]
    over = (
        f"p95 is {tail * 1e3:.0f} ms, the limit is {LIMIT_PAGE_SECONDS * 1e3:.0f} ms"
        if tail > LIMIT_PAGE_SECONDS
        else ""
    )
    is_whole = page.count(f'<td class="number">{tables:,}</td>') == streams
    more = {"streams": streams, "tables": streams * tables, "kibibytes": len(page) >> 10}
    return Result("serve-overview", tail, over=over, equal=is_whole, more=more)


def _status(stream: int, tables: int) -> Status:
    now = datetime.now(UTC)
    found = [
        TableStatus(
            table=f"bench.t{one}",
            state=TableState.REPLICATING,
            path=f"Tables/bench/t{one}",
            version=one,
            last_file=one,
            pending_files=0,
            position="0/1B00F00:10",
            total=Totals(insert=one),
            lag_seconds=0.0,
            error=None,
            synced=now,
            source_time=now,
        )
        for one in range(tables)
    ]
    return Status(f"s{stream}", "capture", "apply", found)


@contextmanager
def _listening(app: Starlette) -> Iterator[int]:
    """Serve in this process. Yields the port."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        config = uvicorn.Config(app, http=BoundedConnection, log_config=None, lifespan="off")
        server = uvicorn.Server(config)
        serving = threading.Thread(target=lambda: asyncio.run(server.serve([bound])))
        serving.start()
        while not server.started:
            time.sleep(0.05)
        yield bound.getsockname()[1]
        server.should_exit = True
        serving.join()


def _stored(folder: Path, streams: int, objects: int) -> ResourceName:
    """Streams and objects in the database of a service that does not run. Returns an object."""
    folder.mkdir(mode=0o700)
    database = Database(f"sqlite:///{folder / 'streams.sqlite'}")
    validator = WorldValidator(ServiceFolders(folder, folder / "data"))
    control = Control(database, SecretFile(folder), validator, WallClock())
    source = {"hostname": "h", "username": "u", "database": "d"}
    asked = Asked(force=True)
    control.profiles.create(_PARENT, "source", {"postgresqlProfile": source}, asked)
    control.profiles.create(_PARENT, "tables", {"bigqueryProfile": {}}, asked)
    tables = [_object(f"t{one}") for one in range(objects)]
    for number in range(streams):
        control.streams.create(_PARENT, f"s{number}", _stream(f"s{number}"), asked)
        name = ResourceName(_PARENT, ResourceKind.STREAM, f"s{number}")
        control.supervision.observe_objects(name, lambda _old, _now: tables)
    (found,), _token = control.page(ResourceKind.OBJECT, f"{_PARENT}/streams/s0", size=1)
    database.close()
    return ResourceName.parse(found["name"])


def _stream(name: str) -> dict[str, Any]:
    return {
        "displayName": name,
        "sourceConfig": {
            "sourceConnectionProfile": f"{_PARENT}/connectionProfiles/source",
            "postgresqlSourceConfig": {
                "replicationSlot": name,
                "publication": name,
                "includeObjects": {
                    "postgresqlSchemas": [
                        {"schema": "bench", "postgresqlTables": [{"table": name}]}
                    ]
                },
            },
        },
        "destinationConfig": {
            "destinationConnectionProfile": f"{_PARENT}/connectionProfiles/tables",
            "bigqueryDestinationConfig": {"merge": {}},
        },
        "backfillAll": {},
    }


def _object(table: str) -> dict[str, Any]:
    return {
        "displayName": f"bench.{table}",
        "sourceObject": {"postgresqlIdentifier": {"schema": "bench", "table": table}},
        "errors": [],
        "backfillJob": {"state": "COMPLETED", "trigger": "AUTOMATIC", "errors": []},
    }


def _idle(plan: Plan) -> Result:
    names = [f"s{number}" for number in range(plan.sized(IDLE_STREAMS))]
    with servers.started() as (server, sql), _service(plan.folder / "idle") as (process, ask):
        source = {
            "hostname": "127.0.0.1",
            "port": server.port,
            "username": "postgres",
            "password": server.password,
            "database": "postgres",
        }
        profiles = f"/v1/{_PARENT}/connectionProfiles?connectionProfileId="
        ask("POST", f"{profiles}source", {"postgresqlProfile": source})
        ask("POST", f"{profiles}tables", {"bigqueryProfile": {}})
        sql.execute("create schema bench")
        for name in names:
            sql.execute(f"create table bench.{name} (id int primary key)")
            wanted = {**_stream(name), "state": "RUNNING"}
            ask("POST", f"/v1/{_PARENT}/streams?streamId={name}", wanted)

        def running() -> int:
            found = json.loads(ask("GET", f"/v1/{_PARENT}/streams"))["streams"]
            return sum(one["state"] == "RUNNING" for one in found)

        say("  waiting for the streams")
        until = time.monotonic() + _WAIT_SECONDS
        while running() < len(names) and time.monotonic() < until:
            time.sleep(0.5)
        _wait_for_stillness(sql)  # what begins is no idling
        captures = process.children(recursive=True)
        seconds = IDLE_SECONDS * plan.rounds
        say(f"  measuring for {seconds} s")
        before = [_cpu([process]), _cpu(captures)]
        time.sleep(seconds)
        own, others = (
            100 * (after - first) / seconds
            for after, first in zip([_cpu([process]), _cpu(captures)], before, strict=True)
        )
        more = {
            "streams": len(names),
            "service_percent": round(own, 2),
            "captures_percent": round(others, 2),
            "service_mebibytes": process.memory_info().rss >> 20,
            "captures_mebibytes": sum(one.memory_info().rss for one in captures) >> 20,
        }
        is_whole = running() == len(names)
    all_ = own + others
    over = f"all processes take {all_:.2f} % of a core, the limit is {LIMIT_PERCENT:g} %"
    return Result(
        "serve-idle", None, over=over if all_ > LIMIT_PERCENT else "", equal=is_whole, more=more
    )


def _wait_for_stillness(sql: psycopg.Connection) -> None:
    """Until nothing was written to the log for a while, also by the server's own upkeep."""
    position, since, until = "", time.monotonic(), time.monotonic() + _WAIT_SECONDS * 3
    while time.monotonic() - since < BEGIN_SECONDS:
        assert time.monotonic() < until, "the log does not stand still"
        ((now,),) = sql.execute("select pg_current_wal_lsn()::text").fetchall()
        if now != position:
            position, since = now, time.monotonic()
        time.sleep(5)


def _cpu(processes: list[psutil.Process]) -> float:
    times = [one.cpu_times() for one in processes]
    return float(sum(one.user + one.system for one in times))


def _is_ready(folder: Path) -> bool:
    try:
        address = json.loads((folder / "serve.json").read_text())["url"]
        with urllib.request.urlopen(f"{address}/readyz", timeout=10):
            return True
    except OSError:
        return False


Ask = Callable[..., bytes]


@contextmanager
def _service(folder: Path) -> Iterator[tuple[psutil.Process, Ask]]:
    """`mirrorlake serve` that only captures, and what asks it on one connection."""
    command = [sys.executable, "-m", "mirrorlake.cli.main", "serve", "--no-apply", "--no-token"]
    process = subprocess.Popen([*command, "--folder", str(folder), "--port", "0"])
    try:
        until = time.monotonic() + _WAIT_SECONDS
        while not _is_ready(folder):
            assert process.poll() is None, "the service has ended"
            assert time.monotonic() < until, "the service does not answer"
            time.sleep(0.1)
        address = urlsplit(json.loads((folder / "serve.json").read_text())["url"])
        connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=120)
        asked = time.monotonic()

        def ask(method: str, path: str, body: Any = None) -> bytes:
            nonlocal asked
            sent = None if body is None else json.dumps(body)
            if time.monotonic() - asked > KEPT_SECONDS / 2:
                connection.close()  # and so opened again
            asked = time.monotonic()
            connection.request(method, path, sent)
            answer = connection.getresponse()
            content = answer.read()
            assert answer.status == 200, content
            return content

        yield psutil.Process(process.pid), ask
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
