"""Event files in a bucket of an object store, as a project file names it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mirrorlake import config
from mirrorlake.app.events.applying import dead_letters
from mirrorlake.app.mirror import Mirror
from mirrorlake.errors import Unavailable
from tests.apply.events.bucket import event
from tests.apply.events.drawn_files import rows_of
from tests.objects import S3Server

HOUR = "crm/events/public_orders/2026/11/20/10"


def project(folder: Path, url: str, endpoint: str) -> config.Project:
    path = folder / "mirrorlake.yaml"
    path.write_text(
        "name: t\nroot: ./lake\nsource:\n  type: events\n"
        f"  url: {url}\n  path: crm/events\n  endpoint: {endpoint}\n  region: us-east-1\n"
    )
    return config.load(path)


def text(*events: Mapping[str, Any]) -> bytes:
    return "".join(f"{json.dumps(one)}\n" for one in events).encode()


@pytest.mark.clause("ST-178", "ST-182", "ST-253")
def test_tables_are_made_of_event_files_in_a_bucket(s3: S3Server, tmp_path: Path) -> None:
    url = s3.new_bucket()
    found = project(tmp_path, url, s3.endpoint)
    for minute in range(60):
        s3.put(f"{url}/{HOUR}/{minute:02}/a.jsonl", text(event(minute + 1, {"id": minute})))
    # What consoles and tools of others leave in buckets.
    for key in (f"{HOUR}/05/", "crm/events/", f"{HOUR}/05/empty.avro"):
        s3.put(f"{url}/{key}", b"")
    s3.put(f"{url}/crm/events/_left/out.jsonl", text(event(99, {"id": 99})))
    s3.put(f"{url}/elsewhere/out.jsonl", text(event(99, {"id": 99})))
    s3.put(f"{url}/{HOUR}/07/cut.jsonl.gz", gzip.compress(text(event(98, {"id": 98})))[:-9])
    mirror = Mirror(found)
    mirror.apply_once()
    orders = tmp_path / "lake/Tables/public/orders"
    assert sorted(row["id"] for row in rows_of(orders)) == [*range(60)]
    (dead,) = dead_letters(found)
    assert dead.path == f"{HOUR}/07/cut.jsonl.gz"

    s3.requests.clear()
    assert mirror.apply_once().tables == {}
    assert len(s3.requests) < 10  # the minutes of a day together
    s3.put(f"{url}/{HOUR}/07/cut.jsonl.gz", gzip.compress(text(event(98, {"id": 98}))))
    s3.put(f"{url}/{HOUR}/00/late.jsonl", text(event(70, {"id": 3}, "DELETE")))
    s3.put(f"{url}/{HOUR}/01/a.jsonl", text(event(2, {"id": 1}), event(71, {"id": 71})))
    mirror.apply_once()
    ids = sorted(row["id"] for row in rows_of(orders))
    assert ids == sorted({*range(60), 71, 98} - {3})
    assert dead_letters(found) == []


def test_a_bucket_that_is_not_there_is_told_and_nothing_is_lost(
    s3: S3Server, tmp_path: Path
) -> None:
    url = s3.new_bucket()
    s3.put(f"{url}/{HOUR}/05/a.jsonl", text(event(1, {"id": 1})))
    with pytest.raises(Unavailable):
        Mirror(project(tmp_path, f"{url}-other", s3.endpoint)).apply_once()
    Mirror(project(tmp_path, url, s3.endpoint)).apply_once()
    assert len(rows_of(tmp_path / "lake/Tables/public/orders")) == 1
