"""`mirrorlake feed` and feeds in SQL, on tables made by hand, without a JVM."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirrorlake.model import types
from tests.cli.conftest import Run
from tests.feed.handmade_feed import DELETE, INSERT, UPDATE, FeedTable, time_of
from tests.histories import Shape
from tests.profiles import some


@pytest.fixture
def orders(tmp_path: Path) -> FeedTable:
    table = FeedTable(tmp_path / "shop/Tables/shop/orders")
    table.change((INSERT, (1, "new")), (INSERT, (2, 'a "b", [c]')), position="0/A:2")
    table.change((UPDATE, (1, None)), (DELETE, (2, None)), position="0/B:2")
    return table


def feed(run: Run, *arguments: str) -> Any:
    done = run("feed", "shop.orders", "--root", "shop", *arguments)
    assert done.code == 0, done.error
    return done


def shown_rows(run: Run, *arguments: str) -> list[tuple[Any, ...]]:
    lines = feed(run, "--json", *arguments).out.splitlines()
    return [tuple(json.loads(line).values())[:4] for line in lines]


ALL = [
    (1, "new", "insert", 1),
    (2, 'a "b", [c]', "insert", 1),
    (1, None, "update_postimage", 2),
    (1, "new", "update_preimage", 2),
    (2, 'a "b", [c]', "delete", 2),
]


@pytest.mark.clause("CF-077")
def test_it_prints_an_object_for_each_row(run: Run, orders: FeedTable) -> None:
    assert sorted(shown_rows(run, "--from", "beginning"), key=str) == sorted(ALL, key=str)
    assert "versions 0 to 2" in feed(run, "--from", "beginning").error
    times = {
        json.loads(x)["_commit_timestamp"]
        for x in feed(run, "--from", "2", "--json").out.splitlines()
    }
    assert times == {time_of(2).isoformat()}


def test_bounds_are_versions_times_and_positions(run: Run, orders: FeedTable) -> None:
    first = ["insert", "insert"]
    for start, end in (
        ("1", "1"),
        (f"{time_of(1):%F %T}", f"{time_of(1):%F %T}"),
        ("position:0/9", "position:0/A:2"),
    ):
        assert [row[2] for row in shown_rows(run, "--from", start, "--to", end)] == first
    refused = run("feed", "shop.orders", "--root", "shop")
    assert (refused.code, "start" in refused.error) == (2, True)
    refused = run("feed", "shop.orders", "--root", "shop", "--from", "2", "--to", "1")
    assert refused.code == 2


def test_keys_and_kinds_are_chosen(run: Run, orders: FeedTable) -> None:
    everything = ("--from", "0")
    assert {row[0] for row in shown_rows(run, *everything, "--key", "2")} == {2}
    assert len(shown_rows(run, *everything, "--key", "id=1")) == 3
    assert len(shown_rows(run, *everything, "--kind", "update")) == 2
    assert len(shown_rows(run, *everything, "--kind", "insert", "--kind", "delete")) == 3
    assert run("feed", "shop.orders", "--root", "shop", *everything, "--key", "x").code == 2


def test_an_update_is_one_line_with_old_and_new_value(run: Run, orders: FeedTable) -> None:
    lines = [line.split() for line in feed(run, "--from", "1").out.splitlines()]
    assert lines[0] == ["version", "time", "change", "id", "name"]
    changes = [(line[0], line[3], line[4:]) for line in lines[1:]]
    assert sorted(changes) == [
        ("1", "insert", ["1", "new"]),
        ("1", "insert", ["2", "a", '"b",', "[c]"]),
        ("2", "delete", ["2", "a", '"b",', "[c]"]),
        ("2", "update", ["1", "new", "→", "NULL"]),
    ]


@pytest.mark.clause("CF-077")
def test_csv_distinguishes_null_from_an_empty_text(run: Run, orders: FeedTable) -> None:
    orders.change((INSERT, (3, "")))
    out = feed(run, "--from", "1", "--csv").out
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["name"] for row in rows].count("") == 2
    assert ',"","insert"' in out
    assert out.count("_change_type") == 1


@pytest.mark.clause("CF-077")
def test_csv_has_a_header_without_rows_too(run: Run, orders: FeedTable) -> None:
    header = ['"id","name","_change_type","_commit_version","_commit_timestamp"']
    assert feed(run, "--from", "0", "--to", "0", "--csv").out.splitlines() == header
    assert feed(run, "--from", "3", "--csv").out.splitlines() == header
    assert feed(run, "--from", "0", "--to", "0", "--json").out == ""


@pytest.mark.clause("CF-077")
def test_it_writes_files(run: Run, orders: FeedTable, tmp_path: Path) -> None:
    feed(run, "--from", "1", "--parquet", "changes.parquet")
    feed(run, "--from", "1", "--arrow", "changes.arrow")
    parquet = pq.read_table(tmp_path / "changes.parquet")
    with pa.ipc.open_file(tmp_path / "changes.arrow") as file:
        assert file.read_all() == parquet
    assert parquet.num_rows == 5
    assert sorted(path.name for path in tmp_path.glob("*changes*")) == [
        "changes.arrow",
        "changes.parquet",
    ]
    wrong = ("--json", "--csv"), ("--follow", "--parquet", "x"), ("--follow", "--to", "3")
    for options in wrong:
        assert run("feed", "shop.orders", "--root", "shop", "--from", "0", *options).code == 2


@pytest.mark.parametrize("form", ["--parquet", "--arrow"])
@pytest.mark.parametrize(
    ("file", "reason"), [("nowhere/x", "No such file"), (".", "folder"), ("shop", "folder")]
)
def test_a_file_that_cannot_be_written_is_named(
    run: Run, orders: FeedTable, form: str, file: str, reason: str, tmp_path: Path
) -> None:
    done = run("feed", "shop.orders", "--root", "shop", "--from", "1", form, file)
    assert (done.code, reason in done.error) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["shop"]


@pytest.mark.clause("CF-174")
def test_columns_that_changed_are_united_or_refused_on_request(
    run: Run, orders: FeedTable, tmp_path: Path
) -> None:
    wider = (
        Shape.of(["id"], id=types.LONG, n=types.INTEGER),
        Shape.of(["id"], id=types.LONG, n=types.LONG),
    )
    table = FeedTable(tmp_path / "shop/Tables/shop/wider", wider[0].schema)
    table.change((INSERT, (1, 5)))
    table.describe(wider[1].schema)
    command = ["feed", "shop.wider", "--root", "shop", "--from", "1", "--parquet", "x"]
    refused = run(*command)
    assert (refused.code, "--on-schema-change unite" in refused.error) == (1, True)
    assert run(*command, "--on-schema-change", "error").code == 1
    assert run(*command, "--on-schema-change", "unite").code == 0
    assert pq.read_table(tmp_path / "x").schema.field("n").type == pa.int64()


def test_a_key_that_does_not_fit_its_column_is_told_in_our_words(
    run: Run, orders: FeedTable
) -> None:
    for command in (
        ["feed", "shop.orders", "--from", "beginning", "--key", "x"],
        ["trace", "shop.orders", "x"],
    ):
        done = run(*command, "--root", "shop")
        assert (done.code, done.out) == (2, "")
        assert "'x' is no value of the column id, which is a whole number" in done.error


def test_a_key_column_that_earlier_versions_lack_is_refused(run: Run, tmp_path: Path) -> None:
    key = {"mirrorlake.keyColumns": '["id", "label"]'}
    table = FeedTable(tmp_path / "shop/Tables/shop/orders", **key)
    table.change((INSERT, (1, "a")))
    table.describe(Shape.of(["id"], id=types.LONG, label=types.STRING).schema)
    command = ["feed", "shop.orders", "--root", "shop", "--key", "label=x"]
    done = run(*command, "--from", "1")
    assert (done.code, "label, which is no column of versions 1 to 1" in done.error) == (2, True)
    assert run(*command, "--from", "2").code == 0
    done = run("trace", "shop.orders", "id=1", "label=x", "--root", "shop")
    assert (done.code, "label, which is no column of version 1" in done.error) == (2, True)


def test_a_table_is_named_by_its_folder_too(run: Run, orders: FeedTable) -> None:
    done = run("feed", str(orders.path), "--from", "2", "--json")
    assert len(done.out.splitlines()) == 3
    unknown = run("feed", "shop.nothing", "--root", "shop", "--from", "0")
    assert (unknown.code, "shop.orders" in unknown.error) == (2, True)


def id_in(line: str) -> int:
    return int(json.loads(line)["id"] if line.startswith("{") else line.split()[4])


@pytest.mark.clause("CF-076")
@pytest.mark.parametrize("form", some([["--json"], []]), ids=["json", "table"])
def test_it_follows_a_table_with_less_than_a_second_of_delay(
    orders: FeedTable, tmp_path: Path, form: list[str]
) -> None:
    command = [sys.executable, "-m", "mirrorlake.cli.main", "feed", "shop.orders"]
    process = subprocess.Popen(
        [*command, "--root", "shop", "--follow", "--from", "1", "--kind", "insert", *form],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    lines = (line for line in process.stdout if not line.startswith("version"))
    try:
        assert sorted(id_in(next(lines)) for _ in range(2)) == [1, 2]
        waited = []
        for number in range(10, 15):
            orders.change((INSERT, (number, "x")))
            begin = time.monotonic()
            assert id_in(next(lines)) == number
            waited.append(time.monotonic() - begin)
        assert sorted(waited)[2] < 1
    finally:
        process.terminate()
        assert process.wait(10) == 0


@pytest.mark.full
@pytest.mark.parametrize(
    ("call", "rows"),
    [
        ("feed('shop.orders', 1, 1)", 2),
        ("feed('SHOP.orders', 'beginning')", 5),
        ("feed('shop.orders', 'position:0/A:2')", 3),
        ("feed('shop.orders', from_version := 0, on_gap => 'report') f -- feed('x')", 5),
        ("feed('shop.orders', 2, skip_unchanged := true, key := 'id')", 3),
        ("shop.orders, feed('shop.orders', 0, 99)", 5),
        ("(select 'feed(''x'')' as é) e, feed('shop.orders', 2) where é like 'feed%'", 3),
        ("feed( /* it's ) */ 'shop.orders' /* , */ , -- (\n 1 /* from */ , 2 /* ) */ )", 5),
        ("feed /**/ ('shop.orders', from_version /**/ := /**/ 1) -- feed(", 5),
    ],
)
def test_a_feed_is_a_table_in_sql(run: Run, orders: FeedTable, call: str, rows: int) -> None:
    done = run("sql", "--root", "shop", "--json", f"select count(*) as n from {call}")
    assert done.code == 0, done.error
    assert done.facts() == [{"n": rows}]


def test_an_error_in_the_middle_of_a_query_is_one_of_usage(run: Run, orders: FeedTable) -> None:
    done = run("sql", "--root", "shop", "select error('no ' || id) from shop.orders")
    assert (done.code, "no " in done.error) == (2, True)
    assert "Traceback" not in done.error


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("feed('shop.orders')", "start of the range is missing"),
        ("feed('shop.nothing', 1)", "shop.orders"),
        ("feed('shop.orders', id)", "constants"),
        ("feed('shop.orders', 1, excludeRegex := 'x')", "excluderegex"),
        ("feed('shop.orders', -1)", "not negative"),
        ("feed('shop.orders', 1", "parenthesis"),
        ("feed(1)", "name of a table"),
        ("feed('shop.orders', 1.5)", "whole numbers"),
        ("feed('shop.orders', 1, pair_updates := 'false')", "true or false"),
        ("feed('shop.orders', 1, key := 7)", "list of columns"),
        ("feed('shop.orders', 1, from_version := 2)", "from_version is given twice"),
        ("feed('shop.orders', 1, sort := true, sort := false)", "sort is given twice"),
    ],
)
def test_a_wrong_feed_is_refused(run: Run, orders: FeedTable, call: str, message: str) -> None:
    done = run("sql", "--root", "shop", f"select * from {call}")
    assert done.code == 2
    assert message in done.error


@pytest.mark.clause("CF-162", "CF-172")
def test_a_query_says_what_its_feeds_lack(run: Run, orders: FeedTable) -> None:
    def said(bounds: str) -> str:
        done = run("sql", "--root", "shop", f"select * from feed('shop.orders', {bounds})")
        assert done.code == 0, done.error
        return done.error

    assert said("1, 2") == ""
    assert said("1, 50") == "shop.orders: versions 1 to 2, where the table ends\n"
    orders.record(False)
    orders.change((INSERT, (7, "unseen")))
    orders.record(True)
    assert said("1, on_gap := 'report'").splitlines() == [
        "shop.orders: versions 1 to 5",
        "shop.orders: versions 3 to 4 are missing: not_recorded",
    ]


@pytest.mark.clause("CF-078")
def test_changes_are_published_as_a_landing_zone(
    run: Run, orders: FeedTable, tmp_path: Path
) -> None:
    command = ["feed", "shop.orders", "--root", "shop", "--as-landing-zone", "copy"]
    done = run(*command)
    assert (done.code, "snapshot 2: 1 rows" in done.error) == (0, True)
    orders.change((INSERT, (5, "e")))
    assert "version 3: 1 rows" in run(*command).error
    assert "nothing new" in run(*command).error
    assert len(list(tmp_path.glob("copy/Files/LandingZone/shop.schema/orders/*.parquet"))) == 2
    for wrong in (["--json"], ["--to", "3"], ["--key", "1"], ["--on-gap", "report"]):
        assert run(*command, *wrong).code == 2
