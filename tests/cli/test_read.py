"""Looking at tables without Spark: their list, and all rows of one as a file."""

from __future__ import annotations

import csv
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirrorlake.errors import tables_like
from tests.cli.conftest import Run

ROWS = pa.table({"id": [1, 2], "note": ['a "quoted", text', None]})


@pytest.fixture(autouse=True)
def tables(tmp_path: Path) -> None:
    for path in ("sales/odd~20name", "sales/orders", "people"):
        deltalake.write_deltalake(tmp_path / "shop/Tables" / path, ROWS)


@pytest.mark.parametrize("query", ["show tables", "SHOW ALL TABLES;", " show\ntables "])
def test_the_tables_are_listed_by_the_names_that_a_query_uses(run: Run, query: str) -> None:
    found = run("sql", query, "--root", "shop", "--json").facts()
    assert [table["table"] for table in found] == ["people", "sales.odd name", "sales.orders"]
    assert found[0]["path"].endswith("shop/Tables/people")


def test_without_tables_the_list_is_empty(run: Run, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    assert run("sql", "show tables", "--root", "new", "--json").facts() == []


@pytest.mark.full
@pytest.mark.parametrize("table", ["people", "sales.orders", "sales.odd name"])
def test_all_rows_of_a_table_become_a_file(run: Run, tmp_path: Path, table: str) -> None:
    for form in ("parquet", "csv", "arrow"):
        (tmp_path / f"rows.{form}").write_text("older")
        done = run("read", table, "--root", "shop", f"--{form}", f"rows.{form}")
        assert done.code == 0
    assert pq.read_table(tmp_path / "rows.parquet").to_pylist() == ROWS.to_pylist()
    with pa.ipc.open_file(tmp_path / "rows.arrow") as found:
        assert found.read_all().to_pylist() == ROWS.to_pylist()
    with (tmp_path / "rows.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [["id", "note"], ["1", 'a "quoted", text'], ["2", ""]]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "rows.arrow",
        "rows.csv",
        "rows.parquet",
        "shop",
    ]


@pytest.mark.parametrize("form", ["--parquet", "--csv", "--arrow"])
def test_a_folder_that_is_not_there_is_named(run: Run, form: str) -> None:
    done = run("read", "people", "--root", "shop", form, "nowhere/file")
    assert done.code == 2
    assert "nowhere/file" in done.error
    done = run("read", "people", "--root", "shop", form, ".")
    assert (done.code, "it is a folder" in done.error) == (2, True)


def test_wrong_use_is_refused(run: Run, tmp_path: Path) -> None:
    assert run("read", "people", "--root", "shop").code == 2
    assert run("read", "people", "--root", "shop", "--csv", "a", "--arrow", "b").code == 2
    done = run("read", "nobody", "--root", "shop", "--csv", "a")
    assert done.code == 2
    assert "The tables are: people, sales.odd name, sales.orders." in done.error
    assert [path.name for path in tmp_path.iterdir()] == ["shop"]


@pytest.mark.parametrize("query", ["", "  ", "/* nothing */", "-- nothing", ";"])
def test_a_query_without_a_statement_is_refused(run: Run, query: str) -> None:
    done = run("sql", "--root", "shop", "--", query)
    assert (done.code, done.out) == (2, "")
    assert "the query contains no statement" in done.error


def test_a_query_that_is_not_utf_8_is_refused(run: Run) -> None:
    done = run("sql", "select '\udcff'", "--root", "shop")
    assert (done.code, "the query is not UTF-8" in done.error) == (2, True)


def test_a_name_of_a_table_that_is_not_utf_8_is_refused(run: Run) -> None:
    for command in (
        ["read", "sales.\udcff", "--csv", "rows.csv"],
        ["publish", "rows.csv", "--table", "sales.\udcff", "--key", "id"],
    ):
        done = run(*command, "--root", "shop")
        assert (done.code, "the name of the table is not UTF-8" in done.error) == (2, True)


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        ("select * from order", "The dialect is that of DuckDB."),
        ("select * from ordrs", "The tables are: sales.orders, people, sales.odd name."),
        ('select * from "Sales.Oders"', "The tables are: sales.orders, "),
        ("select * from gone.people", "The tables are: people, sales.odd name, sales.orders."),
        ("select * from feed('sale.orders')", "The tables are: sales.orders, "),
        ("select idd from people", 'Near to it are: "id"'),
        ("select nofunction(1)", "The dialect is that of DuckDB."),
    ],
)
def test_the_tables_are_named_where_one_is_not_known(run: Run, query: str, hint: str) -> None:
    done = run("sql", query, "--root", "shop")
    assert (done.code, done.out) == (2, "")
    assert hint in done.error
    assert ("The tables are" in done.error) == ("The tables are" in hint)


def test_at_most_ten_tables_are_named_those_of_like_names_first() -> None:
    names = [f"public.t{number:04}" for number in range(2_000)]
    said = tables_like("Public.Oders", [*names, "shop.orders", "public.orders"])
    first = "The tables are: public.orders, shop.orders, public.t0000, "
    assert said.startswith(first)
    assert said.endswith("public.t0007, and 1,992 more.")
    assert tables_like("orders", [], "none yet") == "The tables are: none yet."


def test_values_in_json_are_those_of_a_feed(run: Run) -> None:
    query = """select 'nan'::double as x, '\\xFF'::blob as x, 1.50::decimal(9, 2) as x,
        timestamptz '2026-01-02 03:04:05+00' as at, [{'t': time '01:00'}] as l"""
    (row,) = run("sql", query, "--root", "shop", "--json").facts()
    assert row == {
        "x": "nan",
        "x_1": "/w==",
        "x_2": "1.50",
        "at": "2026-01-02T03:04:05+00:00",
        "l": [{"t": "01:00:00"}],
    }
