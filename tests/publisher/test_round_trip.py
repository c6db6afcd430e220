"""What a publisher writes, the mirror reads to the same rows (LZ-327)."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mirrorlake.model.arrow import arrow_type
from tests.doubles.memory_store import Crash, crash_at
from tests.histories import SHAPES, VALUES, Shape, counted
from tests.publisher.mirrored_zone import Zone
from tests.reference import Change, Row

CODES = {"insert": 0, "update": 1, "delete": 2, "upsert": 4}


@dataclass(frozen=True)
class Sent:
    """A batch as a publisher's user has it: rows, what each does, the earlier values of its key."""

    name: str
    operations: tuple[str, ...]
    rows: tuple[Row, ...]
    earlier: tuple[Row | None, ...]

    def table(self, shape: Shape) -> pa.Table:
        table = shape.arrow(self.rows).append_column("op", pa.array(self.operations, pa.string()))
        for index, name in enumerate(shape.key):
            values = [None if old is None else old[index] for old in self.earlier]
            kind = arrow_type(shape.schema[name].type)
            table = table.append_column(f"was {name}", pa.array(values, kind))
        return table

    def changes(self, shape: Shape) -> list[Change]:
        """The meaning of the rows, by the specification."""
        found = []
        for operation, row, old in zip(self.operations, self.rows, self.earlier, strict=True):
            key = tuple(row[index] for index in shape.indexes)
            moved = old is not None and tuple(
                new if was is None else was for was, new in zip(old, key, strict=True)
            )
            if operation in {"update", "upsert"} and moved and _differ(moved, key):
                gone: list[Any] = [None] * len(row)
                for index, value in zip(shape.indexes, moved, strict=True):
                    gone[index] = value
                found += [Change(2, tuple(gone)), Change(0, row)]
            else:
                found.append(Change(CODES[operation], row))
        return found


def _differ(one: Row, other: Row) -> bool:
    return any(a is not None and a != b for a, b in zip(one, other, strict=True))


@dataclass(frozen=True)
class Script:
    """What a publisher is told: initial rows, then batches; how it writes; when the mirror runs."""

    shape: Shape
    load: tuple[Row, ...]
    batches: tuple[Sent, ...]
    layout: str = "v2"
    codec: str = "snappy"
    file_bytes: int = 1 << 20
    mirrored_after: frozenset[int] = field(default_factory=frozenset)

    def expected(self) -> Counter[Row]:
        table = self.shape.table()
        table.apply([Change(0, row) for row in self.load])
        for batch in self.batches:
            table.apply(batch.changes(self.shape))
        return counted(table.rows)

    def run(self, zone: Zone, *, mirrored: bool = True) -> None:
        with zone.publisher(codec=self.codec, file_bytes=self.file_bytes) as publisher:
            publisher.load(
                "s.t",
                self.shape.arrow(self.load),
                key=self.shape.key,
                layout=self.layout,
                batch="load",
            )
        previous = {name: f"was {name}" for name in self.shape.key}
        for number, batch in enumerate(self.batches):
            with zone.publisher(codec=self.codec, file_bytes=self.file_bytes) as publisher:
                publisher.publish(
                    "s.t",
                    batch.table(self.shape),
                    marker_column="op",
                    previous_key=previous,
                    batch=batch.name,
                )
            if mirrored and number in self.mirrored_after:
                zone.mirrored("s.t")


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    shape = draw(st.sampled_from([s for name, s in SHAPES.items() if name != "floats"]))
    row = st.tuples(*(st.sampled_from(VALUES[c.type.name]) for c in shape.schema))
    key = st.tuples(*(st.sampled_from(VALUES[shape.schema[k].type.name]) for k in shape.key))
    batches = []
    for number in range(draw(st.integers(0, 3))):
        rows = draw(st.lists(row, min_size=1, max_size=5))
        operations = draw(
            st.lists(st.sampled_from(list(CODES)), min_size=len(rows), max_size=len(rows))
        )
        earlier = draw(st.lists(st.none() | key, min_size=len(rows), max_size=len(rows)))
        batches.append(Sent(f"b{number}", tuple(operations), tuple(rows), tuple(earlier)))
    return Script(
        shape,
        tuple(draw(st.lists(row, max_size=5))),
        tuple(batches),
        draw(st.sampled_from(["v2", "v1"])),
        draw(st.sampled_from(["none", "snappy", "gzip", "zstd"])),
        draw(st.sampled_from([1, 1 << 20])),
        frozenset(draw(st.sets(st.integers(0, 2)))),
    )


def _is_plain(script: Script) -> bool:
    """NaN is no value that another equals, so that whether such a key changed is not asked here."""
    keys = [old for batch in script.batches for old in batch.earlier if old]
    keys += [tuple(row[p] for p in script.shape.indexes) for b in script.batches for row in b.rows]
    return all(repr(value) not in {"nan", "-0.0"} for key in keys for value in key)


@pytest.mark.clause("LZ-327", "LZ-096", "LZ-097")
@settings(max_examples=settings.default.max_examples // 4)
@given(scripts().filter(_is_plain))
@example(Script(SHAPES["long"], (), ()))
def test_the_mirror_has_the_rows_that_were_published(script: Script) -> None:
    zone = Zone()
    script.run(zone)
    assert counted(zone.mirrored("s.t").table.rows) == script.expected()


@pytest.mark.clause("LZ-327", "LZ-135", "LZ-136")
@settings(max_examples=settings.default.max_examples // 4)
@given(scripts().filter(_is_plain), st.integers(1, 120), st.integers(1, 120))
def test_it_has_them_through_crashes_and_repeats(script: Script, first: int, second: int) -> None:
    zone = Zone()
    for step in (first, second):
        zone.store = zone.store.reopened(crash_at(step))
        with suppress(Crash):
            script.run(zone, mirrored=False)
        zone.store = zone.store.reopened()
        zone.clock.advance(60)
    script.run(zone)
    assert counted(zone.mirrored("s.t").table.rows) == script.expected()


@pytest.mark.clause("LZ-327", "LZ-070", "LZ-072", "LZ-073")
@settings(max_examples=settings.default.max_examples // 4)
@given(scripts().filter(_is_plain))
def test_every_file_follows_the_rules_of_publication(script: Script) -> None:
    """LZ-029, LZ-072 or LZ-070, LZ-093 or LZ-090, LZ-111 to LZ-114, of whatever is written."""
    zone = Zone()
    script.run(zone, mirrored=False)
    assert zone.metadata("s.t")["keyColumns"] == list(script.shape.key)
    assert zone.numbers("s.t") == list(range(1, len(zone.numbers("s.t")) + 1))
    loaded = len(script.load)
    for number in zone.numbers("s.t"):
        names = zone.file("s.t", number).column_names
        assert [name for name in names if name != "__rowMarker__"] == script.shape.schema.names
        if script.layout == "v1":
            assert names[0] == "__rowMarker__"
        elif number == 1 and loaded:
            assert "__rowMarker__" not in names
        elif number > 1 and "__rowMarker__" in names:
            assert names[-1] == "__rowMarker__"
