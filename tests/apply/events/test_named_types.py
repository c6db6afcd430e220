"""Columns whose types are named in the settings."""

from __future__ import annotations

from dataclasses import replace
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
def test_a_column_that_is_widened_later_has_the_type_of_the_settings(
    tmp_path: Path, form: str
) -> None:
    """Without it, that of the first file: events with the wider one are dead letters."""

    def put(bucket: Bucket, name: str, kind: str, *events: dict[str, Any]) -> None:
        if form == "avro":
            bucket.put(f"{name}.avro").write_bytes(avro(events, v=kind))
        else:
            bucket.put(f"{name}.jsonl", *events)

    large = 2**40 if form == "avro" else 1.5
    wanted = types.LONG if form == "avro" else types.decimal(38, 9)

    def fill(bucket: Bucket) -> None:
        put(bucket, "a", "int", event(1, {"id": 1, "v": 1}))
        bucket.cycle()
        put(bucket, "b", "long", event(2, {"id": 2, "v": large}))
        bucket.cycle()

    bucket = Bucket(tmp_path)
    fill(bucket)
    assert [row["id"] for row in bucket.plain()] == [1]
    assert len(bucket.consumer()._journal.dead) == 1
    widened = Bucket(tmp_path / "widened", types={"public.orders": {"v": wanted}})
    fill(widened)
    assert [(row["id"], float(row["v"])) for row in widened.plain()] == [(1, 1.0), (2, large)]
    # One that was made with the type of its first file says what to do.
    bucket.settings = replace(bucket.settings, types=widened.settings.types)
    put(bucket, "c", "long", event(3, {"id": 3, "v": 3}))
    bucket.cycle(anew=True)
    error = bucket.errors["public.orders"]
    assert "in source.types" in error.what
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
