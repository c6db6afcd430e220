"""The metrics of a service: latencies, freshness, and what is made of them elsewhere."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mirrorlake.app.status.mirror_status import Status
from mirrorlake.app.status.table_status import TableStatus
from mirrorlake.app.streams.latencies import BatchLatency, Latencies, LatencyWatcher
from mirrorlake.app.streams.supervisor import Work
from mirrorlake.control.names import ResourceName
from mirrorlake.landing.scan import Landed
from mirrorlake.mirror.engine import Applied
from mirrorlake.mirror.steps import ApplyFiles, Evidence
from mirrorlake.model.applied import Totals
from mirrorlake.model.change import Marker
from mirrorlake.model.landed import FileName
from mirrorlake.model.state import TableState
from mirrorlake.model.table import TableId
from mirrorlake.server.metrics import exposition, names

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
def latencies() -> Latencies:
    found = Latencies()
    watcher = LatencyWatcher(STREAM, found.note, lambda: 110.0)
    watcher.applied(batch(108.0, 107.0), Applied(1))
    watcher.applied(batch(109.8, None), Applied(2))
    watcher.applied(batch(10.0, 9.0, is_load=True), Applied(3))
    return found


def text_of(latencies: Latencies) -> str:
    """The metrics of a service with one stream, of which one table is slow and one is unknown."""

    def table(name: str, freshness: float | None) -> TableStatus:
        known = TableStatus(name, TableState.REPLICATING, "", 1, 1, 0, None, Totals(), None, None)
        return replace(known, freshness_seconds=freshness)

    status = Status("shop", None, None, [table("shop.orders", 1.5), table("shop.unknown", None)])
    work = Work(ResourceName.parse(STREAM), status=status)
    service: Any = SimpleNamespace(
        control=SimpleNamespace(supervision=SimpleNamespace(supervised=list)),
        supervisor=SimpleNamespace(works=lambda: [work], latencies=latencies),
    )
    return exposition(service)[0].decode()


def test_latencies_are_counted_per_stream_and_told_per_object(latencies: Latencies) -> None:
    text = text_of(latencies)
    stream, object_ = f'stream="{STREAM}"', f'object="shop.orders",stream="{STREAM}"'
    for line in (
        f'mirrorlake_stream_system_latency_seconds_bucket{{le="0.25",{stream}}} 1.0',
        f'mirrorlake_stream_system_latency_seconds_bucket{{le="2.5",{stream}}} 2.0',
        f"mirrorlake_stream_system_latency_seconds_count{{{stream}}} 2.0",
        f"mirrorlake_stream_total_latency_seconds_count{{{stream}}} 1.0",
        f"mirrorlake_stream_total_latency_seconds_sum{{{stream}}} 3.0",
        f"mirrorlake_object_freshness_seconds{{{object_}}} 1.5",
        f"mirrorlake_stream_freshness_seconds{{{stream}}} 1.5",
    ):
        assert line in text
    assert "mirrorlake_object_total_latency_seconds{" not in text  # of its last batch: unknown
    assert "shop.unknown" not in re.sub(r"event_count.*|bytes_count.*", "", text)


def test_a_stream_that_is_gone_leaves_no_latency(latencies: Latencies) -> None:
    latencies.keep(set())
    assert (latencies.system(), latencies.total(), latencies.last()) == ({}, {}, [])
    latencies.note(BatchLatency("other", "t", 1.0, None))
    assert [one.mirror for one in latencies.last()] == ["other"]


def test_the_dashboard_shows_metrics_that_exist() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    shown = " ".join(target["expr"] for one in dashboard["panels"] for target in one["targets"])
    used = {name.removesuffix("_bucket") for name in re.findall(r"mirrorlake_\w+", shown)}
    assert used <= set(names())
    assert {name for name in names() if name.startswith("mirrorlake_stream")} == {
        name for name in used if name.startswith("mirrorlake_stream")
    }


@pytest.mark.full
@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_finds_nothing_wrong(latencies: Latencies) -> None:
    done = subprocess.run(
        ["promtool", "check", "metrics"],
        input=text_of(latencies),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
