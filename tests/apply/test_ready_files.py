"""Files of a load become data files as they are, where nothing speaks against it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mirrorlake.apply.task import ready_files
from mirrorlake.capture.landing.files.load_files import LoadFiles
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.delta.schema import MAPPING
from mirrorlake.mirror.engine import Applied, Failed
from mirrorlake.mirror.row_checks import RowChecks
from mirrorlake.model import types
from mirrorlake.model.change import Marker
from mirrorlake.model.landed import Checksum, FileKind, Footer
from mirrorlake.model.position import Lsn, Position
from mirrorlake.model.table import Column, Schema
from mirrorlake.storage.local import LocalStore
from tests.conformance.mirrored import Mirrored
from tests.doubles.handmade_engine import HandmadeReader, by_plain_columns, in_process_engine
from tests.histories import SHAPES, VALUES, Shape
from tests.profiles import tries
from tests.reference import plain

SHAPE = Shape.of(["id"], id=types.LONG, v=types.STRING)
ROWS = [(n, f"text {n % 7}") for n in range(500)]


@pytest.fixture(autouse=True)
def of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ready_files, "MIN_BYTES", 0)


@pytest.fixture
def orders(store: LocalStore) -> Mirrored:
    return table(store, SHAPE)


def table(store: LocalStore, shape: Shape, name: str = "orders", **options: Any) -> Mirrored:
    engine = in_process_engine(store, **options)
    return Mirrored(engine, store, HandmadeReader(store), shape, f"Tables/{name}").create()


def load_file(store: LocalStore, shape: Shape, rows: Sequence[tuple[Any, ...]]) -> bytes:
    """A file of a load, as capture writes it."""
    files = LoadFiles(store, shape.schema, Position(Lsn(1), 0), "stream", "default")
    files.write("_staged", shape.arrow(rows).to_batches() if rows else [])
    content = store.read("_staged")
    store.delete("_staged")
    return content


def live(table: Mirrored) -> list[dict[str, Any]]:
    return list(TableLog(table.store.location(table.path)).snapshot().files.values())


def is_taken(table: Mirrored, content: bytes) -> bool:
    folder = Path(table.store.location(table.path))
    return content in [(folder / add["path"]).read_bytes() for add in live(table)]


def load(table: Mirrored, *files: bytes, **more: Any) -> Applied:
    return table.apply(*files, is_load=True, appends=True, **more)


def test_a_file_of_a_load_becomes_a_data_file(orders: Mirrored) -> None:
    content = load_file(orders.store, SHAPE, ROWS)
    applied = load(orders, content, load_file(orders.store, SHAPE, []))
    assert is_taken(orders, content)
    assert applied.counts.insert == len(ROWS)
    assert orders.rows() == ROWS
    assert orders.feed(applied.version) == Counter(("insert", row) for row in ROWS)
    said = json.loads(orders.reader.commit(orders.path, applied.version)["userMetadata"])
    assert said["rows"]["insert"] == len(ROWS)


@settings(max_examples=tries(20), suppress_health_check=list(HealthCheck))
@given(st.sampled_from(list(SHAPES.values())), st.data())
def test_the_table_is_the_same_as_if_the_rows_were_read(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, shape: Shape, data: st.DataObject
) -> None:
    row = st.tuples(*(st.sampled_from(VALUES[column.type.name]) for column in shape.schema))
    files = [
        load_file(store, shape, rows)
        for rows in data.draw(st.lists(st.lists(row, max_size=6), min_size=1, max_size=3))
    ]
    found = []
    for name, least in (("taken", 0), ("read", 1 << 60)):
        store.delete_folder(f"Tables/{name}")
        store.delete_folder(f"zone/{name}")
        monkeypatch.setattr(ready_files, "MIN_BYTES", least)
        one = table(store, shape, name)
        applied = load(one, *files)
        rows = Counter(plain(row) for row in one.rows())
        found.append((rows, one.feed(applied.version), applied.counts))
    assert found[0] == found[1]


def statistics(add: dict[str, Any]) -> dict[str, Any]:
    return json.loads(add["stats"])


@pytest.mark.parametrize("name", sorted(VALUES))
def test_the_statistics_are_those_of_the_rows(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    kind = types.decimal(12, 2) if name == "decimal" else types.DataType.parse(name)
    shape = Shape.of(["id"], id=types.LONG, v=kind)
    content = load_file(store, shape, list(enumerate(VALUES[name])))
    found = []
    for where, least in (("taken", 0), ("read", 1 << 60)):
        monkeypatch.setattr(ready_files, "MIN_BYTES", least)
        one = table(store, shape, where)
        load(one, content)
        found.append(statistics(live(one)[0]))
    taken, read = found
    if name in {"float", "double"}:  # a NaN may come in any later row of a file
        del read["nullCount"]["v"]
    assert taken == read


def test_a_table_that_got_column_mapping_has_its_ids_in_each_file(orders: Mirrored) -> None:
    orders.engine.set_properties(orders.path, {MAPPING: "name"})
    load(orders, load_file(orders.store, SHAPE, ROWS))
    (add,) = live(orders)
    stored = pq.read_schema(Path(orders.store.location(orders.path), add["path"]))
    assert [field.metadata[b"PARQUET:field_id"] for field in stored] == [b"1", b"2"]
    assert orders.rows() == ROWS


def test_a_text_that_is_too_long_for_the_footer_has_no_bounds(store: LocalStore) -> None:
    one = table(store, SHAPE)
    content = load_file(store, SHAPE, [(1, "x" * 5_000), (2, None)])
    load(one, content)
    stats = statistics(live(one)[0])
    assert is_taken(one, content)
    assert (stats["minValues"], stats["nullCount"]) == ({"id": 1}, {"id": 0, "v": 1})


def test_changes_after_the_load_find_its_rows(orders: Mirrored) -> None:
    load(orders, load_file(orders.store, SHAPE, ROWS))
    orders.apply([(Marker.UPDATE, (3, "new")), (Marker.DELETE, (4, None))])
    assert Counter(orders.rows()) == Counter([*ROWS[:3], (3, "new"), *ROWS[5:]])


def damaged(content: bytes) -> bytes:
    """One bit of a page is another one, as a disk may lose it."""
    chunk = pq.read_metadata(pa.BufferReader(content)).row_group(0).column(0)
    at = (chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size - 1
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def test_a_damaged_file_is_refused_and_leaves_nothing(orders: Mirrored) -> None:
    content = load_file(orders.store, SHAPE, ROWS)
    outcome = orders.run(orders.step(damaged(content), is_load=True, appends=True))
    assert isinstance(outcome, Failed)
    assert "CRC" in outcome.error.what
    assert not list(Path(orders.store.location(orders.path)).glob("*.parquet"))


def with_footer(content: bytes, **changes: Any) -> bytes:
    """The same rows behind another footer."""
    found = pq.ParquetFile(pa.BufferReader(content))
    facts = {k.decode(): v.decode() for k, v in found.metadata.metadata.items()}
    footer = Footer.decode(facts)
    assert footer is not None
    target = pa.BufferOutputStream()
    with pq.ParquetWriter(target, found.schema_arrow, store_schema=False) as writer:
        writer.write_table(found.read())
        writer.add_key_value_metadata(replace(footer, **changes).encode())
    return target.getvalue().to_pybytes()


@pytest.mark.parametrize(
    "changes",
    [
        {"data_file": None},
        {"data_file": Checksum(4, 0xE4D1F3D0)},  # of none of its pages
        {"kind": FileKind.CHANGES},
    ],
    ids=str,
)
def test_a_file_that_is_not_written_as_a_data_file_is_read(
    orders: Mirrored, changes: dict[str, Any]
) -> None:
    content = with_footer(load_file(orders.store, SHAPE, ROWS), **changes)
    load(orders, content)
    assert not is_taken(orders, content)
    assert orders.rows() == ROWS


OTHER_SHAPES = {
    "fewer columns": Shape.of(["id"], id=types.LONG),
    "more columns": Shape.of(["id"], id=types.LONG, v=types.STRING, w=types.STRING),
    "another order": Shape.of(["id"], v=types.STRING, id=types.LONG),
    "a narrower type": Shape.of(["id"], id=types.INTEGER, v=types.STRING),
    "another case": Shape.of(["ID"], ID=types.LONG, V=types.STRING),
}


@pytest.mark.parametrize("case", OTHER_SHAPES)
def test_a_file_with_other_columns_than_the_table_is_read(orders: Mirrored, case: str) -> None:
    shape = OTHER_SHAPES[case]
    content = load_file(
        orders.store,
        shape,
        [
            tuple(
                {c.name.lower(): value for c, value in zip(SHAPE.schema, row, strict=True)}.get(
                    name.lower()
                )
                for name in shape.schema.names
            )
            for row in ROWS
        ],
    )
    load(orders, content)
    assert not is_taken(orders, content)
    has_text = "v" in [name.lower() for name in shape.schema.names]
    assert orders.rows() == [(number, text if has_text else None) for number, text in ROWS]


def test_a_table_with_partitions_gets_a_file_for_each(store: LocalStore) -> None:
    shape = Shape.of(["id"], id=types.LONG, v=types.INTEGER)
    one = table(store, shape, partitions=by_plain_columns)
    rows = [(n, n % 2) for n in range(10)]
    load(one, load_file(store, shape, rows))
    assert Counter(one.rows()) == Counter(rows)
    assert len(live(one)) == 2


def test_columns_that_have_other_names_in_data_files_are_written(store: LocalStore) -> None:
    shape = Shape.of(["id"], **{"id": types.LONG, "a b": types.STRING})
    one = table(store, shape)
    content = load_file(store, shape, ROWS)
    load(one, content)
    assert not is_taken(one, content)
    assert one.rows() == ROWS


def test_a_null_where_the_table_allows_none_is_read_and_refused(store: LocalStore) -> None:
    found = Shape(Schema.of([Column("id", types.LONG), Column("v", types.STRING)]), ("id",))
    content = load_file(store, found, [(None, "a")])
    one = table(store, found)
    step = one.step(content, is_load=True, appends=True, row_checks=RowChecks(strict_keys=True))
    outcome = one.run(step)
    assert isinstance(outcome, Failed)
    assert outcome.error.code == "null_key"


@pytest.mark.parametrize("least", [0, 1 << 20])
def test_small_files_become_one_data_file(
    orders: Mirrored, monkeypatch: pytest.MonkeyPatch, least: int
) -> None:
    monkeypatch.setattr(ready_files, "MIN_BYTES", least)
    halves = [load_file(orders.store, SHAPE, rows) for rows in (ROWS[:200], ROWS[200:])]
    applied = load(orders, *halves)
    assert len(live(orders)) == (1 if least else 2)
    assert Counter(orders.rows()) == Counter(ROWS)
    assert applied.counts.insert == len(ROWS)


def test_a_load_that_is_interrupted_before_its_commit_is_applied_once(
    store: LocalStore, orders: Mirrored
) -> None:
    step = orders.step(load_file(store, SHAPE, ROWS), is_load=True, appends=True)

    def killed() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        orders.run(step, killed)
    assert orders.rows() == []
    orders.engine = in_process_engine(store)
    assert isinstance(orders.run(step), Applied)
    assert orders.rows() == ROWS
