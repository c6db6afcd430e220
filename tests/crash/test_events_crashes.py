"""A stream into event files is killed at every durable step and started again: its events, in any
order, make the tables of the source, and none of them comes under two names."""

from __future__ import annotations

import io
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
import pytest

from mirrorlake.events.paths import EventFileName, NameFacts
from mirrorlake.model.crash_points import CrashPoint
from tests.conftest import Database
from tests.crash.project import SCHEMA, TABLES, Project
from tests.profiles import FORMAT, some

pytestmark = [pytest.mark.postgres, pytest.mark.crash]

CHANGES = """
begin;
insert into a.orders select g, 'new', repeat(md5(g::text), 100) from generate_series(101, 120) g;
insert into a.items select g, n, 'new' from generate_series(101, 120) g, generate_series(1, 2) n;
update a.orders set note = 'changed' where id % 3 = 0;
commit;
begin;
update a.orders set id = id + 10000, note = 'moved' where id between 5 and 9;
delete from a.items where "order" between 5 and 9;
insert into b.notes values (1, 'first');
commit;
"""
MORE = """
delete from a.orders where id % 7 = 0 and id % 3 <> 0;
update b.notes set note = 'more' where id < 10;
insert into a.items values (5000, 1, 'late');
"""

BEFORE_STREAMING = [
    (CrashPoint.LOAD_STAGED, 2),
    (CrashPoint.LOAD_MANIFEST, 1),
    (CrashPoint.LOAD_PUBLISHED_ONE, 2),
    (CrashPoint.LOAD_PUBLISHED, 1),
    (CrashPoint.STREAM_RECORDED, 1),
    (CrashPoint.SLOT_CREATED, 1),
    (CrashPoint.ESTABLISHED, 1),
]
WHILE_STREAMING = [
    (CrashPoint.EVENTS_WRITTEN_ONE, 2),  # between the files of two tables of one transaction
    (CrashPoint.EVENTS_ASSIGNED, 1),
    (CrashPoint.EVENTS_WRITTEN_ONE, 1),
    (CrashPoint.CUT_WRITTEN, 1),
    (CrashPoint.ACKNOWLEDGED, 1),
]


@dataclass
class Delivered(Project):
    """A project whose destination is a folder of event files."""

    form: str = "avro"

    @property
    def events(self) -> Path:
        return self.folder / "bucket"

    def write(self, **destination: Any) -> None:
        settings = {"format": self.form, "rotation_seconds": 0.2} | destination
        told = "".join(f"  {name}: {value}\n" for name, value in settings.items())
        self.file.write_text(
            f"name: {self.database.name}\nroot: ./root\n"
            "source:\n  type: postgresql\n  url: ${TEST_URL}\n  tables: ['a.*', 'b.*']\n"
            f"  load_workers: 1\n{FORMAT}destination:\n  type: events\n  url: ./bucket\n{told}"
        )

    def files(self) -> dict[Path, bytes]:
        found = {path: path.read_bytes() for path in self.events.rglob("*") if path.is_file()}
        assert found.keys() == {path for path in found if NameFacts.of(path.name).schema_key}
        return found


def read(path: Path, content: bytes) -> list[dict[str, Any]]:
    EventFileName.parse(path.name)
    if path.name.endswith(".avro"):
        return [dict(one) for one in fastavro.reader(io.BytesIO(content))]  # type: ignore[arg-type]
    return [json.loads(line) for line in content.decode().splitlines()]


def order(event: dict[str, Any]) -> tuple[Any, ...]:
    """Of changes of one key: backfill first, then by the log; at one place the deletion first."""
    metadata = event["source_metadata"]
    if "backfill" in event["read_method"]:
        return (0, event["source_timestamp"], 0, 0, 0, event["uuid"])
    high, low = (int(part, 16) for part in metadata["lsn"].split("/"))
    return (1, event["source_timestamp"], high, low, not metadata["is_deleted"], event["uuid"])


def assert_delivered(project: Delivered) -> None:
    """The events make the tables of the source, and each of them is in one file."""
    events = [event for path, content in project.files().items() for event in read(path, content)]
    ids = Counter(event["uuid"] for event in events)
    assert set(ids.values()) == {1}
    for name in TABLES:
        schema, table = name.split(".")
        rows: dict[Any, Any] = {}
        mine = [e for e in events if e["object"] == f"{schema}_{table}"]
        for event in sorted(mine, key=order):
            metadata, payload = event["source_metadata"], event["payload"]
            assert (metadata["schema"], metadata["table"]) == (schema, table)
            key = tuple(payload[column] for column in metadata["primary_keys"])
            rows[key] = None if metadata["is_deleted"] else tuple(payload.values())
        found = Counter(row for row in rows.values() if row is not None)
        assert found == project.source_rows(name)


@pytest.fixture
def delivered(database: Database, tmp_path: Path) -> Delivered:
    database.execute(SCHEMA)
    project = Delivered(tmp_path, database)
    project.write()
    return project


@pytest.mark.clause("ST-167", "ST-222", "ST-235")
@pytest.mark.parametrize(("point", "passage"), some(BEFORE_STREAMING))
def test_a_load_into_event_files_that_is_killed_is_taken_up_again(
    delivered: Delivered, point: CrashPoint, passage: int
) -> None:
    delivered.killed_at(point, "capture", "--once", passage=passage)
    delivered.database.execute(CHANGES)
    delivered.run("capture", "--once")
    delivered.database.execute(MORE)
    delivered.run("capture", "--once")
    assert_delivered(delivered)


@pytest.mark.clause("ST-006", "ST-041", "ST-167", "ST-222", "ST-235")
@pytest.mark.parametrize(("point", "passage"), some(WHILE_STREAMING, quick=2))
@pytest.mark.parametrize("form", some(["avro", "json"]))
def test_a_stream_of_event_files_that_is_killed_goes_on_where_it_was(
    delivered: Delivered, point: CrashPoint, passage: int, form: str
) -> None:
    delivered.form = form
    delivered.write()
    delivered.run("capture", "--once")
    delivered.database.execute(CHANGES)
    delivered.killed_at(point, "capture", "--once", passage=passage)
    before = delivered.files()
    delivered.database.execute(MORE)
    delivered.run("capture", "--once")
    # What was seen before the crash is what is there after it.
    after = delivered.files()
    assert before.items() <= after.items()
    assert_delivered(delivered)


@pytest.mark.clause("ST-041", "ST-109", "ST-167")
def test_names_stay_when_a_row_that_has_to_be_read_again_is_gone_after_the_crash(
    delivered: Delivered,
) -> None:
    delivered.run("capture", "--once")
    delivered.database.execute(
        "begin",
        "update a.orders set note = 'without its long text' where id = 1",
        "insert into a.items values (1, 2, 'of the same batch')",
        "commit",
    )
    delivered.killed_at(CrashPoint.EVENTS_WRITTEN_ONE, "capture", "--once", passage=2)
    before = delivered.files()
    delivered.database.execute("delete from a.orders where id = 1")
    delivered.run("capture", "--once")
    assert before.items() <= delivered.files().items()
    assert_delivered(delivered)
