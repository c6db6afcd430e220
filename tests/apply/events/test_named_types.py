"""Columns whose types are named in the settings."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from mirrorlake import config
from mirrorlake.errors import ConfigError
from mirrorlake.events import types
from tests.apply.events.bucket import Bucket, event
from tests.apply.events.genuine import avro


@pytest.mark.clause("ST-262")
@pytest.mark.parametrize("form", ["avro", "json"])
def test_a_column_has_the_type_of_the_settings_and_gets_no_wider_one(
    tmp_path: Path, form: str
) -> None:
    """Files of JSON do not tell types: without the settings, a column has that of the first file,
    and numbers with an exponent are dead letters."""
    large = 2**40 if form == "avro" else 2.5e-5
    wanted = types.LONG if form == "avro" else types.decimal(38, 9)

    def put(bucket: Bucket, name: str, kind: Any, value: Any) -> None:
        number = ord(name)
        events = [event(number - 96, {"id": number - 96, "v": value})]
        if form == "avro":
            bucket.put(f"{name}.avro").write_bytes(avro(events, v=kind))
        else:
            bucket.put(f"{name}.jsonl", *events)
        bucket.cycle()

    def dead(bucket: Bucket) -> int:
        return len(bucket.consumer()._journal.dead)

    bucket = Bucket(tmp_path)
    put(bucket, "a", "int", 1)
    put(bucket, "b", "long", large)
    assert dead(bucket) == (form == "json")
    named = Bucket(tmp_path / "named", types={"public.orders": {"v": wanted}})
    put(named, "a", "int", 1)
    put(named, "b", "long", large)
    assert [(row["id"], float(row["v"])) for row in named.plain()] == [(1, 1.0), (2, large)]
    price = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 1}
    put(named, "c", price, Decimal("0.5") if form == "avro" else 2.5e-11)
    assert dead(named) == 1
    # A column gets a wider type that is named later, from the next events on.
    bucket.settings = replace(bucket.settings, types=named.settings.types)
    bucket.cycle(anew=True)
    put(bucket, "d", "long", 4)
    assert not bucket.errors
    bucket.consumer().replay()
    assert [(row["id"], float(row["v"])) for row in bucket.plain()] == [
        (1, 1.0),
        (2, large),
        (4, 4.0),
    ]
    assert dead(bucket) == 0
    # One that is no wider stops the table, and says what to do.
    narrow = {"public.orders": {"v": types.INTEGER}}
    bucket.settings = replace(bucket.settings, types=narrow)
    bucket.cycle(anew=True)
    put(bucket, "e", "int", 5)
    error = bucket.errors["public.orders"]
    assert f"its column v is {wanted}, and INTEGER in source.types" in error.what
    assert "mirrorlake reset public.orders" in error.hint


def test_json_is_read_as_the_type_of_the_settings(tmp_path: Path) -> None:
    """STRING keeps whatever comes, from the first file on."""
    bucket = Bucket(tmp_path, types={"public.orders": {"v": types.STRING}})
    bucket.put("a.jsonl", event(1, {"id": 1, "v": 1}))
    bucket.put("b.jsonl", event(2, {"id": 2, "v": "two"}))
    bucket.cycle()
    assert bucket.plain() == [{"id": 1, "v": "1"}, {"id": 2, "v": "two"}]
    assert bucket.consumer()._journal.dead == []


def test_types_are_those_of_events_in_the_project_file(tmp_path: Path) -> None:
    file = tmp_path / "mirrorlake.yaml"

    def events(kind: str) -> Any:
        file.write_text(
            "name: shop\nroot: ./lake\nsource:\n  type: events\n  url: ./bucket\n"
            f"  types: {{public.orders: {{v: '{kind}'}}}}\n"
        )
        return config.load(file).events

    kinds = {"LONG": types.LONG, "decimal(38, 9)": types.decimal(38, 9)}
    for kind, parsed in kinds.items():
        assert events(kind).types == {"public.orders": {"v": parsed}}
    for kind in ("bigint", "DECIMAL", "DECIMAL(9,38)", "UNSUPPORTED", ""):
        with pytest.raises(ConfigError, match="no type of a column of events") as error:
            events(kind)
        assert "source.types, public.orders.v" in str(error.value)
