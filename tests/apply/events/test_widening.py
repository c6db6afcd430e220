"""Columns of tables that get a wider type because of their events."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from mirrorlake import read_feed
from mirrorlake.apply.events.columns import delta_type, delta_values, wider_type
from mirrorlake.apply.events.remembered.content import content
from mirrorlake.apply.in_process.runner import InProcessRunner
from mirrorlake.delta.schema import parse
from mirrorlake.events import types
from mirrorlake.events.rows import payload_type
from mirrorlake.events.types import UnifiedType
from mirrorlake.events.wider import has_every_value
from mirrorlake.model.arrow import arrow_type
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.model.table import TableId
from tests.apply.events.bucket import Bucket, event
from tests.apply.events.genuine import avro
from tests.apply.events.test_type_changes import VALUES
from tests.doubles.memory_store import Crash

ORDERS = TableId("public", "orders")
STATE = "Files/Mirrorlake/events/tables/public~2Eorders"
LARGE = 2**40
NUMBER = {"type": "string", "logicalType": "number"}
MODES = ["merge", "append", "keyless"]


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return {
        "type": "bytes",
        "logicalType": "decimal",
        "precision": precision,
        "scale": scale,
    }


def put(bucket: Bucket, name: str, events: list[dict[str, Any]], **kinds: Any) -> None:
    """Put a file of Avro, and apply it."""
    bucket.put(f"{name}.avro").write_bytes(avro(events, **kinds))
    bucket.cycle()


def column_types(bucket: Bucket) -> dict[str, str]:
    schema = parse(bucket.log().snapshot().metadata).schema
    return {
        column.name: str(column.type) for column in schema if column.name != "datastream_metadata"
    }


def dead(bucket: Bucket) -> list[str]:
    """The reasons of dead letters, as another process sees them."""
    return [one.reason for file in bucket.consumer()._journal.dead for one in file.letters]


# -- types ------------------------------------------------------------------------------------


@pytest.mark.clause("ST-262")
@pytest.mark.parametrize("column", [one for one in VALUES if one != types.UNSUPPORTED], ids=str)
def test_rows_and_events_have_the_same_values_in_the_wider_type(column: UnifiedType) -> None:
    """Rows are cast, and events converted: a value is the same in both."""
    for kind, is_key in itertools.product(VALUES, [False, True]):
        wider = wider_type(column, kind, is_key=is_key, by_value=True)
        if wider == column:
            continue
        for one in (column, kind):
            assert has_every_value(wider, one)
            values = pa.array([VALUES[one], None], payload_type(one))
            target = delta_type(wider)
            assert target is not None
            converted = delta_values(values, one, wider)
            if one == column:
                assert delta_values(values, one).cast(arrow_type(target)).equals(converted), wider
            assert converted.null_count == 1


EXACT = [types.INTEGER, types.LONG, types.decimal(9, 2), types.decimal(30, 4), types.decimal(38, 9)]
FLOATING = [types.INTEGER, types.FLOAT, types.DOUBLE]


@st.composite
def numbers(draw: st.DrawFn) -> tuple[list[UnifiedType], Any]:
    """Types of one family, and a number that the first one has."""
    kinds = draw(
        st.one_of(
            *(
                st.lists(st.sampled_from(family), min_size=2, max_size=4)
                for family in (EXACT, FLOATING)
            )
        )
    )
    match kinds[0]:
        case types.INTEGER:
            return kinds, draw(st.integers(-(2**31), 2**31 - 1))
        case types.LONG:
            return kinds, draw(st.integers(-(2**63), 2**63 - 1))
        case types.FLOAT | types.DOUBLE as kind:
            width = 32 if kind is types.FLOAT else 64
            return kinds, draw(st.floats(width=width))
    most = 10 ** kinds[0].precision - 1
    digits = draw(st.one_of(st.integers(-most, most), st.integers(-200, 200)))
    return kinds, Decimal(f"{digits}e-{kinds[0].scale}")


@pytest.mark.clause("ST-262", "ST-234")
@given(drawn=numbers())
def test_a_number_is_the_same_and_has_the_same_content_in_every_wider_type(
    drawn: tuple[list[UnifiedType], Any],
) -> None:
    kinds, number = drawn
    values = pa.array([number], payload_type(kinds[0]))
    column, contents = kinds[0], set()
    for kind in kinds:
        column = wider_type(column, kind, is_key=False, by_value=True)
        found = delta_values(values, kinds[0], column)
        assert repr(found[0].as_py()) == repr(number) or found[0].as_py() == number
        contents |= {*content(pa.table({"v": found}), by_value=True).tolist()}
    assert len(contents) == 1


def test_different_numbers_have_different_contents() -> None:
    found: list[int] = []
    for values in (
        pa.array([*range(-200, 200), 2**63 - 1], pa.int64()),
        pa.array(
            [Decimal(f"{n}e-{s}") for s in (1, 2, 9) for n in range(-199, 200) if n % 10],
            pa.decimal128(38, 9),
        ),
        pa.array([Decimal(10**37 + n) for n in range(9)], pa.decimal128(38, 0)),
        pa.array([1e-300, 0.3, 1e300, float("nan"), float("inf"), -0.0], pa.float64()),
    ):
        found += content(pa.table({"v": values}), by_value=True).tolist()
    assert len({*found}) == len(found)
    sliced = pa.array([Decimal("1.5"), None, Decimal("-2.25")], pa.decimal128(9, 2))
    whole = content(pa.table({"v": sliced}), by_value=True)
    assert np.array_equal(content(pa.table({"v": sliced.slice(1)}), by_value=True), whole[1:])


# -- keys --------------------------------------------------------------------------------------


@pytest.mark.clause("ST-262", "ST-233", "ST-248")
@pytest.mark.parametrize(
    ("first", "later", "large", "kind"),
    [
        ("int", "long", LARGE, "long"),
        ("int", decimal(20, 0), Decimal(LARGE), "decimal(20,0)"),
        ("long", decimal(5, 2), Decimal("1.25"), "decimal(21,2)"),
        (decimal(5, 1), decimal(6, 2), Decimal("1.25"), "decimal(6,2)"),
    ],
    ids=str,
)
@pytest.mark.parametrize("is_spread", [False, True])
def test_a_key_has_one_row_and_late_events_are_late_in_a_wider_type(
    tmp_path: Path, first: Any, later: Any, large: Any, kind: str, *, is_spread: bool
) -> None:
    def cast(value: int) -> Any:
        return Decimal(value) if isinstance(later, Mapping) else value

    def narrow(value: int) -> Any:
        return Decimal(value) if isinstance(first, Mapping) else value

    bucket = Bucket(tmp_path)
    if is_spread:
        bucket.runner = InProcessRunner()
    begun = [event(n, {"id": narrow(n), "v": n}) for n in (5, 6, 7)]
    gone = event(9, {"id": narrow(7), "v": None}, "DELETE")
    put(bucket, "a", [*begun, gone], id=first, v="int")
    new = [event(8, {"id": cast(5), "v": LARGE}, "UPDATE"), event(4, {"id": large, "v": 4})]
    put(bucket, "b", [*new, event(3, {"id": cast(6), "v": 3}, "UPDATE")], id=later, v="long")
    assert column_types(bucket) == {"id": kind, "v": "long"}
    rows = [{"id": 5, "v": LARGE}, {"id": 6, "v": 6}, {"id": large, "v": 4}]

    def found() -> list[dict[str, Any]]:
        assert not bucket.errors
        assert not dead(bucket)
        return sorted(bucket.plain(), key=lambda row: row["v"])

    wanted = sorted(rows, key=lambda row: row["v"])
    assert found() == wanted
    # Files of the first type go on, and what is late there is late.
    late = [event(1, {"id": narrow(n), "v": 1}, "UPDATE") for n in (5, 6, 7)]
    put(bucket, "c", late, id=first, v="int")
    put(bucket, "d", [event(2, {"id": cast(7), "v": 2}, "UPDATE")], id=later, v="int")
    assert found() == wanted
    put(bucket, "e", [event(10, {"id": narrow(6), "v": 10}, "UPDATE")], id=first, v="int")
    assert {row["id"]: row["v"] for row in found()} == {5: LARGE, 6: 10, large: 4}


@pytest.mark.clause("ST-262", "ST-243", "ST-253")
@pytest.mark.parametrize(
    ("first", "one", "later", "other"),
    [("int", 1, "double", 2.0), (NUMBER, "1.0", "string", "two")],
    ids=["floating point", "texts"],
)
def test_a_key_does_not_get_a_type_that_cannot_tell_rows_apart(
    tmp_path: Path, first: Any, one: Any, later: Any, other: Any
) -> None:
    bucket = Bucket(tmp_path)
    put(bucket, "a", [event(1, {"id": one, "v": 1})], id=first)
    put(bucket, "b", [event(2, {"id": other, "v": 2})], id=later)
    assert [row["v"] for row in bucket.plain()] == [1]
    (reason,) = dead(bucket)
    assert "column id is" in reason


# -- what else depends on types ------------------------------------------------------------------


@pytest.mark.clause("ST-262", "ST-234", "ST-251")
@pytest.mark.parametrize("mode", ["append", "keyless"])
def test_events_without_uuid_come_once_although_their_column_was_widened(
    tmp_path: Path, mode: str
) -> None:
    bucket, key = Bucket(tmp_path, is_append=mode == "append"), [] if mode == "keyless" else ["id"]
    old = [event(n, {"id": n, "v": n}, key=key, uuid="") for n in (1, 2)]
    put(bucket, "a", old, id="int", v="int")
    prices = [event(3, {"id": LARGE, "v": Decimal("0.25")}, key=key, uuid="")]
    put(bucket, "b", prices, id="long", v=decimal(6, 2))
    same = [event(n, {"id": n, "v": Decimal(n)}, key=key, uuid="") for n in (1, 2)]
    put(bucket, "c", [*same, *prices], id="long", v=decimal(9, 3))
    put(bucket, "d", old, id="int", v="int")
    assert column_types(bucket) == {"id": "long", "v": "decimal(13,3)"}
    assert sorted((row["id"], row["v"]) for row in bucket.plain()) == [
        (1, 1),
        (2, 2),
        (LARGE, Decimal("0.25")),
    ]
    assert not dead(bucket)


@pytest.mark.clause("ST-262", "ST-011")
@pytest.mark.parametrize(
    ("kinds", "values", "kind"),
    [
        (["int", "long", decimal(9, 2)], [1, LARGE, Decimal("0.25")], "decimal(21,2)"),
        (["int", "float", "double"], [1, 0.5, 0.1], "double"),
        (
            [NUMBER, "string", {"type": "string", "logicalType": "varchar", "length": 5}],
            ["1.0", "x", "abc"],
            "string",
        ),
    ],
    ids=["exact", "floating point", "texts"],
)
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
@pytest.mark.parametrize("is_together", [False, True])
def test_the_type_of_a_column_does_not_depend_on_the_order_of_files(
    tmp_path: Path,
    kinds: list[Any],
    values: list[Any],
    kind: str,
    order: tuple[int, ...],
    *,
    is_together: bool,
) -> None:
    bucket = Bucket(tmp_path)
    for place, number in enumerate(order):
        told = avro([event(number + 1, {"id": number, "v": values[number]})], v=kinds[number])
        bucket.put(f"{place}.avro").write_bytes(told)
        if not is_together:
            bucket.cycle()
    bucket.cycle()
    assert column_types(bucket)["v"] == kind
    assert [row["v"] for row in bucket.plain()] == values
    assert not dead(bucket)


@pytest.mark.clause("ST-262")
def test_a_wider_type_is_reported(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    put(bucket, "a", [event(1, {"id": 1, "v": "1.0", "w": 1})], id="int", v=NUMBER, w="int")
    with capture_logs() as logs:
        put(bucket, "b", [event(2, {"id": 2, "v": "x", "w": 2})], id="long", v="string", w="int")
    told = [one for one in logs if one["event"] == "event_column_widened"]
    assert [(one["log_level"], one["table"], one["version"]) for one in told] == [
        ("warning", "public.orders", 1)
    ] * 2
    both = {"id": ["INTEGER", "LONG"], "v": ["NUMBER", "STRING"]}
    assert {one["column"]: [one["before"], one["after"]] for one in told} == both
    info = next(one["commitInfo"] for one in bucket.log().actions(1) if "commitInfo" in one)
    assert info["operation"] == "UPDATE SCHEMA"
    assert json.loads(info["userMetadata"])["widened"] == both
    # A type with the same values is no other one.
    varchar = {"type": "string", "logicalType": "varchar", "length": 5}
    with capture_logs() as logs:
        put(bucket, "c", [event(3, {"id": 3, "v": "y", "w": 3})], id="int", v=varchar, w="int")
    assert not [one for one in logs if one["event"] == "event_column_widened"]
    assert bucket.log().snapshot().version == 3
    assert not dead(bucket)


@pytest.mark.clause("ST-256", "ST-262")
def test_the_feed_goes_on_across_a_wider_type(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, metadata_columns=True)
    put(bucket, "a", [event(n, {"id": n, "v": n}) for n in (1, 2)], id="int", v="int")
    put(
        bucket,
        "b",
        [event(3, {"id": 1, "v": Decimal("0.5")}, "UPDATE")],
        id="long",
        v=decimal(5, 1),
    )
    put(bucket, "c", [event(4, {"id": 2, "v": None}, "DELETE")], id="int", v="int")
    rows = [{"id": 1, "v": Decimal("0.5")}]
    assert [{"id": one["id"], "v": one["v"]} for one in bucket.plain()] == rows
    path = bucket.root / "Tables/public/orders"
    feed = read_feed(path, from_version=0, on_schema_change="unite")
    assert (feed.schema().field("id").type, feed.schema().field("v").type) == (
        pa.int64(),
        pa.decimal128(11, 1),
    )
    folded: dict[int, Any] = {}
    for row in feed.to_arrow().to_pylist():
        if row["_change_type"] in {"delete", "update_preimage"}:
            assert folded.pop(row["id"]) == row["v"]
        else:
            folded[row["id"]] = row["v"]
    assert folded == {1: Decimal("0.5")}
    assert [commit.version for commit in feed] == [0, 2, 3]
    # Whoever reads the types of each version gets those.
    parts = read_feed(path, from_version=0).ranges
    assert [(part.first, part.last) for part in parts] == [(0, 0), (1, 3)]


@pytest.mark.clause("ST-254", "ST-262")
def test_dead_letters_of_a_type_are_applied_by_a_replay_once_the_column_has_it(
    tmp_path: Path,
) -> None:
    bucket = Bucket(tmp_path, types={"public.orders": {"v": types.INTEGER}})
    put(bucket, "a", [event(1, {"id": 1, "v": 1})], v="int")
    put(bucket, "b", [event(2, {"id": 2, "v": LARGE}), event(3, {"id": 1, "v": LARGE})], v="long")
    # The project names the type: beyond it there is nothing.
    assert dead(bucket) == ["column v is INTEGER in the table, and LONG in the event"]
    put(bucket, "c", [event(4, {"id": 1, "v": 4}, "UPDATE")], v="int")
    bucket.settings = replace(bucket.settings, types={})
    assert bucket.consumer().replay() == 1
    assert bucket.plain() == [{"id": 1, "v": 4}, {"id": 2, "v": LARGE}]
    assert not dead(bucket)


def old(bucket: Bucket) -> None:
    """Have the records of a release that compared contents by type."""
    for path in (bucket.root / STATE).glob("0*.json"):
        told = json.loads(path.read_text())
        assert told.pop("content_by_value") is True
        del told["widened"]
        path.write_text(json.dumps(told))


@pytest.mark.clause("ST-262")
def test_a_table_of_an_earlier_release_gets_types_whose_contents_are_the_same(
    tmp_path: Path,
) -> None:
    bucket = Bucket(tmp_path)
    kinds = {"v": "int", "w": "float", "x": decimal(5, 2), "y": "int"}
    values = {"v": 1, "w": 0.5, "x": Decimal("1.25"), "y": 1}
    put(bucket, "a", [event(1, {"id": 1, **values})], **kinds)
    old(bucket)
    wide = {"v": "long", "w": "double", "x": decimal(9, 2), "y": "int"}
    put(bucket, "b", [event(2, {"id": 2, **values, "v": LARGE})], **wide)
    found = {"id": "long", "v": "long", "w": "double", "x": "decimal(9,2)", "y": "integer"}
    assert column_types(bucket) == found
    assert not dead(bucket)
    price = {**values, "y": Decimal("0.5")}
    put(bucket, "c", [event(3, {"id": 3, **price})], **{**wide, "y": decimal(5, 1)})
    assert dead(bucket) == ["column y is INTEGER in the table, and DECIMAL(5,1) in the event"]
    # What is remembered is computed anew, so that the contents may be others.
    bucket.consumer().rebuild(ORDERS)
    bucket.consumer().replay()
    assert not dead(bucket)
    assert column_types(bucket)["y"] == "decimal(11,1)"
    put(bucket, "d", [event(1, {"id": 1, **values})], **kinds)
    assert [(row["id"], row["y"]) for row in bucket.plain()] == [
        (1, 1),
        (2, 1),
        (3, Decimal("0.5")),
    ]


# -- processes that end, and state that is lost ---------------------------------------------------


@pytest.mark.clause("ST-223", "ST-262")
@pytest.mark.parametrize("point", [CrashPoint.COLUMNS_WRITTEN, CrashPoint.COLUMNS_ALTERED])
@pytest.mark.parametrize("mode", MODES)
def test_a_process_may_end_while_columns_are_widened(
    tmp_path: Path, point: CrashPoint, mode: str
) -> None:
    def dies(at: CrashPoint) -> None:
        if at is point:
            raise Crash

    bucket, key = Bucket(tmp_path, is_append=mode == "append"), [] if mode == "keyless" else ["id"]
    put(bucket, "a", [event(n, {"id": n, "v": n}, key=key) for n in (1, 2)], id="int", v="int")
    wide = [event(3, {"id": LARGE, "v": Decimal("0.5")}, key=key)]
    bucket.put("b.avro").write_bytes(avro(wide, id="long", v=decimal(5, 1)))
    with pytest.raises(Crash):
        bucket.cycle(dies)
    is_done = point is CrashPoint.COLUMNS_ALTERED
    assert bucket.log().snapshot().version == is_done
    # Another process may find the events of the first type alone.
    (bucket.folder / "public_orders" / "2026/11/20/10/05" / "b.avro").rename(tmp_path / "b.avro")
    bucket.put("c.avro").write_bytes(
        avro([event(4, {"id": 2, "v": 4}, key=key)], id="int", v="int")
    )
    bucket.cycle(anew=True)
    assert column_types(bucket)["id"] == ("long" if is_done else "integer")
    (tmp_path / "b.avro").rename(bucket.folder / "b.avro")
    bucket.cycle(anew=True)
    assert column_types(bucket) == {"id": "long", "v": "decimal(11,1)"}
    rows = [(1, 1), (2, 2), (2, 4), (LARGE, Decimal("0.5"))]
    found = sorted((row["id"], row["v"]) for row in bucket.plain())
    assert found == [one for one in rows if mode != "merge" or one != (2, 2)]
    # What the first attempt has written is gone.
    names = {file.name for file in (bucket.root / STATE).rglob("*.parquet")}
    named = "".join(file.read_text() for file in (bucket.root / STATE).rglob("0*.json"))
    assert all(name in named for name in names)


def _record_removed(folder: Path) -> None:
    for file in folder.rglob("0*.json"):
        file.unlink()


def _data_removed(folder: Path) -> None:
    for file in folder.rglob("*.parquet"):
        file.unlink()


@pytest.mark.clause("ST-232", "ST-262")
@pytest.mark.parametrize("damaged", [_record_removed, _data_removed, shutil.rmtree])
@pytest.mark.parametrize("mode", MODES)
def test_what_was_seen_is_computed_anew_after_a_column_was_widened(
    tmp_path: Path, damaged: Callable[[Path], None], mode: str
) -> None:
    bucket, key = Bucket(tmp_path, is_append=mode == "append"), [] if mode == "keyless" else ["id"]
    narrow, wide = {"id": "int", "v": "int"}, {"id": "long", "v": decimal(5, 1)}
    texts = {"w": NUMBER}, {"w": "string"}
    first = [event(n, {"id": n, "v": n, "w": "1.0"}, key=key, uuid="") for n in (2, 3)]
    gone = event(9, {"id": 3, "v": None, "w": None}, "DELETE", key=key)
    later = [event(4, {"id": LARGE, "v": Decimal("0.5"), "w": "x"}, key=key, uuid="")]
    put(bucket, "a", [*first, gone], **narrow, **texts[0])
    put(bucket, "b", later, **wide, **texts[1])
    put(bucket, "c", [event(5, {"id": 5, "v": 5, "w": "5"}, key=key)], **narrow, **texts[0])
    rows = bucket.plain()
    damaged(bucket.root / STATE)
    bucket.consumer().rebuild(ORDERS)
    assert bucket.plain() == rows
    put(bucket, "d", [*first, gone], **narrow, **texts[0])
    put(bucket, "e", later, **wide, **texts[1])
    late = event(1, {"id": 3, "v": 1, "w": "1"}, "UPDATE", key=key)
    if mode == "merge":
        put(bucket, "f", [late], **narrow, **texts[0])
    bucket.cycle(anew=True)
    assert not bucket.errors
    assert not dead(bucket)
    assert bucket.plain() == rows
