"""The golden examples A and B, one file per row and each file in a commit of its own."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from mirrorlake.mirror.batch_limits import BatchLimits
from mirrorlake.mirror.settings import MirrorSettings
from tests.app.zones import MARKER, Zone
from tests.mirror.test_golden import KEY, ROWS_A, ROWS_B, SCHEMA, A, B, Change

OTHER = SCHEMA.names[1]


def write(zone: Zone, number: int, change: Change, *, form: str, first: bool, text: bool) -> None:
    marker, identity, location = change
    row: dict[str, Any] = {KEY: identity, OTHER: location}
    told = {MARKER: str(marker) if text else marker}
    row = told | row if first else row | told
    if form == "parquet":
        kinds = {name: pa.string() for name in row} | ({} if text else {MARKER: pa.int32()})
        zone.land("t", number, {name: pa.array([v], kinds[name]) for name, v in row.items()})
        return
    plain = {name: "" if value is None else str(value) for name, value in row.items()}
    fields = [f'"{v}"' if text and name == MARKER else v for name, v in plain.items()]
    content = f"{','.join(row)}\r\n{','.join(fields)}\r\n"
    (zone.folder("t") / f"{number:020d}.csv").write_text(content, newline="")


@pytest.mark.clause("LZ-314", "LZ-315", "LZ-316")
@pytest.mark.parametrize(("changes", "expected"), [(A, ROWS_A), (B, ROWS_B)], ids=["A", "B"])
@pytest.mark.parametrize("form", ["parquet", "csv"])
@pytest.mark.parametrize(("first", "text"), list(itertools.product([True, False], repeat=2)))
def test_the_rows_of_the_example(
    tmp_path: Path,
    changes: Sequence[Change],
    expected: list[tuple[str, str]],
    form: str,
    first: bool,
    text: bool,
) -> None:
    zone = Zone(tmp_path / "root", settings=MirrorSettings(limits=BatchLimits(files=1)))
    zone.table("t", KEY)
    for number, change in enumerate(changes, start=1):
        write(zone, number, change, form=form, first=first, text=text)
    report = zone.apply()
    assert not report.errors
    assert next(iter(report.tables.values())).commits == len(changes)
    assert zone.rows("t") == expected
