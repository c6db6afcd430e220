"""Names of tables that are made of events, and of their columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirrorlake.apply.events.columns import column_name
from mirrorlake.apply.events.settings import EventInput
from mirrorlake.model.table import TableId
from tests.apply.events.bucket import Bucket, event


@pytest.mark.clause("ST-241", "ST-245")
def test_names_of_tables_and_columns() -> None:
    each = EventInput(Path(), prefix="crm")
    assert each.table("my-db", "a.b$c") == TableId("crm_my_db", "a_b_c")
    assert EventInput(Path()).table("public", "orders") == TableId("public", "orders")
    one = EventInput(Path(), dataset="lake")
    assert one.table("public", "ord/ers") == TableId("lake", "public_ord_ers")
    assert column_name("a b-c") == "a_b_c"
    assert column_name("1st") == "_1st"


def test_columns_that_would_have_one_name_stop_the_table(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", event(1, {"id": 1, "a b": 1, "A-B": 2}))
    bucket.put("b.jsonl", event(1, {"id": 1, "Datastream_Metadata": 1}, table="own"))
    bucket.cycle()
    assert "would have one name" in bucket.errors["public.orders"].what
    assert "of the table's own" in bucket.errors["public.own"].what


@pytest.mark.parametrize("schemas", [(None, "sales"), ("sales", None)])
def test_of_two_tables_that_would_lie_inside_each_other_the_second_is_refused(
    tmp_path: Path, schemas: tuple[str | None, ...]
) -> None:
    bucket = Bucket(tmp_path)
    names = [(schema, "orders" if schema else "sales") for schema in schemas]
    for number, (schema, table) in enumerate(names):
        one = event(1, {"id": 1}, schema=schema, table=table)
        bucket.put(f"{number}.jsonl", one)
        bucket.cycle()
    second = ".".join(filter(None, names[1]))
    assert list(bucket.errors) == [second]
    assert bucket.errors[second].code == "nested_tables"


def test_two_tables_that_would_have_one_name_are_never_one(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, dataset="x", keys={"a.b.c": ("id",)})
    bucket.put("a.jsonl", event(1, {"id": 1}, key=(), schema="a", table="b.c"))
    bucket.cycle()
    bucket.put("b.jsonl", event(2, {"id": 1}, key=(), schema="a.b", table="c"))
    bucket.cycle()
    assert 'events of "a.b".c and of a.b.c would be in one table' in bucket.errors["x.a_b_c"].what


def test_a_table_whose_name_is_too_long_stops_alone(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    long = event(1, {"id": 1}, schema="s" * 200, table="t" * 200)
    bucket.put("a.jsonl", event(1, {"id": 1}, table="x" * 300), event(1, {"id": 1}), long)
    bucket.cycle()
    (error,) = bucket.errors.values()
    assert "300 bytes, more than 255" in error.what
    assert bucket.plain() == bucket.plain(f"{'s' * 200}/{'t' * 200}") == [{"id": 1}]
