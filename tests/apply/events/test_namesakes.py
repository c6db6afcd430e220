"""Tables of one name, with a schema and without one: never an object in two tables in silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mirrorlake.apply.events.settings import EventInput
from mirrorlake.apply.in_process.runner import InProcessRunner
from mirrorlake.root import delta_path
from tests.apply.events.bucket import Bucket, event

SOURCES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "postgres-cdc-wal": ("schema", "table", {}),
    "mysql-cdc-binlog": ("database", "table", {"log_file": "bin.1"}),
    "salesforce-cdc": ("domain", "object_name", {}),
}


def of(
    method: str, number: int, namespace: str | None, named: str = "acme_account"
) -> dict[str, Any]:
    """An event of the row 1 of an object."""
    space, table, more = SOURCES[method]
    found = event(number, {"id": 1, "v": number}, read_method=method, object=named, **more)
    for name in ("schema", "table"):
        found["source_metadata"].pop(name)
    found["source_metadata"] |= {space: namespace, table: "account", "log_position": number}
    return found


@pytest.mark.clause("ST-037", "ST-092")
@pytest.mark.parametrize("method", SOURCES)
@pytest.mark.parametrize("named", ["acme_account", "account"])
def test_neither_the_object_nor_its_folder_tells_the_schema(
    tmp_path: Path, method: str, named: str
) -> None:
    """The same file in two folders is of one table."""
    bucket = Bucket(tmp_path)
    for folder in ("acme_account", "copy_account"):
        bucket.put("a.jsonl", of(method, 1, None, named), of=folder)
    bucket.cycle()
    assert not bucket.errors
    assert [table for table, _done in bucket.done] == [bucket.settings.table("", "account")]
    assert bucket.plain("account") == [{"id": 1, "v": 1}]


@pytest.mark.clause("ST-092")
@pytest.mark.parametrize(
    ("method", "dataset"), [*((method, None) for method in SOURCES), ("salesforce-cdc", "lake")]
)
@pytest.mark.parametrize("names", [(None, "acme"), ("acme", None)], ids=str)
@pytest.mark.parametrize("is_together", [True, False])
def test_a_second_table_of_what_may_be_one_object_stops(
    tmp_path: Path,
    method: str,
    names: tuple[str | None, ...],
    dataset: str | None,
    *,
    is_together: bool,
) -> None:
    bucket = Bucket(tmp_path, dataset=dataset)
    for number, namespace in enumerate(names, 1):
        bucket.put(f"{number}.jsonl", of(method, number, namespace), of="acme_account")
        if not is_together:
            bucket.cycle(anew=True)
    bucket.cycle()
    first, second = (bucket.settings.table(name or "", "account") for name in names)
    assert [table for table, _done in bucket.done] == [first]
    error = bucket.errors[str(second)]
    assert "one of the two names no schema, and may be the same" in error.what
    assert "mirrorlake reset" in error.hint
    # Its file is not taken as applied, and nothing is left of the table.
    assert len(bucket.consumer()._journal.files) == 1
    assert not (bucket.root / delta_path(second, None)).exists()


@pytest.mark.clause("ST-092")
def test_of_two_such_tables_that_are_prepared_at_once_one_stops(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.runner = InProcessRunner(2)
    for number, (folder, namespace) in enumerate({"x": None, "y": "acme"}.items(), 1):
        bucket.put("a.jsonl", of("mysql-cdc-binlog", number, namespace, "account"), of=folder)
    assert bucket.cycle() == 1
    assert len(bucket.done) == 1
    (error,) = bucket.errors.values()
    assert "may be the same" in error.what


@pytest.mark.clause("ST-092")
def test_objects_that_never_name_a_schema_are_tables_of_their_own(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", of("salesforce-cdc", 1, None, "account"), minute="")
    bucket.cycle()
    # Of another source, and of another table whose name has a dot.
    bucket.put("b.jsonl", of("mysql-cdc-binlog", 2, "acme", "account"), minute="")
    other = of("salesforce-cdc", 3, None, "acme.account")
    other["source_metadata"]["object_name"] = "acme.account"
    bucket.put("c.jsonl", other, minute="")
    bucket.cycle()
    assert not bucket.errors
    tables = sorted(str(table) for table, _done in bucket.done)
    assert tables == ["account", "acme.account", "acme_account"]


def test_a_table_without_a_schema_may_lie_in_the_dataset_of_another(tmp_path: Path) -> None:
    """The names of the tables differ: `acme_account` and `account` of `acme`."""
    settings = EventInput(tmp_path, dataset="lake")
    assert settings.table("", "acme_account") == settings.table("acme", "account")
