"""Folders and names of event files."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mirrorlake.events.envelope import LISTED
from mirrorlake.events.paths import (
    EventExtension,
    EventFileName,
    NameFacts,
    minute_folder,
    object_folder,
    object_name,
    schema_file,
)
from tests.profiles import tries

KEY = "491139293433ac07c1895612433c0d61c5265fdb"


@pytest.mark.clause("ST-164", "ST-166")
def test_a_folder_is_the_minute_of_the_change_in_utc() -> None:
    moment = datetime(2026, 1, 2, 0, 4, 59, tzinfo=timezone(timedelta(hours=2)))
    assert minute_folder("shop_orders", moment) == "shop_orders/2026/01/01/22/04"
    assert minute_folder("o", datetime(1, 1, 1, tzinfo=UTC)) == "o/0001/01/01/00/00"


@pytest.mark.clause("ST-165")
def test_an_object_is_named_by_schema_and_table() -> None:
    assert object_name("ea-main", "alltypes") == "ea-main_alltypes"
    assert object_name("", "orders") == "orders"


@settings(max_examples=tries(200))
@given(
    name=st.builds(
        EventFileName,
        schema_key=st.text("0123456789abcdef", min_size=40, max_size=40),
        read_method=st.sampled_from(LISTED),
        batch=st.integers(0),
        worker=st.integers(0),
        sequence=st.integers(0),
        extension=st.sampled_from(EventExtension),
    )
)
@pytest.mark.clause("ST-168", "ST-170")
def test_a_file_name_is_read_as_it_was_printed(name: EventFileName) -> None:
    assert EventFileName.parse(str(name)) == name
    assert str(name).startswith(f"{name.schema_key}_{name.read_method}_{name.batch}_")
    assert str(name).endswith((".avro", ".jsonl", ".jsonl.gz"))
    assert NameFacts.of(str(name)) == NameFacts(name.schema_key, "backfill" in name.read_method)


@pytest.mark.clause("ST-169", "ST-378")
@pytest.mark.parametrize(
    ("name", "is_backfill"),
    [
        (f"{KEY}_mysql-cdc-binlog_1296257282_6_0.avro", False),
        (f"{KEY}_postgresql-backfill_881162559_7_35668.jsonl.gz", True),
        (f"{KEY}_oracle-cdc-logminer_21989784_0_0", False),
    ],
)
def test_a_genuine_name_tells_its_schema_and_whether_it_is_of_a_backfill(
    name: str, is_backfill: bool
) -> None:
    assert NameFacts.of(name) == NameFacts(KEY, is_backfill)
    assert NameFacts.of("anything.avro") == NameFacts(None, False)


@pytest.mark.parametrize("name", ["", f"{KEY}_mysql-cdc-binlog_1_2.avro", "a_b_1_2_3.avro"])
def test_a_name_of_others_is_not_read_as_ours(name: str) -> None:
    with pytest.raises(ValueError, match="no name of an event file"):
        EventFileName.parse(name)


@settings(max_examples=tries(200))
@given(st.text(st.characters(codec="utf-8"), min_size=1))
@example("%" * 99)
@example("é/" * 200)
@example("_realtime_tenants")
@example(".hidden")
def test_no_object_leaves_its_folder(name: str) -> None:
    folder = object_folder(name)
    assert not re.search(r"[/\\\x00-\x1f]", folder)
    assert folder[0] not in "._"  # as listings skip names
    assert len(folder.encode()) <= 200
    if "%~" in folder:
        return
    decoded = bytearray()
    rest = folder.encode()
    while rest:
        if rest[:1] == b"%":
            decoded.append(int(rest[1:3], 16))
            rest = rest[3:]
        else:
            decoded += rest[:1]
            rest = rest[1:]
    assert decoded.decode() == name


def test_an_object_without_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="name"):
        object_folder("")


@pytest.mark.clause("ST-175")
def test_the_schema_stands_beside_the_files() -> None:
    folder = "o/2026/01/01/22/04"
    for end in (".jsonl", ".jsonl.gz"):
        assert schema_file(f"{KEY}_a_1_0_0{end}", folder) == f"{folder}/{KEY}_a_1_0_0.schema"
