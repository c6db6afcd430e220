"""Publishing from the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from mirrorlake.app import extras
from mirrorlake.delta.log.first_commit import MARKER
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.model.table import TableId
from mirrorlake.publisher.locations import is_mirrored
from mirrorlake.storage.local import LocalStore
from tests.cli.conftest import Done, Run
from tests.crash.forked import mirrorlake

ORDERS = "id,name,zip\n1,Ada,01234\n2,Grace,\n"
CHANGES = '{"op": "update", "id": 2, "name": "Grace H.", "zip": "9"}\n{"op": "delete", "id": 1}\n'


@pytest.fixture(autouse=True)
def inputs(tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text(ORDERS)
    (tmp_path / "changes.jsonl").write_text(CHANGES)


def publish(run: Run, *arguments: str) -> Done:
    return run("publish", *arguments, "-t", "sales.orders", "--root", "./zone")


def load(run: Run, *arguments: str) -> Done:
    options = ("--key", "id", "--initial", "--type", "zip=string")
    return publish(run, "orders.csv", *options, *arguments)


def folder(root: Path) -> Path:
    return root / "zone/Files/LandingZone/sales.schema/orders"


def landed(root: Path, number: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(folder(root) / f"{number:020d}.parquet").to_pylist()
    return rows


def test_files_become_batches(run: Run, tmp_path: Path) -> None:
    assert load(run).code == 0
    done = publish(run, "changes.jsonl", "--marker-column", "op", "--batch", "1", "--json")
    assert done.code == 0
    (batch,) = done.facts()["batches"]
    assert (batch["table"], batch["batch"], batch["outcome"]) == ("sales.orders", "1", "published")
    assert batch["rows"] == {"delete": 1, "update": 1}
    assert [file["number"] for file in batch["files"]] == [2]
    assert landed(tmp_path, 1) == [
        {"id": 1, "name": "Ada", "zip": "01234"},
        {"id": 2, "name": "Grace", "zip": None},
    ]
    assert [row["__rowMarker__"] for row in landed(tmp_path, 2)] == [1, 2]


@pytest.mark.clause("LZ-003")
def test_status_names_the_zone_that_was_published_into(run: Run, tmp_path: Path) -> None:
    load(run)
    told = run("status", "--root", "zone")
    assert f"landing zone: {tmp_path / 'zone/Files/LandingZone'}" in told.out.splitlines()


def test_a_batch_is_published_once(run: Run, tmp_path: Path) -> None:
    load(run)
    for outcome in ("published", "already published"):
        done = publish(run, "orders.csv", "--operation", "upsert", "--batch", "1", "--json")
        assert done.facts()["batches"][0]["outcome"] == outcome
    assert not (folder(tmp_path) / f"{3:020d}.parquet").exists()


def test_several_files_are_batches_of_their_own(run: Run) -> None:
    load(run)
    arguments = ("orders.csv", "orders.csv", "--operation", "upsert", "--batch", "b", "--json")
    batches = publish(run, *arguments).facts()["batches"]
    assert [batch["batch"] for batch in batches] == ["b/1", "b/2"]


def test_text_and_the_first_layout_are_options(run: Run, tmp_path: Path) -> None:
    assert load(run, "--format", "tsv", "--layout", "v1").code == 0
    content = (folder(tmp_path) / f"{1:020d}.tsv").read_bytes()
    assert content == b'__rowMarker__\tid\tname\tzip\r\n0\t1\t"Ada"\t"01234"\r\n0\t2\t"Grace"\t\r\n'


def test_a_bulk_load_is_held_and_released(run: Run, tmp_path: Path) -> None:
    load(run, "--hold")
    assert not (folder(tmp_path) / "_metadata.json").exists()
    assert publish(run, "--release").code == 0
    assert json.loads((folder(tmp_path) / "_metadata.json").read_text())["keyColumns"] == ["id"]


def test_a_table_begins_anew(run: Run, tmp_path: Path) -> None:
    load(run)
    publish(run, "orders.csv", "--operation", "upsert")
    done = publish(run, "orders.csv", "--drop", "--wait", "0", "--initial", "--key", "name,id")
    assert done.code == 0
    assert json.loads((folder(tmp_path) / "_metadata.json").read_text())["keyColumns"] == [
        "name",
        "id",
    ]
    assert landed(tmp_path, 1)[0]["id"] == 1


@pytest.mark.clause("LZ-239")
def test_the_mirrored_table_is_waited_for(run: Run, tmp_path: Path) -> None:
    load(run)
    log = tmp_path / "zone/Tables/sales/orders/_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text("{}")
    done = publish(run, "--drop", "--wait", "0")
    assert (done.code, "still there" in done.error) == (1, True)
    assert not folder(tmp_path).exists()


@pytest.mark.clause("LZ-239")
def test_changes_wait_until_the_table_is_mirrored_again(run: Run, tmp_path: Path) -> None:
    load(run, "--drop", "--wait", "0")
    changes = ("changes.jsonl", "--marker-column", "op", "--wait", "0")
    done = publish(run, *changes)
    assert (done.code, "does not have the table yet" in done.error) == (1, True)
    assert not (folder(tmp_path) / f"{2:020d}.parquet").exists()
    log = tmp_path / "zone/Tables/sales/orders/_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text("{}")
    assert publish(run, *changes).code == 0
    assert [row["__rowMarker__"] for row in landed(tmp_path, 2)] == [1, 2]


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        (["--key", "id", "--no-key"], "--key cannot be used with --no-key"),
        (["--initial", "--wait", "1"], "--wait has no effect with --initial"),
    ],
)
def test_an_option_that_another_leaves_without_effect_is_refused(
    run: Run, options: list[str], refused: str
) -> None:
    done = run("publish", "orders.csv", "-t", "sales.orders", "--root", "zone", *options)
    assert done.code == 2
    assert refused in done.error


@pytest.mark.parametrize(
    ("table", "path"), [("a.t", "a/t"), ("t", "t"), ("t", "dbo/t"), (".t", "t")]
)
def test_a_mirrored_table_is_found(tmp_path: Path, table: str, path: str) -> None:
    log = tmp_path / "Tables" / path / "_delta_log"
    log.mkdir(parents=True)
    (log / MARKER).touch()
    assert not is_mirrored(LocalStore(tmp_path), TableId.parse(table))
    (log / f"{0:020d}.json").write_text("{}")
    assert is_mirrored(LocalStore(tmp_path), TableId.parse(table))
    assert not is_mirrored(LocalStore(tmp_path), TableId("a", "other"))


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("absent.csv", "--operation", "upsert"),
        ("orders.csv", "--initial", "--operation", "upsert"),
        ("orders.csv", "--operation", "merge"),
        ("orders.csv", "--operation", "upsert", "--format", "xml"),
        ("orders.csv", "--operation", "upsert", "--type", "zip"),
        ("orders.csv", "--operation", "upsert", "--codec", "lz4"),
        ("orders.csv",),
        ("--give-up", "nothing"),
        ("--release",),
    ],
)
def test_wrong_use_ends_with_code_two(run: Run, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    assert publish(run, *arguments, "--no-key").code == 2
    assert not list(folder(tmp_path).glob("0*"))


def test_what_reads_excel_is_named_when_it_is_missing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.xlsx").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(ImportError) as caught:
        publish(run, "a.xlsx", "--initial", "--no-key")
    told = extras.missing(caught.value)
    assert told is not None
    assert "mirrorlake[excel]" in told.hint


def test_a_table_must_be_named(run: Run) -> None:
    assert run("publish", "orders.csv", "--initial", "--root", "zone").code == 2


def test_a_bad_row_is_named_and_nothing_is_landed(run: Run, tmp_path: Path) -> None:
    load(run)
    (tmp_path / "bad.csv").write_text("op,id,name,zip\nupsert,1,a,b\nmerge,2,a,b\n")
    done = publish(run, "bad.csv", "--marker-column", "op")
    assert done.code == 1
    assert "row 2" in done.error
    assert not (folder(tmp_path) / f"{2:020d}.parquet").exists()


@pytest.mark.crash
@pytest.mark.clause("LZ-136")
@pytest.mark.parametrize("point", [CrashPoint.BATCH_STAGED_ONE, CrashPoint.BATCH_SEALED])
def test_a_run_that_was_killed_is_run_again(run: Run, tmp_path: Path, point: CrashPoint) -> None:
    load(run)
    root = ("-t", "sales.orders", "--root", str(tmp_path / "zone"))
    what = (str(tmp_path / "orders.csv"), "--operation", "insert", "--batch", "1")
    assert mirrorlake("publish", *what, *root, CRASH_AT=point).code == -signal.SIGKILL
    assert not (folder(tmp_path) / f"{2:020d}.parquet").exists()
    assert publish(run, "orders.csv", "--operation", "insert", "--batch", "1").code == 0
    assert len(landed(tmp_path, 2)) == 2
    assert not (folder(tmp_path) / f"{3:020d}.parquet").exists()


@pytest.mark.full
@pytest.mark.parametrize("name", ["CRASH_AT", "MIRRORLAKE_CRASH_AT"])
def test_nothing_kills_the_program_that_is_installed(run: Run, tmp_path: Path, name: str) -> None:
    load(run)
    command = "publish orders.csv -t sales.orders --root zone --operation insert"
    subprocess.run(
        [sys.executable, "-m", "mirrorlake.cli.main", *command.split()],
        cwd=tmp_path,
        env=os.environ | {name: CrashPoint.BATCH_SEALED},
        check=True,
        timeout=500,
    )
    assert len(landed(tmp_path, 2)) == 2


def test_a_batch_that_will_never_come_is_given_up(run: Run, tmp_path: Path) -> None:
    load(run)
    state = json.loads((folder(tmp_path) / "_publisher.json").read_text())
    state["pending"] = {"batch": "x", "first": 2, "files": None, "columns": {}, "marked": False}
    (folder(tmp_path) / "_publisher.json").write_text(json.dumps(state))
    refused = publish(run, "orders.csv", "--operation", "upsert", "--batch", "y")
    assert (refused.code, "--give-up x" in refused.error) == (1, True)
    assert publish(run, "--give-up", "x").code == 0
    assert publish(run, "orders.csv", "--operation", "upsert", "--batch", "y").code == 0


class TestInitialRowsBesideOthers:
    def test_they_are_added_with_a_warning(self, run: Run, tmp_path: Path) -> None:
        assert "already had files" not in load(run).error
        again = load(run)
        assert again.code == 0
        assert "sales.orders already had files: these rows are added" in again.error
        assert len(landed(tmp_path, 2)) == 2

    def test_under_a_name_they_are_sent_once(self, run: Run, tmp_path: Path) -> None:
        for _ in range(2):
            assert "already had files" not in load(run, "--batch", "first").error
        assert not (folder(tmp_path) / f"{2:020d}.parquet").exists()
