"""Delimited text that is found by time, from the metadata as the specification prints it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.app.zones import Zone

EXAMPLE_E = (
    '{ "keyColumns" : ["id"], "fileDetectionStrategy": LastUpdateTimeFileDetection, '
    '"isUpsertDefaultRowMarker": true }'
)


def land(zone: Zone, name: str, *lines: str, at: float) -> None:
    file = zone.folder("t") / name
    file.write_text("".join(f"{line}\r\n" for line in ("id,note", *lines)))
    os.utime(file, (at, at))


@pytest.fixture
def zone(tmp_path: Path) -> Zone:
    zone = Zone(tmp_path)
    zone.folder("t").mkdir(parents=True)
    (zone.folder("t") / "_metadata.json").write_text(EXAMPLE_E)
    return zone


@pytest.mark.clause("LZ-319", "LZ-049", "LZ-094", "LZ-124")
def test_texts_are_upserted_in_the_order_of_their_times(zone: Zone) -> None:
    land(zone, "b.csv", "1,hello", '2,"a, b"', at=1_000)
    land(zone, "a.csv", "2,changed", at=2_000)
    assert not zone.apply().errors
    assert sorted(zone.rows("t")) == [("1", "hello"), ("2", "changed")]


def test_a_text_is_applied_once_whatever_is_said_of_its_form_later(zone: Zone) -> None:
    land(zone, "a.csv", "1,hello", at=1_000)
    assert not zone.apply().errors
    described = EXAMPLE_E.replace("}", ', "FileFormatTypeProperties": {"NullValue": "hello"} }')
    (zone.folder("t") / "_metadata.json").write_text(described)
    land(zone, "b.csv", "2,hello", at=2_000)
    assert not zone.apply().errors
    assert sorted(zone.rows("t")) == [("1", "hello"), ("2", None)]
