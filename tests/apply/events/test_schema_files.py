"""Schema files beside event files of JSON, as the original names and as mirrorlake names them."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.apply.events.journal import ReadFile, letters_of
from mirrorlake.apply.events.reading import DeadLetter
from mirrorlake.events.paths import SchemaFiles
from tests.apply.events.bucket import MINUTE, Bucket, event
from tests.apply.events.test_widening import column_types, dead

KEY, OTHER = "a" * 40, "b" * 40
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
PAYLOAD = {
    "type": "record",
    "name": "payload",
    "fields": [
        {"name": "id", "type": ["null", "long"]},
        {"name": "price", "type": ["null", PRICE]},
    ],
}
EVENT = {"type": "record", "name": "o", "fields": [{"name": "payload", "type": PAYLOAD}]}


@pytest.mark.clause("ST-175", "ST-176")
@pytest.mark.parametrize("told", [EVENT, PAYLOAD], ids=["of events", "of payloads"])
@pytest.mark.parametrize(
    ("data", "schema"),
    [
        (f"{KEY}_a_1_2_0.jsonl", f"{KEY}_a_1_2_0.schema"),
        (f"{KEY}_a_1_2_0.jsonl.gz", f"{KEY}_a_1_2_0.schema"),
        (f"{KEY}_a_1_2_0.jsonl.gz", f"{KEY}_a_1_2_0.jsonl.gz.schema"),
        (f"{KEY}_a_1_2_0.jsonl", f"{KEY}_a_1_1_0.schema"),
        (f"{KEY}_a_1_2_0.jsonl", f"{KEY}.schema"),
        (f"{KEY}_a_1_2_0.jsonl", f"{KEY}.avsc"),
        ("data.json", "data.schema"),
    ],
)
def test_columns_have_the_types_of_the_schema_file(
    tmp_path: Path, data: str, schema: str, told: Any
) -> None:
    bucket = Bucket(tmp_path)
    folder = bucket.folder / "public_orders" / MINUTE
    folder.mkdir(parents=True)
    content = (json.dumps(event(1, {"id": 1, "price": 5})) + "\n").encode()
    (folder / data).write_bytes(gzip.compress(content) if data.endswith("gz") else content)
    (folder / schema).write_text(json.dumps(told, indent=1))
    assert bucket.cycle() == 1
    assert dead(bucket) == []
    assert column_types(bucket) == {"id": "long", "price": "decimal(9,2)"}
    assert bucket.plain() == [{"id": 1, "price": Decimal("5.00")}]


@pytest.mark.clause("ST-175")
def test_each_file_has_its_own_schema_file() -> None:
    names = [f"{KEY}_a_1_1_0.schema", f"{KEY}_a_1_2_0.schema", f"{OTHER}_a_1_1_0.jsonl.schema"]
    found = SchemaFiles.of([*names, f"{KEY}_a_1_1_0.jsonl"])
    assert found.find(f"{KEY}_a_1_1_0.jsonl") == names[0]
    assert found.find(f"{KEY}_a_1_2_0.jsonl.gz") == names[1]
    assert found.find(f"{KEY}_a_1_3_0.jsonl") in names[:2]
    assert found.find(f"{OTHER}_a_9_9_9.jsonl") == names[2]
    assert found.find(f"{'c' * 40}_a_1_1_0.jsonl") == ""
    both = SchemaFiles.of([f"{KEY}_a_1_1_0.schema", f"{KEY}.avsc"])
    assert both.find(f"{KEY}_a_1_2_0.jsonl") == f"{KEY}.avsc"


@pytest.mark.clause("ST-254")
def test_schema_files_that_were_taken_for_events_are_no_dead_letters(tmp_path: Path) -> None:
    """As an earlier release took those of the original."""
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", event(1, {"id": 1}))
    schema = bucket.put("a.schema", json.dumps(EVENT))
    bucket.cycle()
    path = schema.relative_to(bucket.folder).as_posix()
    letters = (DeadLetter(path, 0, "no event has a read_method that names its source"),)
    consumer = bucket.consumer()
    known = consumer._journal.files[path.replace("schema", "jsonl")]
    consumer._add_files([ReadFile(path, "e", known.minute, letters_of(letters), 0, known.time)], "")
    assert bucket.consumer().drop_gone() == [path]
    assert bucket.consumer()._journal.dead == []
