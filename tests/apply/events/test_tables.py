"""What becomes of events in tables: columns, keys, modes, what stops a table."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirrorlake import read_feed
from mirrorlake.apply.events.batches import writer
from mirrorlake.apply.events.remembered.keyed_files import DamagedFiles, KeyedFiles
from mirrorlake.apply.events.remembered.state import states
from mirrorlake.delta.lookup import key_join
from mirrorlake.delta.schema import parse
from mirrorlake.events import types
from mirrorlake.events.types import EventColumn
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.model.table import TableId
from mirrorlake.storage.local import LocalStore
from tests.apply.events.bucket import Bucket, event
from tests.delta.lookup_ways import Way, forced
from tests.events.decode.files import avro
from tests.events.decode.files import event as golden
from tests.events.decode.files import schema as schema_of

GOLDEN = [
    line
    for line in Path("docs/spec/streams.md").read_text().splitlines()
    if line.startswith('{"stream_name":"projects/myProj')
]
KEY_CHANGE = [
    line
    for line in Path("docs/spec/streams.md").read_text().splitlines()
    if line.startswith('{"uuid":"ee7534b0')
]


def fields(bucket: Bucket, table: str = "public/orders") -> dict[str, Any]:
    schema = json.loads(bucket.log(table).snapshot().metadata["schemaString"])
    struct = next(one for one in schema["fields"] if one["name"] == "datastream_metadata")
    return {one["name"]: one["type"] for one in struct["type"]["fields"]}


@pytest.mark.clause("ST-293")
def test_files_of_a_backfill_that_come_late_are_applied_in_their_order(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    backfill = {"read_method": "postgresql-backfill", "lsn": None, "tx_id": None}

    def loaded(key: int, note: str) -> dict[str, Any]:
        payload = {"id": key, "note": note}
        return event(1, payload, uuid=f"backfill-{key}", sort_keys=[1, ""], **backfill)

    bucket.put("a.jsonl", loaded(1, "first"))
    bucket.put("b.jsonl", event(9_000_000, {"id": 2, "note": "changed"}, "UPDATE"))
    bucket.cycle()
    bucket.put("late.jsonl", loaded(2, "first"), loaded(3, "first"))
    bucket.cycle()
    assert {row["id"]: row["note"] for row in bucket.rows()} == {
        1: "first",
        2: "changed",
        3: "first",
    }


@pytest.mark.clause("ST-236", "ST-237", "ST-246", "ST-247")
def test_a_table_with_a_key_has_the_last_row_of_each_and_tells_of_its_event(
    tmp_path: Path,
) -> None:
    bucket = Bucket(tmp_path)
    bucket.put(
        "a.jsonl", event(3, {"id": 1, "note": "c"}, "UPDATE"), event(1, {"id": 1, "note": "a"})
    )
    bucket.put("b.jsonl", event(4, {"id": 2, "note": None}), event(5, {"id": 3}, "DELETE"))
    bucket.cycle()
    assert fields(bucket) == {"UUID": "string", "SOURCE_TIMESTAMP": "long"}
    told = {"UUID": "0f0f0f0f-0000-0000-0000-000300000000", "SOURCE_TIMESTAMP": 3}
    rows = {row["id"]: row for row in bucket.rows()}
    assert rows[1] == {"id": 1, "note": "c", "datastream_metadata": told}
    assert sorted(rows) == [1, 2]
    bucket.put("c.jsonl", event(6, {"id": 1}, "DELETE"))
    bucket.cycle()
    assert bucket.plain() == [{"id": 2, "note": None}]


@pytest.mark.parametrize("way", Way)
def test_rows_are_found_in_every_way_also_by_pages(tmp_path: Path, way: Way) -> None:
    bucket = Bucket(tmp_path)
    notes = {number: f"n{number}" for number in range(1, 40)}
    with forced(way) as patch:
        bucket.put("a.jsonl", *(event(n, {"id": n, "note": note}) for n, note in notes.items()))
        bucket.cycle()
        if way in {Way.KEYS_PAGES, Way.INDEX_PAGES}:
            patch.delattr(key_join, "rows")  # which reads whole files
        bucket.put(
            "b.jsonl",
            event(50, {"id": 7, "note": "late"}, "UPDATE"),
            event(51, {"id": 8}, "DELETE"),
            event(52, {"id": 99, "note": None}, uuid=None),
            event(5, {"id": 30, "note": "too late"}, "UPDATE"),
        )
        bucket.cycle()
        bucket.put("c.jsonl", event(53, {"id": 99, "note": "c"}, "UPDATE"))
        bucket.cycle()
    assert not bucket.errors
    del notes[8]
    found = {row["id"]: row["note"] for row in bucket.rows()}
    assert found == notes | {7: "late", 99: "c"}
    (before,) = (
        row
        for row in read_feed(bucket.root / "Tables/public/orders", from_version=1)
        .to_arrow()
        .to_pylist()
        if row["_change_type"] == "update_preimage" and row["id"] == 99
    )
    assert before["datastream_metadata"] == {"UUID": None, "SOURCE_TIMESTAMP": 52}


@pytest.mark.parametrize("fails", ["records of keys", "rows"])
def test_what_is_written_beside_what_fails_is_not_current(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", event(1, {"id": 1, "v": 1}), event(2, {"id": 2, "v": 2}))
    bucket.cycle()
    bucket.put("b.jsonl", event(3, {"id": 1, "v": 3}, "UPDATE"), event(4, {"id": 2}, "DELETE"))

    def damaged(*_anything: Any, **_named: Any) -> None:
        raise DamagedFiles("cut") if fails == "records of keys" else FileNotFoundError(2, "", "cut")

    with monkeypatch.context() as patch:
        if fails == "records of keys":
            patch.setattr(KeyedFiles, "compacted", damaged)
        else:
            patch.setattr(writer, "rewrite", damaged)
        assert bucket.cycle() == 0
    (error,) = bucket.errors.values()
    assert error.code == (
        "event_state_damaged" if fails == "records of keys" else "event_table_error"
    )
    assert bucket.plain() == [{"id": 1, "v": 1}, {"id": 2, "v": 2}]
    assert bucket.cycle(anew=True) == 1
    assert bucket.plain() == [{"id": 1, "v": 3}]
    bucket.put("c.jsonl", event(2, {"id": 1, "v": 2}, "UPDATE"), event(3, {"id": 2, "v": 3}))
    bucket.cycle()
    assert bucket.plain() == [{"id": 1, "v": 3}]


def test_other_readers_read_such_a_table_and_its_feed(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", event(1, {"id": 1, "note": "a"}), event(2, {"id": 2, "note": "b"}))
    bucket.cycle()
    bucket.put("b.jsonl", event(3, {"id": 1, "note": "c"}, "UPDATE"), event(4, {"id": 2}, "DELETE"))
    bucket.cycle()
    table = deltalake.DeltaTable(bucket.root / "Tables/public/orders")
    changes = pa.table(table.load_cdf(starting_version=1)).to_pylist()
    kinds = sorted((row["_change_type"], row["note"]) for row in changes)
    assert kinds == [("delete", "b"), ("update_postimage", "c"), ("update_preimage", "a")]
    assert all(row["datastream_metadata"]["UUID"] for row in changes)
    ours = read_feed(bucket.root / "Tables/public/orders", from_version=1)
    assert (
        sorted((row["_change_type"], row["note"]) for row in ours.to_arrow().to_pylist()) == kinds
    )


@pytest.mark.clause("ST-238", "ST-251", "ST-234")
def test_a_table_without_a_key_keeps_every_event_once(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    rows = [
        event(1, {"v": 1}, key=()),
        event(2, {"v": 1}, key=()),
        event(3, {"v": 1}, "DELETE", ()),
    ]
    bucket.put("a.jsonl", *rows, rows[0])
    bucket.cycle()
    bucket.put("b.jsonl", *rows, event(4, {"v": 2}, key=()))
    bucket.cycle()
    bucket.cycle(anew=True)
    assert list(fields(bucket)) == ["UUID", "SOURCE_TIMESTAMP", "IS_DELETED"]
    told = sorted((r["v"], r["datastream_metadata"]["IS_DELETED"]) for r in bucket.rows())
    assert told == [(1, False), (1, False), (1, True), (2, False)]


@pytest.mark.clause("ST-234")
def test_events_without_a_uuid_are_told_apart_by_place_and_content(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    places = [(1, "a"), (1, "b"), (2, "a"), (1, "a")]
    bucket.put("a.jsonl", *(event(n, {"v": v}, key=(), uuid=None) for n, v in places))
    bucket.cycle()
    bucket.put("b.jsonl", *(event(n, {"v": v}, key=(), uuid="") for n, v in places))
    bucket.cycle(anew=True)
    assert [row["v"] for row in bucket.plain()] == ["a", "a", "b"]
    bucket.put("c.jsonl", event(3, {"v": "c"}, key=(), uuid=""))
    bucket.cycle()
    assert {row["datastream_metadata"]["UUID"] for row in bucket.rows()} == {None}


@pytest.mark.clause("ST-239", "ST-240", "ST-236")
def test_in_append_mode_every_event_is_kept_with_its_place(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, is_append=True)
    bucket.put("a.jsonl", event(2, {"id": 1, "v": 2}, "UPDATE"), event(1, {"id": 1, "v": 1}))
    bucket.put("b.jsonl", event(3, {"id": 1}, "DELETE"), event(1, {"id": 1, "v": 1}))
    bucket.cycle()
    assert list(fields(bucket)) == [
        "UUID",
        "SOURCE_TIMESTAMP",
        "CHANGE_SEQUENCE_NUMBER",
        "CHANGE_TYPE",
        "SORT_KEYS",
    ]
    told = sorted(
        (row["datastream_metadata"] for row in bucket.rows()),
        key=lambda t: t["CHANGE_SEQUENCE_NUMBER"],
    )
    assert [one["CHANGE_TYPE"] for one in told] == ["INSERT", "UPDATE-INSERT", "DELETE"]
    assert told[0]["SORT_KEYS"] == ["1", "0/1"]
    assert told[0]["CHANGE_SEQUENCE_NUMBER"].split("/")[0] == f"{1:016x}"


@pytest.mark.clause("ST-234", "ST-236", "ST-239")
def test_in_append_mode_changes_at_one_place_are_told_apart_by_their_uuids_alone(
    tmp_path: Path,
) -> None:
    """A transaction of MongoDB has one place, in which it may change a document back."""
    bucket = Bucket(tmp_path, is_append=True)
    values = [("a", 1), ("b", 2), ("c", 1), ("a", 1), (None, 3), (None, 3)]
    bucket.put("a.jsonl", *(event(1, {"id": 1, "v": v}, "UPDATE", uuid=u) for u, v in values))
    bucket.cycle()
    assert sorted(row["v"] for row in bucket.plain()) == [1, 1, 2, 3]


@pytest.mark.clause("ST-233")
def test_in_merge_mode_an_event_that_comes_again_with_another_uuid_changes_nothing(
    tmp_path: Path,
) -> None:
    bucket = Bucket(tmp_path)
    for number, uuid in enumerate(("b", "a", None)):
        bucket.put(f"{number}.jsonl", event(1, {"id": 1, "v": 1}, uuid=uuid))
        bucket.cycle()
    assert bucket.plain() == [{"id": 1, "v": 1}]
    assert {row["datastream_metadata"]["UUID"] for row in bucket.rows()} == {"b"}


WHERE = ["_mirrorlake_position", "_mirrorlake_commit_time"]


@pytest.mark.parametrize("is_append", [False, True])
def test_metadata_columns_tell_position_and_time_of_the_event(
    tmp_path: Path, *, is_append: bool
) -> None:
    bucket = Bucket(tmp_path, is_append=is_append, metadata_columns=True)
    bucket.put("a.jsonl", event(4096, {"id": 1}, uuid="u"), event(2, {"id": 2}, uuid="v"))
    read = {"read_method": "postgres-backfill-fulldump", "sort_keys": [3, None]}
    bucket.put("b.jsonl", event(3, {"id": 3}, lsn=None, tx_id=None, **read))
    bucket.cycle()
    rows = {row["id"]: [row[name] for name in WHERE] for row in bucket.rows()}
    assert {key: time for key, (_position, time) in rows.items()} == {
        key: datetime.fromtimestamp(n / 1000, UTC) for key, n in ((1, 4096), (2, 2), (3, 3))
    }
    assert rows[3][0] is None
    assert f"{4096:016x}" in rows[1][0].split("/")
    assert rows[2][0] < rows[1][0]


def test_a_time_that_microseconds_cannot_tell_is_none(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, metadata_columns=True)
    bucket.put("a.jsonl", event(1, {"id": 1}, source_timestamp=10**17))
    bucket.cycle()
    (row,) = bucket.rows()
    assert row[WHERE[1]] is None
    assert row["datastream_metadata"]["SOURCE_TIMESTAMP"] == 10**17


def test_metadata_columns_come_to_a_table_and_stay(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", event(1, {"id": 1}), event(2, {"id": 2}))
    bucket.cycle()
    assert not set(WHERE) & set(bucket.rows()[0])
    bucket.settings = replace(bucket.settings, metadata_columns=True)
    bucket.put("b.jsonl", event(3, {"id": 1}, "UPDATE"))
    bucket.cycle(anew=True)
    bucket.settings = replace(bucket.settings, metadata_columns=False)
    bucket.put("c.jsonl", event(4, {"id": 3}))
    bucket.cycle(anew=True)
    told = {row["id"]: all(row[name] for name in WHERE) for row in bucket.rows()}
    assert told == {1: True, 2: False, 3: True}
    feed = read_feed(bucket.root / "Tables/public/orders", from_version=1).to_arrow().to_pylist()
    kinds = sorted((row["_change_type"], row["id"]) for row in feed)
    assert kinds == [("insert", 3), ("update_postimage", 1), ("update_preimage", 1)]


def test_a_column_of_events_that_has_the_name_of_a_metadata_column_stops_the_table(
    tmp_path: Path,
) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", event(1, {"id": 1, "_MIRRORLAKE_POSITION": "x"}))
    bucket.cycle()
    assert "would have one name" in str(bucket.errors["public.orders"])


@pytest.mark.clause("ST-259", "ST-260", "ST-261", "ST-252")
def test_columns_come_and_never_go(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", event(1, {"id": 1, "old": "x"}))
    bucket.cycle()
    bucket.put("b.jsonl", event(2, {"id": 2, "new": 5}))
    bucket.cycle()
    assert bucket.plain() == [{"id": 1, "old": "x", "new": None}, {"id": 2, "old": None, "new": 5}]


@pytest.mark.clause("ST-262", "ST-253")
def test_a_value_of_another_type_is_a_dead_letter_and_never_cast(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", event(1, {"id": 1, "v": 10}))
    bucket.cycle()
    bucket.put("b.jsonl", event(2, {"id": 2, "v": "ten"}), event(3, {"id": 3, "v": 3}))
    bucket.cycle()
    assert bucket.plain() == [{"id": 1, "v": 10}, {"id": 3, "v": 3}]
    dead = bucket.consumer()._journal.dead
    assert [(one.reason, one.rows) for one in dead[0].letters] == [
        ("the value of column v is no LONG", (0,))
    ]


@pytest.mark.clause("ST-263")
def test_a_key_that_changes_stops_the_table_and_loses_nothing(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", event(1, {"id": 1, "v": 1}))
    bucket.cycle()
    bucket.put("b.jsonl", event(2, {"id": 2, "v": 2}, key=("id", "v")))
    other = event(1, {"id": 5}, table="others")
    bucket.put("c.jsonl", other)
    bucket.cycle()
    what = bucket.errors["public.orders"].what
    assert "its key has changed (BIGQUERY_UNSUPPORTED_PRIMARY_KEY_CHANGE)" in what
    assert "Move the files with the former key" in bucket.errors["public.orders"].hint
    assert bucket.plain("public/others") == [{"id": 5}]
    assert bucket.plain() == [{"id": 1, "v": 1}]
    # The file is not taken as applied: another process tries it again.
    bucket.put("b.jsonl", event(2, {"id": 2, "v": 2}))
    bucket.cycle(anew=True)
    assert bucket.plain() == [{"id": 1, "v": 1}, {"id": 2, "v": 2}]


@pytest.mark.clause("ST-092", "ST-250", "ST-263")
def test_a_key_that_only_some_events_name_goes_on_when_it_is_named_in_the_settings(
    tmp_path: Path,
) -> None:
    """As backfills of SQL Server may have no `replication_index`."""
    of_server = {"lsn": "0:0:1", "primary_keys": None, "schema": "shop"}
    read = {**of_server, "read_method": "sqlserver-backfill", "lsn": ""}
    changed = {**of_server, "read_method": "sqlserver-cdc", "replication_index": ["id"]}
    events = [event(0, {"id": 1, "v": 1}, **read), event(1, {"id": 1, "v": 2}, **changed)]
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", *events)
    bucket.cycle()
    assert "set source.keys to {shop.orders: [id]}" in bucket.errors["shop.orders"].hint
    named = Bucket(tmp_path / "named", keys={"shop.orders": ("id",)})
    named.put("a.jsonl", *events)
    named.cycle()
    assert named.plain("shop/orders") == [{"id": 1, "v": 2}]


@pytest.mark.clause("ST-250")
def test_the_key_is_told_by_events_or_by_configuration_and_never_guessed(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, keys={"shop.named": ("id",)})
    index = {
        "read_method": "sqlserver-cdc",
        "lsn": "0:0:1",
        "primary_keys": None,
        "schema": "shop",
    }
    bucket.put(
        "a.jsonl",
        event(1, {"id": 1}, **index, table="indexed", replication_index=["id"]),
        event(1, {"id": 1}, **index, table="named"),
        event(1, {"id": 1}, **index, table="keyless"),
    )
    bucket.cycle()
    for name, key in {"indexed": '["id"]', "named": '["id"]', "keyless": "[]"}.items():
        snapshot = bucket.log(f"shop/{name}").snapshot()
        assert snapshot.properties["mirrorlake.keyColumns"] == key


@pytest.mark.clause("ST-243")
def test_events_of_a_key_of_a_type_that_none_can_have_are_dead_letters(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", event(1, {"id": {"a": 1}, "v": 1}))
    bucket.put("b.jsonl", event(1, {"id": [1.5]}, table="lists"))
    bucket.cycle()
    assert not bucket.errors  # JSON is text, by which rows are found
    kinds = {"x": types.DOUBLE, "b": types.BYTES}
    for name, value in {"x": 1.5, "b": b"1"}.items():
        columns = [EventColumn("id", types.LONG), EventColumn(name, kinds[name])]
        told = [golden(n, payload={"id": n, name: value}, table=name) for n in range(3)]
        for one in told:
            one["source_metadata"]["primary_keys"] = [name]
        content = avro(told, schema_of(columns))
        bucket.put(f"{name}.avro").write_bytes(content)
    bucket.put("c.jsonl", event(2, {"id": "z", "v": 1}, table="lists"))
    assert bucket.cycle() == 3
    assert not bucket.errors
    dead = bucket.consumer()._journal.dead
    assert [one.path.rpartition("/")[2] for one in dead] == ["b.avro", "x.avro"]
    for file in dead:
        (letters,) = file.letters
        assert letters.rows == (0, 1, 2)
        assert "by which no row can be found" in letters.reason
    assert len(bucket.plain("public/lists")) == 2
    assert bucket.cycle(anew=True) == 0
    # With another key the same table is made, and a replay finds what is missing.
    path = bucket.put("x.avro")
    for one in told:
        one["source_metadata"] |= {"primary_keys": ["id"], "table": "x"}
    path.write_bytes(avro(told, schema_of(columns)))
    assert bucket.cycle(anew=True) == 1
    assert [row["id"] for row in bucket.plain("ea_main/x")] == [0, 1, 2]


@pytest.mark.clause("ST-358", "ST-359", "ST-360", "ST-361", "ST-363", "ST-365")
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1)])
def test_the_golden_example_leaves_an_empty_table_in_every_order(
    tmp_path: Path, order: tuple[int, ...]
) -> None:
    bucket = Bucket(tmp_path, keys={"ROOT.SAMPLE": ("THIS_IS_MY_PK",)})
    row = {"THIS_IS_MY_PK": "1231535353", "FIELD1": "foo", "FIELD2": "TLV"}
    states = {(0,): [row], (0, 1): [{**row, "FIELD1": None}]}
    seen: tuple[int, ...] = ()
    for number in order:
        bucket.put(f"{number}.jsonl", GOLDEN[number], GOLDEN[number], minute="")
        bucket.cycle()
        seen += (number,)
        if seen in states:
            assert bucket.plain("ROOT/SAMPLE") == states[seen]
    assert bucket.plain("ROOT/SAMPLE") == []


@pytest.mark.clause("ST-366", "ST-378")
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_genuine_key_update_moves_the_row(tmp_path: Path, order: tuple[int, int]) -> None:
    bucket = Bucket(tmp_path)
    before = json.loads(KEY_CHANGE[1])
    before["uuid"], before["payload"] = "x", {"id": 1, "val": 10}
    before["source_metadata"] |= {"log_position": 5, "change_type": "INSERT"}
    name = "491139293433ac07c1895612433c0d61c5265fdb_mysql-cdc-binlog_1296257282_6_0.jsonl"
    bucket.put(name, before)
    bucket.cycle()
    assert bucket.plain("ea_main/my_table") == [{"id": 1, "val": 10}]
    for number in order:
        bucket.put(f"{number}.jsonl", KEY_CHANGE[number])
        bucket.cycle()
    assert bucket.plain("ea_main/my_table") == [{"id": 10, "val": 10}]


def test_a_table_that_was_restored_or_removed_stops(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", event(1, {"id": 1}))
    bucket.cycle()
    bucket.put("b.jsonl", event(2, {"id": 2}))
    bucket.cycle()
    deltalake.DeltaTable(bucket.root / "Tables/public/orders").restore(0)
    bucket.put("c.jsonl", event(3, {"id": 3}))
    bucket.cycle(anew=True)
    assert "restored" in bucket.errors["public.orders"].what
    import shutil

    shutil.rmtree(bucket.root / "Tables")
    bucket.cycle(anew=True)
    assert "removed" in bucket.errors["public.orders"].what


def test_a_table_is_told_of_after_a_process_that_died_with_its_first_commit(
    tmp_path: Path,
) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", event(1, {"id": 1}))

    def dies(point: CrashPoint) -> None:
        if point is CrashPoint.EVENTS_COMMITTED:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bucket.cycle(dies)
    assert bucket.cycle(anew=True) == 1
    assert list(states(LocalStore(bucket.root))) == [TableId("public", "orders")]


def test_what_a_later_release_remembers_is_refused_and_kept(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", event(1, {"id": 1}))
    bucket.cycle()
    folder = bucket.root / "Files/Mirrorlake/events/tables"
    (record,) = folder.rglob("0*.json")
    text = record.read_text()
    record.write_text(text.replace('"format": 1', '"format": 2'))
    bucket.put("b.jsonl", event(2, {"id": 2}))
    bucket.cycle(anew=True)
    assert "its format is 2" in bucket.errors["public.orders"].what
    record.write_text(text)
    bucket.cycle(anew=True)
    assert bucket.plain() == [{"id": 1}, {"id": 2}]


def test_a_file_that_is_gone_stops_its_table_alone(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", event(1, {"id": 1}), event(1, {"id": 1}, table="others"))
    bucket.cycle()
    for file in (bucket.root / "Files/Mirrorlake/events/tables/public~2Eorders").rglob("*.parquet"):
        file.unlink()
    bucket.put("b.jsonl", event(2, {"id": 1}), event(2, {"id": 2}, table="others"))
    bucket.cycle(anew=True)
    assert list(bucket.errors) == ["public.orders"]
    assert "is missing" in bucket.errors["public.orders"].what
    assert bucket.plain("public/others") == [{"id": 1}, {"id": 2}]


def test_nested_columns_are_read_back(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, is_append=True)
    bucket.put("a.jsonl", event(1, {"id": 1}))
    bucket.cycle()
    schema = parse(bucket.log().snapshot().metadata).schema
    told = schema["datastream_metadata"].type
    assert [name for name, _kind in told.members][-1] == "SORT_KEYS"
    assert str(told.members[-1][1]) == "array<element: string>"


@pytest.mark.full
@pytest.mark.parametrize("is_append", [False, True])
def test_batches_of_many_rows_and_files_that_are_read_whole(
    tmp_path: Path, is_append: bool
) -> None:
    """From 16,384 rows on it is asked which columns are worth compressing."""
    bucket, count = Bucket(tmp_path, is_append=is_append), 17_000
    told = "".join(f"{hashlib.sha256(bytes([n])).hexdigest()}" for n in range(8))
    events = [event(1, {"id": n, "v": f"{n}{told[n % 500 :]}"}) for n in range(count)]
    for number, one in enumerate(events):
        one["uuid"] = f"u{number}"
    bucket.put("a.jsonl", *events)
    bucket.cycle()
    bucket.put("b.jsonl", *(event(2, {"id": n, "v": "b"}, "UPDATE") for n in range(0, count, 1000)))
    bucket.cycle(anew=True)
    rows = bucket.rows()
    changed = len(range(0, count, 1000))
    # Without uuids of their own those of one number are one event.
    assert len(rows) == count + (1 if is_append else 0)
    assert sum(row["v"] == "b" for row in rows) == (1 if is_append else changed)
    (data,) = (
        path
        for path in (bucket.root / "Tables/public/orders").glob("*.parquet")
        if pq.read_metadata(path).num_rows >= count
    )
    group = pq.read_metadata(data).row_group(0)
    codecs = {
        group.column(i).path_in_schema: group.column(i).compression
        for i in range(group.num_columns)
    }
    assert codecs["datastream_metadata.UUID"] == codecs["id"]
