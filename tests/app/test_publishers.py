"""Random publishers: whatever they land that the specification allows, the table is that of the
model, which applies the rows one after another."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.app.zones import MARKER, Zone
from tests.delta.handmade import HandmadeTable
from tests.doubles.handmade_engine import HandmadeReader
from tests.histories import counted
from tests.reference import Change, Table

UNIVERSE: dict[str, tuple[pa.DataType, list[Any]]] = {
    "id": (pa.int64(), [1, 2, 3, None]),
    "name": (pa.string(), ["a", "", None]),
    "amount": (pa.float64(), [0.5, -0.0, None]),
    "note b": (pa.string(), ["x", None]),  # a name that needs column mapping
    "flag": (pa.bool_(), [True, None]),
}
NAMES = list(UNIVERSE)


@dataclass(frozen=True)
class File:
    """A landed file. columns: in their order, each as it is spelt here; marker: its type, None
    without one; place: of the marker among the columns; rows: markers and rows of the universe."""

    columns: tuple[tuple[str, str], ...]
    marker: pa.DataType | None
    location: int
    rows: tuple[tuple[int, tuple[Any, ...]], ...]

    def arrow(self) -> pa.Table:
        data = pa.table(
            {
                spelt: pa.array(
                    [row[NAMES.index(name)] for _m, row in self.rows], UNIVERSE[name][0]
                )
                for name, spelt in self.columns
            }
        )
        if self.marker is None:
            return data
        markers = [str(m) if self.marker == pa.string() else m for m, _row in self.rows]
        return data.add_column(self.location, MARKER, pa.array(markers, self.marker))

    def changes(self, default: int) -> list[Change]:
        """The rows as they act: NULL in every column that the file lacks (LZ-214)."""
        present = {name for name, _spelt in self.columns}
        return [
            Change(
                default if self.marker is None else marker,
                tuple(v if n in present else None for n, v in zip(NAMES, row, strict=True)),
            )
            for marker, row in self.rows
        ]


@dataclass(frozen=True)
class Publication:
    """What a publisher does. order: in which the files become visible; applies: after how many of
    them the mirror looks, each time anew; upsert: isUpsertDefaultRowMarker."""

    files: tuple[File, ...]
    order: tuple[int, ...]
    applies: tuple[int, ...]
    upsert: bool


@st.composite
def publications(draw: st.DrawFn) -> Publication:
    files = tuple(draw(st.lists(landed_files(), min_size=1, max_size=6)))
    order = draw(st.permutations(range(len(files))))
    applies = draw(st.lists(st.integers(1, len(files)), max_size=3))
    return Publication(
        files, tuple(order), (*sorted(set(applies)), len(files)), draw(st.booleans())
    )


@st.composite
def landed_files(draw: st.DrawFn) -> File:
    names = ["id", *draw(st.sets(st.sampled_from(NAMES[1:])))]
    spelt = [draw(st.sampled_from([name, name, name.upper()])) for name in names]
    columns = draw(st.permutations(list(zip(names, spelt, strict=True))))
    marker = draw(st.sampled_from([None, pa.int8(), pa.int32(), pa.int64(), pa.string()]))
    row = st.tuples(*(st.sampled_from(values) for _kind, values in UNIVERSE.values()))
    rows = draw(st.lists(st.tuples(st.sampled_from([0, 1, 2, 4]), row), max_size=5))
    return File(tuple(columns), marker, draw(st.integers(0, len(columns))), tuple(rows))


def model(files: Sequence[File], default: int) -> tuple[list[tuple[str, str]], Table]:
    """The columns with their first spelling, in that order, and the rows of the universe."""
    seen: dict[str, str] = {}
    table = Table((0,))
    for file in files:
        for name, spelt in file.columns:
            seen.setdefault(name, spelt)
        table.apply(file.changes(default))
    return list(seen.items()), table


@pytest.mark.clause("LZ-076", "LZ-091", "LZ-094", "LZ-096", "LZ-097", "LZ-104", "LZ-110", "LZ-116")
@pytest.mark.clause("LZ-117", "LZ-130", "LZ-211", "LZ-213", "LZ-214", "LZ-215", "LZ-227", "LZ-258")
@given(publications())
def test_a_table_is_what_its_publisher_meant(publication: Publication) -> None:
    with tempfile.TemporaryDirectory() as folder:
        zone = Zone(Path(folder, "root"))
        zone.table("t", "id")
        metadata = {"keyColumns": ["id"], "isUpsertDefaultRowMarker": publication.upsert}
        (zone.folder("t") / "_metadata.json").write_text(json.dumps(metadata))
        visible: set[int] = set()
        for count, number in enumerate(publication.order, start=1):
            path = zone.folder("t") / f"{number + 1:020d}.parquet"
            pq.write_table(publication.files[number].arrow(), path)
            visible.add(number)
            if count in publication.applies:
                zone.apply()
                check(zone, publication, applicable(visible))


def applicable(visible: set[int]) -> int:
    """How many files stand before the first gap."""
    return next(number for number in range(len(visible) + 1) if number not in visible)


def check(zone: Zone, publication: Publication, applied: int) -> None:
    """The table holds what the first files make, and its feed leads there."""
    location = zone.root / "Tables/s/t"
    if not applied:
        assert not location.exists()
        return
    columns, expected = model(publication.files[:applied], 4 if publication.upsert else 0)
    table = HandmadeTable(location)
    assert table.schema.schema.names == [spelt for _name, spelt in columns]
    locations = [NAMES.index(name) for name, _spelt in columns]
    rows = counted(tuple(row[p] for p in locations) for row in expected.rows)
    assert counted(table.rows()) == rows
    replayed: Counter[Any] = Counter()
    for feed in HandmadeReader(zone.store).feed("Tables/s/t").values():
        for (kind, row), count in feed.items():
            replayed[row] += count if kind in {"insert", "update_postimage"} else -count
    assert +replayed == rows
    assert min(replayed.values(), default=0) >= 0
