"""Event files in a bucket of an object store, as a project file names it."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mirrorlake import config, read_feed
from mirrorlake.app.events.applying import dead_letters
from mirrorlake.app.events.repair import plan_event_repair
from mirrorlake.app.mirror import Mirror
from mirrorlake.app.stores import store_of
from mirrorlake.delta.file_cache import cache
from mirrorlake.errors import ConfigError, TableError, Unavailable
from mirrorlake.root import STATE
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


@pytest.mark.clause("ST-253")
@pytest.mark.parametrize(
    ("key", "folder"),
    [
        ("crm/events//a.jsonl", "crm/events"),
        ("crm/events//public_orders/2026/11/20/10/05/a.jsonl", "crm/events"),
        (f"{HOUR}/05//a.jsonl", f"{HOUR}/05"),
        (f"{HOUR}/05/../a.jsonl", f"{HOUR}/05"),
        (f"{HOUR}//05/a.jsonl", HOUR),
    ],
)
def test_a_key_that_is_no_path_is_a_dead_letter_and_everything_else_goes_on(
    s3: S3Server, tmp_path: Path, key: str, folder: str
) -> None:
    url = s3.new_bucket()
    found = project(tmp_path, url, s3.endpoint)
    s3.put(f"{url}/{key}", text(event(99, {"id": 99})))
    names = ["00/a.jsonl", "05/0", "05/0.jsonl", "05/b.jsonl", "05/in/c.jsonl", "06/a.jsonl"]
    for number, name in enumerate(names):
        s3.put(f"{url}/{HOUR}/{name}", text(event(number + 1, {"id": number})))
    s3.put(f"{url}/crm/events/flat.jsonl", text(event(50, {"id": 50})))
    mirror = Mirror(found)
    mirror.apply_once()
    orders = tmp_path / "lake/Tables/public/orders"
    assert sorted(row["id"] for row in rows_of(orders)) == [*range(len(names)), 50]
    (dead,) = dead_letters(found)
    assert (dead.path, dead.letters[0].is_file) == (f"{folder}//", True)
    assert "empty part" in dead.letters[0].reason
    s3.put(f"{url}/{HOUR}/07/a.jsonl", text(event(60, {"id": 60})))
    mirror.apply_once()
    assert [one.time for one in dead_letters(found)] == [dead.time]  # told once
    assert len(rows_of(orders)) == len(names) + 2
    assert Mirror(found).replay_events().gone_files == []
    s3.delete(f"{url}/{key}")
    assert Mirror(found).replay_events().gone_files == [f"{folder}//"]
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


class InBuckets:
    """A project whose files and root are in buckets, on machines that have nothing of it."""

    def __init__(self, s3: S3Server, folder: Path, mode: str) -> None:
        self.s3, self.files, self.root = s3, s3.new_bucket(), f"{s3.new_bucket()}/lake"
        where = f"endpoint: '{s3.endpoint}', region: us-east-1"
        self.path = folder / "mirrorlake.yaml"
        self.path.write_text(
            f"name: t\nroot: {{url: '{self.root}', {where}}}\n"
            f"source: {{type: events, url: '{self.files}', mode: {mode}, {where}}}\n"
        )

    def applied(self, name: str, *events: Mapping[str, Any]) -> dict[str, TableError | None]:
        """Put a file and apply it, as another machine."""
        self.s3.put(f"{self.files}/{name}.jsonl", text(*events))
        with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as temporary:
            patch.setattr(tempfile, "tempdir", temporary)
            cache.cache_clear()
            tables = Mirror(config.load(self.path)).apply_once().tables
            cache.cache_clear()
        return {str(table): one.error for table, one in tables.items()}

    def rows(self) -> list[tuple[int, int]]:
        table = f"{self.root}/Tables/public/orders"
        changes = read_feed(table, from_version=0, options=self.s3.options).to_arrow().to_pylist()
        gone = {"delete", "update_preimage"}
        count = Counter[tuple[int, int]]()
        for row in changes:
            count[row["id"], row["v"]] += -1 if row["_change_type"] in gone else 1
        return sorted(count.elements())


@pytest.mark.full
@pytest.mark.parametrize("mode", ["merge", "append"])
def test_tables_and_what_is_remembered_of_them_are_in_a_bucket(
    s3: S3Server, tmp_path: Path, mode: str
) -> None:
    lake = InBuckets(s3, tmp_path, mode)
    old = [event(n, {"id": n % 50, "v": n}, uuid=f"u{n}") for n in range(200)]
    for number in range(0, 200, 20):
        assert lake.applied(f"a{number}", *old[number : number + 20]) == {"public.orders": None}
    new = [event(300, {"id": 7, "v": 0}, "DELETE"), event(301, {"id": 60, "v": 1})]
    lake.applied("b", *new)
    lake.applied("c", *old)
    lake.applied("d", event(302, {"id": 8, "v": 302}, "UPDATE"))
    last = [(key, key + 150) for key in range(50) if key not in (7, 8)]
    every = [(n % 50, n) for n in range(200)] + [(7, 0)]
    wanted = last if mode == "merge" else every
    assert lake.rows() == sorted([*wanted, (60, 1), (8, 302)])

    folder = f"{STATE}/events/tables/public~2Eorders"
    store = store_of(config.load(lake.path))
    (record,) = [file.name for file in store.list(folder).files if file.name[0] == "0"]
    state = json.loads(store.read(f"{folder}/{record}"))
    for file in store.list(f"{folder}/files").files:
        assert file.name in json.dumps(state) or file.name.startswith("deletion_vector")
        store.delete(f"{folder}/files/{file.name}")
    error = lake.applied("e", *old)["public.orders"]
    assert error is not None
    assert error.code == "event_state_damaged"
    plan_event_repair(config.load(lake.path), ["public.orders"]).execute()
    assert lake.applied("f", *old, event(400, {"id": 9, "v": 9}, "UPDATE")) == {
        "public.orders": None
    }
    wanted = [row for row in wanted if mode == "append" or row[0] != 9]
    assert lake.rows() == sorted([*wanted, (60, 1), (8, 302), (9, 9)])


def test_a_bucket_of_events_does_not_hold_the_root(tmp_path: Path) -> None:
    path = tmp_path / "mirrorlake.yaml"
    for files in ("s3://bucket", "s3://bucket/lake", "s3://bucket/lake/Tables/x"):
        path.write_text(
            f"name: t\nroot: s3://bucket/lake\nsource: {{type: events, url: '{files}'}}\n"
        )
        with pytest.raises(ConfigError, match="holds root"):
            config.load(path)


def test_of_keys_that_are_no_paths_below_each_other_nothing_is_read_and_nothing_lost(
    s3: S3Server, tmp_path: Path
) -> None:
    url = s3.new_bucket()
    found = project(tmp_path, url, s3.endpoint)
    for number, key in enumerate(["crm/events//x", f"{HOUR}/05//x", f"{HOUR}/05/a.jsonl"]):
        s3.put(f"{url}/{key}", text(event(number + 1, {"id": number})))
    with pytest.raises(Unavailable, match="empty path segment"):
        Mirror(found).apply_once()
    s3.delete(f"{url}/crm/events//x")
    Mirror(found).apply_once()
    (row,) = rows_of(tmp_path / "lake/Tables/public/orders")
    assert row["id"] == 2
