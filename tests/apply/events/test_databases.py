"""Tables of one schema and name in two databases: their rows are never merged in silence."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.apply.events.remembered.state import FOLDER
from mirrorlake.model.table import TableId
from tests.apply.events.bucket import Bucket, event

TABLE, NAME = "dbo/orders", "dbo.orders"
WHY = "events of dbo.orders in the databases crm and shop would be in one table"
POSITIONS = {
    "sqlserver-cdc": lambda number: {"lsn": f"00000024:00000a28:{number:04x}"},
    "oracle-cdc-logminer": lambda number: {"scn": number, "rs_id": "", "ssn": 0, "lsn": None},
}
METHODS = pytest.mark.parametrize("method", POSITIONS)


def of(database: str | None, number: int, method: str = "sqlserver-cdc") -> dict[str, Any]:
    """An event of the row 1 in a database, which may not be named."""
    names = {"database": database, "schema": "dbo", "table": "orders"}
    value = {"id": 1, "v": number}
    return event(number, value, read_method=method, **names, **POSITIONS[method](number))


def value(bucket: Bucket) -> int:
    (row,) = bucket.plain(TABLE)
    return int(row["v"])


@METHODS
@pytest.mark.parametrize("is_append", [False, True])
def test_events_of_another_database_stop_the_table_in_any_later_run(
    tmp_path: Path, method: str, *, is_append: bool
) -> None:
    bucket = Bucket(tmp_path, is_append=is_append)
    bucket.put("a.jsonl", of("shop", 1, method))
    bucket.cycle()
    bucket.put("b.jsonl", of("crm", 2, method), of=method)
    bucket.cycle(anew=True)
    assert bucket.errors[NAME].what == WHY
    assert "source.path" in str(bucket.errors[NAME].hint)
    assert value(bucket) == 1
    bucket.put("c.jsonl", of("shop", 3, method))
    bucket.cycle()
    found = sorted(row["v"] for row in bucket.plain(TABLE))
    assert found == ([1, 3] if is_append else [3])
    assert bucket.errors[NAME].what == WHY


@METHODS
@pytest.mark.parametrize("is_one_file", [True, False])
def test_two_databases_are_not_merged_when_they_come_together(
    tmp_path: Path, method: str, *, is_one_file: bool
) -> None:
    bucket = Bucket(tmp_path)
    both = [of("shop", 1, method), of(None, 2, method), of("crm", 3, method)]
    if is_one_file:
        bucket.put("a.jsonl", *both)
    else:
        for number, one in enumerate(both):
            bucket.put(f"{number}.jsonl", one)
    bucket.cycle()
    assert bucket.errors[NAME].what == WHY


@pytest.mark.parametrize("order", sorted(set(permutations([None, "shop", None])), key=str), ids=str)
@pytest.mark.parametrize("is_together", [True, False])
def test_an_event_that_names_no_database_is_of_any(
    tmp_path: Path, order: tuple[str | None, ...], *, is_together: bool
) -> None:
    """As genuine files of Oracle have it: only some of the events name their database."""
    bucket = Bucket(tmp_path)
    for number, database in enumerate(order, 1):
        bucket.put(f"{number}.jsonl", of(database, number))
        if not is_together:
            bucket.cycle(anew=True)
    bucket.cycle()
    assert not bucket.errors
    assert value(bucket) == 3
    bucket.put("z.jsonl", of("crm", 9))
    bucket.cycle(anew=True)
    assert bucket.errors[NAME].what == WHY
    assert value(bucket) == 3


def test_a_table_of_an_earlier_release_is_of_the_first_database_that_it_gets(
    tmp_path: Path,
) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", of("shop", 1))
    bucket.cycle()
    (record,) = (bucket.root / FOLDER / "tables").glob("*/0*.json")
    said = json.loads(record.read_text())
    assert said.pop("database") == "shop"
    record.write_text(json.dumps(said))
    bucket.put("b.jsonl", of("crm", 2))
    bucket.cycle(anew=True)
    assert not bucket.errors
    bucket.put("c.jsonl", of("shop", 3))
    bucket.cycle(anew=True)
    assert bucket.errors[NAME].what == WHY
    assert value(bucket) == 2


def test_the_database_is_remembered_when_the_state_is_computed_anew(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", of("shop", 1))
    bucket.cycle()
    for record in (bucket.root / FOLDER / "tables").glob("*/0*.json"):
        record.write_text("damaged")
    bucket.consumer().rebuild(TableId("dbo", "orders"))
    bucket.put("b.jsonl", of("crm", 2))
    bucket.cycle(anew=True)
    assert bucket.errors[NAME].what == WHY
    assert value(bucket) == 1
