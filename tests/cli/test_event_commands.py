"""Commands for a project whose source is event files."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from tests.app.events.test_applier import project, put
from tests.apply.events.bucket import event
from tests.apply.events.drawn_files import rows_of
from tests.apply.events.genuine import avro, oracle
from tests.cli.conftest import Run


@pytest.mark.clause("ST-253", "ST-254")
def test_dead_letters_are_shown_and_replayed(run: Run, tmp_path: Path) -> None:
    project(tmp_path)
    put(tmp_path, "a.jsonl", event(1, {"id": 1}), event(2, {"id": 2}, "[/x]\x1b[31m"))
    assert run("dead-letters").code == 0
    run("apply", "--once")
    shown = run("dead-letters")
    assert shown.code == 1
    assert "[/x]" in shown.out
    assert "\x1b" not in shown.out
    assert run("errors") == shown
    (told,) = run("errors", "--json").facts()
    assert (told["file"], told["rows"]) == ("a.jsonl", [1])
    (told,) = run("dead-letters", "--replay", "--json").facts()
    assert (told["file"], told["events"], told["rows"]) == ("a.jsonl", 1, [1])
    assert told["retries"] == 1
    put(tmp_path, "a.jsonl", event(1, {"id": 1}), event(2, {"id": 2}))
    assert run("dead-letters", "--replay").code == 0
    assert len(rows_of(tmp_path / "lake/Tables/public/orders")) == 2


@pytest.mark.clause("ST-254")
def test_a_replay_names_the_files_that_are_gone_and_drops_what_is_listed_of_them(
    run: Run, tmp_path: Path
) -> None:
    project(tmp_path)
    put(tmp_path, "a.jsonl", event(1, {"id": 1}))
    put(tmp_path, "b.jsonl", event(2, {"id": 2}, "PUT"))
    done = run("apply", "--once")
    assert "1 events could not be applied: mirrorlake dead-letters" in done.out + done.error
    again = run("apply", "--once")
    assert "contains no new events to apply" in again.out + again.error
    (tmp_path / "bucket/b.jsonl").unlink()
    assert run("errors").code == 1
    done = run("dead-letters", "--replay")
    assert (done.code, "b.jsonl, which is gone" in done.error) == (0, True)
    assert run("errors").code == 0
    assert "could not be applied" not in run("status").out


@pytest.mark.clause("ST-230")
def test_deletions_that_wait_for_their_key_are_shown_and_stop_nothing(
    run: Run, tmp_path: Path
) -> None:
    project(tmp_path)
    put(tmp_path, "a.jsonl", oracle(10, {"ID": 1}, "INSERT", row_id="AA", tx_id="T1"))
    run("apply", "--once")
    assert "deletions without a key" not in run("status").out
    assert run("errors").code == 0
    put(tmp_path, "b.jsonl", oracle(20, {"ID": None}, "DELETE", row_id="AA", tx_id="[/x]"))
    run("apply", "--once")
    shown = run("status")
    assert "SHOP.ORDERS: deletions without a key that wait for the event with it: 1" in shown.out
    assert (shown.code, "Replicating" in shown.out) == (0, True)
    (table,) = run("status", "--json").facts()["tables"]
    assert (table["waiting_deletions"], table["error"]) == (1, None)
    (told,) = run("errors", "--json").facts()
    assert (told["file"], told["table"], told["events"]) == (None, "SHOP.ORDERS", 1)
    assert "ROWID AA waits" in told["reason"]
    assert "transaction [/x]" in told["reason"]
    shown = run("errors")
    assert (shown.code, "[/x]" in shown.out) == (1, True)
    put(tmp_path, "c.jsonl", oracle(15, {"ID": 1}, row_id="AA", tx_id="[/x]"))
    run("apply", "--once")
    assert run("errors").code == 0
    assert rows_of(tmp_path / "lake/Tables/SHOP/ORDERS") == []


@pytest.mark.clause("ST-262")
def test_a_column_that_got_a_wider_type_is_shown(run: Run, tmp_path: Path) -> None:
    project(tmp_path)
    (folder := tmp_path / "bucket").mkdir()
    (folder / "a.avro").write_bytes(avro([event(1, {"id": 1})], id="int"))
    run("apply", "--once")
    (table,) = run("status", "--json").facts()["tables"]
    assert table["widened"] == []
    (folder / "b.avro").write_bytes(avro([event(2, {"id": 2**40})], id="long"))
    run("apply", "--once")
    shown = run("status")
    told = "public.orders: column id got the type LONG of events, and was INTEGER before version 1"
    assert (shown.code, told in shown.out) == (0, True)
    (table,) = run("status", "--json").facts()["tables"]
    assert table["widened"] == [
        {"column": "id", "before": "INTEGER", "after": "LONG", "version": 1}
    ]


def test_errors_of_a_project_without_event_files_need_a_stream(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mirrorlake.yaml").write_text("name: shop\nroot: ./lake\n")
    told = run("errors")
    assert told.code == 2
    assert "Name a stream" in told.error


def test_a_table_that_stopped_is_among_the_errors_until_it_goes_on(
    run: Run, tmp_path: Path
) -> None:
    project(tmp_path)
    put(tmp_path, "a.jsonl", event(1, {"id": 1}))
    run("apply", "--once")
    put(tmp_path, "b.jsonl", event(2, {"id": 2}, key=("id", "v")))
    put(tmp_path, "c.jsonl", event(3, {"id": 3}, "PUT"))
    run("apply", "--once")
    stopped, dead = run("errors", "--json").facts()
    (table,) = run("status", "--json").facts()["tables"]
    assert (stopped["file"], stopped["table"], stopped["events"]) == (None, "public.orders", None)
    assert stopped["reason"].startswith(table["error"]["message"])
    assert dead["file"] == "c.jsonl"
    shown = run("errors")
    assert (shown.code, "key has changed" in " ".join(shown.out.split())) == (1, True)
    assert [one["file"] for one in run("dead-letters", "--json").facts()] == ["c.jsonl"]
    for name in ("b.jsonl", "c.jsonl"):
        put(tmp_path, name, event(4, {"id": 2}))
    run("apply", "--once")
    assert (run("errors").code, run("errors", "--json").facts()) == (0, [])


def test_a_table_is_made_anew_and_others_stay_as_they_are(run: Run, tmp_path: Path) -> None:
    project(tmp_path)
    put(tmp_path, "a.jsonl", event(1, {"id": 1}), event(1, {"id": 1}, table="others"))
    run("apply", "--once")
    put(tmp_path, "b.jsonl", event(2, {"id": 2}, key=("id", "v")))
    run("apply", "--once")
    tables = {one["table"]: one for one in run("status", "--json").facts()["tables"]}
    assert tables["public.orders"]["error"]["code"] == "event_table_error"
    assert tables["public.others"]["error"] is None
    (tmp_path / "bucket/b.jsonl").unlink()
    assert run("reset", "public.orders", "--yes").code == 0
    run("apply", "--once")
    for name in ("orders", "others"):
        (row,) = rows_of(tmp_path / "lake/Tables/public" / name)
        assert row["id"] == 1
    told = run("status", "--json").facts()["tables"]
    assert {one["table"]: one["version"] for one in told} == {
        "public.orders": 0,
        "public.others": 0,
    }


def test_event_files_are_converted_to_a_landing_zone(run: Run, tmp_path: Path) -> None:
    project(tmp_path)
    put(tmp_path, "a.jsonl", event(1, {"id": 1, "t": {"a": 1}}), event(2, {"id": 2}, "UNKNOWN"))
    done = run("convert", str(tmp_path / "zone"))
    assert done.code == 0
    assert "public.orders: 1 changes of 1 commits" in done.out
    assert "1 events that could not be applied" in done.out + done.error
    put(tmp_path, "b.jsonl", event(3, {"id": 3}))
    (table,) = run("convert", str(tmp_path / "zone"), "--json").facts()["tables"]
    assert (table["commits"], table["changes"], table["error"]) == (1, 1, None)
    put(tmp_path, "c.jsonl", event(4, {"id": 4}, key=("id", "v")))
    stopped = run("convert", str(tmp_path / "zone"))
    assert stopped.code == 1
    assert "its key has changed" in stopped.out + stopped.error


@pytest.mark.parametrize("is_broken", [False, True])
def test_a_table_of_others_is_never_deleted(run: Run, tmp_path: Path, *, is_broken: bool) -> None:
    project(tmp_path)
    theirs = tmp_path / "lake/Tables/public/orders"
    deltalake.write_deltalake(theirs, pa.table({"x": [1]}))
    if is_broken:
        next(theirs.glob("_delta_log/*.json")).write_text("{")
    put(tmp_path, "a.jsonl", event(1, {"id": 1}), event(1, {"id": 1}, table="others"))
    run("apply", "--once")
    for asked in ("public.orders", "--all"):
        done = run("reset", asked, "--yes")
        assert done.code == 2
        assert "is not made of events" in done.error
    assert len(list(theirs.glob("*.parquet"))) == 1
    assert run("reset", "public.others", "--yes").code == 0


def test_what_lies_inside_a_table_that_was_refused_is_never_deleted(
    run: Run, tmp_path: Path
) -> None:
    project(tmp_path)
    put(tmp_path, "a.jsonl", event(1, {"id": 1}, schema="sales", table="orders"))
    run("apply", "--once")
    put(tmp_path, "b.jsonl", event(1, {"id": 1}, schema=None, table="sales"))
    run("apply", "--once")
    assert run("reset", "sales", "--yes").code == 0
    assert len(rows_of(tmp_path / "lake/Tables/sales/orders")) == 1


def test_what_is_remembered_of_a_table_is_repaired(run: Run, tmp_path: Path) -> None:
    project(tmp_path)
    put(
        tmp_path, "a.jsonl", event(1, {"id": 1}), event(2, {"id": 2}), event(2, {"id": 1}, "DELETE")
    )
    put(tmp_path, "b.jsonl", event(1, {"id": 1}, table="others"))
    run("apply", "--once")
    assert "nothing to repair" in run("repair").error
    shutil.rmtree(tmp_path / "lake/Files/Mirrorlake/events/tables/public~2Eorders")
    put(tmp_path, "c.jsonl", event(1, {"id": 1}), event(3, {"id": 3}))
    stopped = run("apply", "--once")
    assert stopped.code == 1
    assert "mirrorlake repair public.orders" in stopped.out + stopped.error
    (planned,) = run("repair", "--dry-run", "--json").facts()["tables"]
    assert planned["table"] == "public.orders"
    assert "it is missing" in planned["damage"]
    assert run("repair", "public.nothing", "--yes").code == 2
    assert run("repair", "--yes").code == 0
    tables = {one["table"]: one for one in run("status", "--json").facts()["tables"]}
    assert tables["public.orders"]["error"] is None
    assert tables["public.others"]["version"] == 0
    assert run("apply", "--once").code == 0
    rows = rows_of(tmp_path / "lake/Tables/public/orders")
    assert sorted(row["id"] for row in rows) == [2, 3]


def test_what_can_be_repaired_is_found_and_repaired_before_apply_stops(
    run: Run, tmp_path: Path
) -> None:
    project(tmp_path)
    names = ["cut", "emptied", "hollow", "lost", "other", "whole"]
    put(tmp_path, "a.jsonl", *(event(1, {"id": 1}, table=name) for name in names))
    run("apply", "--once")
    state = tmp_path / "lake/Files/Mirrorlake/events/tables"
    tables = tmp_path / "lake/Tables/public"
    for name in ("cut", "emptied", "hollow", "lost"):
        (record,) = (state / f"public~2E{name}").glob("0*.json")
        record.write_text(record.read_text()[:-20]) if name == "cut" else record.unlink()
    for name in ("emptied", "hollow"):
        (data,) = tables.glob(f"{name}/*.parquet")
        data.unlink()
    (log,) = tables.glob("other/_delta_log/*0.json")
    log.write_text(log.read_text().replace("mirrorlake-events", "another"))
    planned = run("repair", "--dry-run", "--json").facts()
    assert [one["table"] for one in planned["tables"]] == [
        "public.cut",
        "public.emptied",
        "public.hollow",
        "public.lost",
    ]
    (left,) = planned["left"]
    assert left["table"] == "public.other"
    done = run("repair", "--yes")
    assert done.code == 1
    assert "public.other: is left as it is" in done.error
    assert "2 tables cannot be repaired" in done.error
    assert "public.hollow: a file of it cannot be read" in done.error
    planned = run("repair", "--dry-run", "--json").facts()
    assert [one["table"] for one in planned["tables"]] == ["public.emptied", "public.hollow"]
    done = run("repair", "public.hollow", "--yes")
    assert done.code == 1
    assert "a file of it cannot be read" in done.error


@pytest.mark.clause("ST-157", "CF-077")
def test_a_feed_shows_infinite_moments_and_metadata_in_every_form(run: Run, tmp_path: Path) -> None:
    project(tmp_path)
    digest = "0" * 40
    moment = {"type": "long", "logicalType": "timestamp-micros"}
    columns = {"id": "long", "t": moment}
    fields = [{"name": name, "type": ["null", kind]} for name, kind in columns.items()]
    payload = {"name": "payload", "type": {"type": "record", "name": "payload", "fields": fields}}
    schema = {"type": "record", "name": "orders", "fields": [payload]}
    (tmp_path / "bucket").mkdir(exist_ok=True)
    (tmp_path / "bucket" / f"{digest}.avsc").write_text(json.dumps(schema))
    infinities = (9223372036825200000, -9223372036832400000)
    events = [event(number, {"id": number, "t": t}) for number, t in enumerate(infinities, 1)]
    put(tmp_path, f"{digest}_x_0_0_0.jsonl", *events)
    run("apply", "--once")
    command = ("feed", "public.orders", "--from", "beginning")
    last, first = "+294247-01-10T04:00:25.200000", "-290308-12-21T19:59:27.600000"
    assert [row["t"] for row in map(json.loads, run(*command, "--json").out.splitlines())] == [
        f"{last}+00:00",
        f"{first}+00:00",
    ]
    rows = list(csv.DictReader(io.StringIO(run(*command, "--csv").out)))
    assert [row["t"] for row in rows] == [f"{last}Z", f"{first}Z"]
    assert json.loads(rows[0]["datastream_metadata"])["SOURCE_TIMESTAMP"] == 1
    assert last in run(*command).out
    assert last in run("trace", "public.orders", "id=1").out


def test_convert_to_a_landing_zone_takes_no_format_of_event_files(run: Run, tmp_path: Path) -> None:
    text = "name: a\nroot: ./r\nsource: {type: events, url: ./e}\n"
    (tmp_path / "mirrorlake.yaml").write_text(text)
    done = run("convert", "./zone", "--format", "json")
    assert done.code == 2
    assert "--format is for event files" in done.error
