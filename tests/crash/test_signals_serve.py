"""The service ends on a signal: soon, whatever it is asked and does, and its next start goes on."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path

import pytest

from mirrorlake.model.clock import WallClock
from mirrorlake.spark.session.spark_session import Spark
from tests.crash.project import CHANGES, MORE, Project
from tests.crash.signalled import (
    SECONDS,
    SparkJobs,
    processes_that_name,
    send,
    until,
    until_applied,
)
from tests.crash.test_apply_crashes import apply_again, assert_mirrored
from tests.server.service import PARENT, Served

pytestmark = [pytest.mark.crash, pytest.mark.full]


def seconds_to_end(served: Served, number: signal.Signals, *, group: bool) -> float:
    assert served.process
    seconds = send(served.process, number, group=group)
    assert served.process.returncode == 0
    return seconds


@contextmanager
def asked(served: Served) -> Iterator[None]:
    """Two requests are under way: the service waits for a database that never answers, and for a
    client that does not send the rest of what it began."""
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.socket() as client:
        profile = {
            "hostname": "127.0.0.1",
            "port": silent.getsockname()[1],
            "username": "u",
            "password": "p",
            "database": "d",
        }
        body = {"connectionProfile": {"postgresqlProfile": profile}, "fullHierarchy": True}
        path = f"/v1/{PARENT}/connectionProfiles:discover"

        def ask() -> None:
            with suppress(OSError, ValueError):
                served.call("POST", path, body)

        threading.Thread(target=ask, daemon=True).start()
        connection, _address = silent.accept()
        host, port = served.url.removeprefix("http://").split(":")
        client.connect((host, int(port)))
        head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {served.token}\r\n"
        client.sendall(f"{head}Content-Length: 1000\r\n\r\n{{".encode())
        WallClock().sleep(0.5)
        with connection:
            yield


@pytest.mark.parametrize(
    ("number", "group", "meanwhile"),
    [(signal.SIGINT, True, nullcontext), (signal.SIGTERM, False, asked)],
    ids=["idle", "asked"],
)
def test_a_service_ends_within_five_seconds(
    tmp_path: Path,
    number: signal.Signals,
    group: bool,
    meanwhile: Callable[[Served], AbstractContextManager[None]],
) -> None:
    served = Served(tmp_path / "service").start()
    try:
        with meanwhile(served):
            assert seconds_to_end(served, number, group=group) < SECONDS
        served.start()
        assert served.call("GET", f"/v1/{PARENT}/streams")[0] == 200
    finally:
        served.stop()


@pytest.mark.postgres
@pytest.mark.spark
@pytest.mark.parametrize("group", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_service_ends_within_five_seconds_during_a_batch(
    project: Project, spark: Spark, group: bool
) -> None:
    jobs = SparkJobs(project)
    project.configure("mirror", strategy="merge")
    served = Served(project.folder / "service", config=project.file, TEST_URL=project.database.url)
    try:
        served.start()
        until_applied(project)
        WallClock().sleep(1.5)
        before = jobs.begun()
        with asked(served):
            project.database.execute(CHANGES)
            until(lambda: jobs.is_at_work(before), pause=0.005)
            assert seconds_to_end(served, signal.SIGTERM, group=group) < SECONDS
    finally:
        served.stop()
    until(lambda: not processes_that_name(str(project.folder)))
    project.database.execute(MORE)
    project.run("capture", "--once")
    apply_again(project, spark)
    assert_mirrored(project)
