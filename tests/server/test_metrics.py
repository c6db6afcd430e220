"""The metrics of a service: latencies, freshness, and what is made of them elsewhere."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mirrorlake.app.running.batches import AppliedBatch, BatchWatcher, ServiceBatches
from mirrorlake.app.running.capture_keeper import CaptureKeeper
from mirrorlake.app.status import mirror_status
from mirrorlake.app.status.mirror_status import Status
from mirrorlake.app.status.table_status import TableStatus
from mirrorlake.app.streams.objects import CaptureSaid
from mirrorlake.app.streams.supervisor import Work
from mirrorlake.capture.backfill.jobs import BackfillJob, BackfillRequest
from mirrorlake.capture.events.state import BatchTimes, StreamLatencies, WrittenEvents
from mirrorlake.capture.watch.missed_changes import AppendOnly
from mirrorlake.config import Project
from mirrorlake.control.names import ResourceName
from mirrorlake.landing.scan import Landed
from mirrorlake.mirror.engine import Applied
from mirrorlake.mirror.steps import ApplyFiles, Evidence
from mirrorlake.model.applied import Totals
from mirrorlake.model.change import Marker
from mirrorlake.model.clock import WallClock
from mirrorlake.model.landed import FileKind, FileName, Footer
from mirrorlake.model.state import TableState
from mirrorlake.model.table import TableId
from mirrorlake.server.metrics import exposition, names
from tests.app.zones import MARKER, Zone
from tests.landing.files import encoded

PROMTOOL = shutil.which(Path(sys.executable).with_name("promtool")) or shutil.which("promtool")
DASHBOARD = Path(__file__).parents[2] / "deploy/grafana-streams.json"
STREAM = "projects/p/locations/l/streams/shop"


def batch(landed: float, committed: float | None, *, is_load: bool = False) -> ApplyFiles:
    source = None if committed is None else datetime.fromtimestamp(committed, UTC)
    return ApplyFiles(
        TableId("shop", "orders"),
        "Tables/shop/orders",
        "Files/LandingZone/shop.schema/orders",
        (Landed(FileName(1), "f", 10, landed, "e"),),
        1,
        1,
        ("id",),
        Marker.INSERT,
        is_load=is_load,
        evidence=Evidence(source_time=source),
    )


@pytest.fixture
def batches() -> ServiceBatches:
    found = ServiceBatches()
    found.follow({STREAM})
    watcher = BatchWatcher(STREAM, found.note, lambda: 110.0)
    watcher.applied(batch(108.0, 107.0), Applied(1))
    watcher.applied(batch(109.8, None), Applied(2))
    watcher.applied(batch(10.0, 9.0, is_load=True), Applied(3))
    return found


def slow_and_unknown() -> list[Work]:
    """One stream, of which one table is slow and one is unknown."""

    def table(name: str, freshness: float | None) -> TableStatus:
        known = TableStatus(name, TableState.REPLICATING, "", 1, 1, 0, None, Totals(), None, None)
        return replace(known, freshness_seconds=freshness)

    status = Status("shop", None, None, [table("shop.orders", 1.5), table("shop.unknown", None)])
    return [Work(ResourceName.parse(STREAM), CaptureKeeper(WallClock()), status=status)]


def text_of(batches: ServiceBatches, works: list[Work] | None = None) -> str:
    """The metrics of a service."""
    service: Any = SimpleNamespace(
        control=SimpleNamespace(supervision=SimpleNamespace(supervised=list)),
        supervisor=SimpleNamespace(works=lambda: works or slow_and_unknown(), batches=batches),
    )
    return exposition(service)[0].decode()


@pytest.mark.clause("ST-305")
def test_latencies_are_counted_per_stream_and_told_per_object(batches: ServiceBatches) -> None:
    text = text_of(batches)
    stream, object_ = f'stream="{STREAM}"', f'object="shop.orders",stream="{STREAM}"'
    for line in (
        f'mirrorlake_stream_system_latency_seconds_bucket{{le="0.25",{stream}}} 1.0',
        f'mirrorlake_stream_system_latency_seconds_bucket{{le="2.5",{stream}}} 2.0',
        f"mirrorlake_stream_system_latency_seconds_count{{{stream}}} 2.0",
        f"mirrorlake_stream_total_latency_seconds_count{{{stream}}} 1.0",
        f"mirrorlake_stream_total_latency_seconds_sum{{{stream}}} 3.0",  # a second to landing, 2.0
        f"mirrorlake_object_freshness_seconds{{{object_}}} 1.5",
        f"mirrorlake_stream_freshness_seconds{{{stream}}} 1.5",
    ):
        assert line in text
    assert "mirrorlake_object_total_latency_seconds{" not in text  # of its last batch: unknown
    assert "shop.unknown" not in re.sub(r"event_count.*|bytes_count.*", "", text)


def test_objects_that_differ_from_their_source_are_counted(batches: ServiceBatches) -> None:
    (work,) = slow_and_unknown()
    assert f'mirrorlake_stream_differing_objects{{stream="{STREAM}"}} 0.0' in text_of(batches)
    assert work.status is not None
    orders, unknown = work.status.tables
    request = BackfillRequest("b1", "shop.orders", reason="it left the publication")
    other = replace(orders, reread=BackfillJob(request))
    works = [replace(work, status=replace(work.status, tables=[other, unknown]))]
    text = text_of(batches, works)
    assert f'mirrorlake_stream_differing_objects{{stream="{STREAM}"}} 1.0' in text


@pytest.mark.clause("ST-304")
def test_freshness_is_how_late_the_oldest_change_that_waits_was_read(tmp_path: Path) -> None:
    def freshness() -> list[float | None]:
        found = mirror_status.read(Project.of_root(tmp_path)).tables
        return [one.freshness_seconds for one in found]

    zone = Zone(tmp_path)
    zone.table("t", "id")
    zone.land("t", 1, {"id": [1]})
    assert freshness() == [None]  # nobody knows when the source committed it
    zone.apply()
    assert freshness() == [0.0]
    landed = datetime(2026, 1, 1, tzinfo=UTC)
    for number, late in ((2, 30), (3, 5)):
        times = (landed - timedelta(seconds=late), landed)
        place = f"0/{number}:1"
        footer = Footer("s", FileKind.CHANGES, place, place, complete=True, commit_times=times)
        path = zone.folder("t") / f"{number:020d}.parquet"
        path.write_bytes(encoded({"id": [number], MARKER: [0]}, footer))
        os.utime(path, (landed.timestamp(), landed.timestamp()))
    assert freshness() == [30.0]
    zone.apply()
    assert freshness() == [0.0]


def of_event_files(root: Path, said: CaptureSaid) -> Work:
    """A stream that writes event files."""
    return Work(
        ResourceName.parse(STREAM),
        CaptureKeeper(WallClock()),
        status=Status("c", None, None),
        project=replace(Project.of_root(root), lands=False),
        said=said,
    )


@pytest.mark.clause("ST-305", "ST-306")
def test_objects_that_become_event_files_have_an_age_and_latencies(tmp_path: Path) -> None:
    now = time.time()
    last = BatchTimes(int((now - 100) * 1000), int((now - 99) * 1000), int((now - 97) * 1000))
    blank = WrittenEvents(events=1)
    said = CaptureSaid(written={"s.t": replace(blank, last=last), "s.loaded": blank})
    work = of_event_files(tmp_path, said)
    text = text_of(ServiceBatches(), [work])
    names = "system_latency", "total_latency", "last_event_age"
    told = {
        name: re.findall(rf'^mirrorlake_object_{name}_seconds{{object="(.*?)".*}} (.*)', text, re.M)
        for name in names
    }
    assert {name: [table for table, _s in found] for name, found in told.items()} == {
        name: ["s.t"] for name in names
    }
    system, total, age = (float(found[0][1]) for found in told.values())
    assert (system, total) == (pytest.approx(2, abs=0.01), pytest.approx(3, abs=0.01))
    assert age >= 100


@pytest.mark.clause("ST-304", "ST-305", "ST-306")
def test_streams_to_event_files_have_latencies_and_freshness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = StreamLatencies.of(BatchTimes(1_000, 2_000, 2_200))
    said = CaptureSaid(
        delivered=("s.idle", "s.t"),
        latencies=times + StreamLatencies.of(BatchTimes(0, 3_000, 7_000)),
        waiting={"s.t": 3.5},
    )
    work = of_event_files(tmp_path, said)
    stopped = text_of(ServiceBatches(), [work])
    monkeypatch.setattr(CaptureKeeper, "is_running", True)
    text = text_of(ServiceBatches(), [work])
    freshness = r"^mirrorlake_(stream|object)_freshness_seconds{(?:object=\"(.*?)\",)?.*} (.*)"
    assert re.findall(freshness, stopped, re.M) == []  # nobody reads
    assert re.findall(freshness, text, re.M) == [
        ("stream", "", "3.5"),
        ("object", "s.idle", "0.0"),
        ("object", "s.t", "3.5"),
    ]
    found = re.findall(r"^mirrorlake_stream_(\w+)_latency_seconds_(count|sum){.*} (.*)", text, re.M)
    assert found == [
        ("system", "count", "2.0"),
        ("system", "sum", "4.2"),
        ("total", "count", "2.0"),
        ("total", "sum", "8.2"),
    ]


@pytest.mark.clause("ST-302", "ST-303", "ST-306")
def test_what_could_not_be_captured_or_applied_is_counted(tmp_path: Path) -> None:
    def work(name: str, status: Status, **more: Any) -> Work:
        parsed = ResourceName.parse(f"projects/p/locations/l/streams/{name}")
        return Work(parsed, CaptureKeeper(WallClock()), status=status, **more)

    blank = TableStatus("s.t", TableState.REPLICATING, "", 1, 1, 0, None, Totals(), None, None)
    missed = replace(blank, append_only=AppendOnly("no key", {"1": (9, 9)}, updates=2, deletes=3))
    files = replace(Project.of_root(tmp_path), lands=False)
    said = CaptureSaid(written={"s.t": WrittenEvents(events=7, bytes=900, unsupported=1)})
    works = [
        work("tables", Status("a", None, None, [missed, replace(blank, table="s.u")])),
        work("lake", Status("b", None, None, [blank], dead_events=4)),
        work("files", Status("c", None, None), project=files, said=said),
    ]
    text = text_of(ServiceBatches(), works)
    counts = re.findall(
        r'_(stream|object)_(\w+)_count_total{(?:object="(.*?)",)?.*?/(\w+)"} (.*)', text
    )
    found = {(of, name, stream, table): float(n) for of, name, table, stream, n in counts}
    assert found["stream", "unsupported_event", "tables", ""] == 5
    assert found["object", "unsupported_event", "tables", "s.t"] == 5
    assert found["object", "unsupported_event", "tables", "s.u"] == 0
    assert found["stream", "unsupported_event", "lake", ""] == 4
    for name, count in (("unsupported_event", 1), ("event", 7), ("bytes", 900)):
        assert found["stream", name, "files", ""] == found["object", name, "files", "s.t"] == count


def test_a_stream_that_is_gone_leaves_no_latency(batches: ServiceBatches) -> None:
    batches.keep(set())
    assert (batches.system(), batches.total(), batches.last()) == ({}, {}, [])
    batches.note(AppliedBatch(STREAM, "t", 1, 1.0, None))  # it came late
    assert batches.last() == []


def test_the_dashboard_shows_metrics_that_exist() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    shown = " ".join(target["expr"] for one in dashboard["panels"] for target in one["targets"])
    used = {name.removesuffix("_bucket") for name in re.findall(r"mirrorlake_\w+", shown)}
    assert used <= set(names())
    assert {name for name in names() if name.startswith("mirrorlake_stream")} == {
        name for name in used if name.startswith("mirrorlake_stream")
    }


@pytest.mark.full
@pytest.mark.skipif(PROMTOOL is None, reason="promtool is missing: make programs")
def test_promtool_finds_nothing_wrong(batches: ServiceBatches) -> None:
    done = subprocess.run(
        [str(PROMTOOL), "check", "metrics"],
        input=text_of(batches),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
