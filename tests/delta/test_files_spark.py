"""Files of a table, written by one side and read by the other: Spark and we."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from mirrorlake.delta import deletion_vectors
from mirrorlake.delta.lookup.key_lookup import candidates, find_rows
from mirrorlake.delta.write import data_files
from mirrorlake.model import types
from mirrorlake.spark.session.spark_session import Spark
from tests.delta.handmade import HandmadeTable
from tests.delta.lookup.test_key_lookup import expected, filled, keys_of
from tests.delta.lookup_ways import Way, forced
from tests.histories import VALUES, Shape, counted, rows_of
from tests.spark import reading

pytestmark = pytest.mark.spark

NUMBERS = Shape.of(["id"], id=types.LONG, name=types.STRING)
EVERYTHING = Shape.of(
    ["id"],
    id=types.LONG,
    boolean=types.BOOLEAN,
    byte=types.BYTE,
    short=types.SHORT,
    integer=types.INTEGER,
    float=types.FLOAT,
    double=types.DOUBLE,
    string=types.STRING,
    binary=types.BINARY,
    decimal=types.decimal(12, 2),
    date=types.DATE,
    timestamp=types.TIMESTAMP,
)
ROW = st.tuples(*(st.sampled_from(VALUES[column.type.name]) for column in EVERYTHING.schema))


@pytest.fixture
def session(spark: Spark) -> SparkSession:
    return spark.session


@pytest.fixture
def delta(session: SparkSession, tmp_path: Path) -> HandmadeTable:
    """A table of two files that Spark has written, deleted from and updated."""
    path = tmp_path / "with space %41"
    name = reading.sql_name(path)
    session.sql(
        f"create table {name} (id bigint, name string) using delta "
        "tblproperties ('delta.enableDeletionVectors' = 'true')"
    )
    rows = session.range(0, 1_000, 1, 2).selectExpr("id", "concat('n', id) name")
    rows.write.format("delta").mode("append").save(str(path))
    session.sql(f"delete from {name} where id % 3 = 0 or id between 600 and 800")
    session.sql(f"update {name} set name = 'u' where id % 50 = 1")
    return HandmadeTable(path)


# -- deletion vectors -------------------------------------------------------------------------


@pytest.mark.full
def test_spark_reads_our_deletion_vectors(session: SparkSession, tmp_path: Path) -> None:
    table = HandmadeTable(tmp_path / "t", NUMBERS.schema)
    rows = [(n, f"n{n}") for n in range(5_000)]
    runs = [*range(100, 2_000), *range(3_000, 5_000, 7)]
    filled(table, NUMBERS, [(rows, runs), (rows[:10], [0]), (rows[:10], [])])
    assert counted(reading.rows(session, table.path)) == counted(table.rows())


@pytest.mark.full
def test_we_read_the_deletion_vectors_of_spark(session: SparkSession, delta: HandmadeTable) -> None:
    assert any(add.get("deletionVector") for add in delta.files)
    assert counted(delta.rows()) == counted(reading.rows(session, delta.path))


@pytest.mark.full
@pytest.mark.parametrize("way", [Way.KEYS_PAGES, Way.INDEX_PAGES])
def test_keys_are_found_in_the_files_of_spark(delta: HandmadeTable, way: Way) -> None:
    keys = keys_of(NUMBERS, [(number, None) for number in (0, 1, 2, 51, 599, 700, 998, 5_000)])
    searched = candidates(delta.files, delta.schema, keys)
    with forced(way):
        for _ in range(2):  # an index is made, and then used
            matches = find_rows(delta.path, searched, delta.schema, keys, 1)
            found, wanted = rows_of(matches.rows), expected(delta, NUMBERS, keys)
            assert counted(found) == counted(wanted)
    assert {row[0] for row in found} == {1, 2, 599, 998}


@pytest.mark.full
def test_we_read_the_deletion_vectors_of_a_shallow_clone(
    session: SparkSession, delta: HandmadeTable
) -> None:
    clone = delta.path.with_name("clone")
    name = reading.sql_name(delta.path)
    session.sql(f"create table {reading.sql_name(clone)} shallow clone {name}")
    table = HandmadeTable(clone)
    assert {a["deletionVector"]["storageType"] for a in table.files if "deletionVector" in a} == {
        "p"
    }
    assert counted(table.rows()) == counted(delta.rows())


@pytest.mark.full
def test_spark_and_mirrorlake_read_an_inline_vector(session: SparkSession, tmp_path: Path) -> None:
    table = HandmadeTable(tmp_path / "t", NUMBERS.schema)
    filled(table, NUMBERS, [([(n, f"n{n}") for n in range(10)], [])])
    raw = deletion_vectors.encode(np.array([2, 5]))
    text = base64.b85encode(raw + b"\0" * (-len(raw) % 4)).decode()
    inline = {
        "storageType": "i",
        "pathOrInlineDv": text.translate(
            str.maketrans(deletion_vectors._B85, deletion_vectors._Z85)
        ),
        "sizeInBytes": len(raw),
        "cardinality": 2,
    }
    (add,) = table.files
    again = data_files.deleted_from(add, inline, 10)
    table.commit([{"remove": data_files.removed(add)}, {"add": again}])
    ids = [0, 1, 3, 4, 6, 7, 8, 9]
    assert sorted(row[0] for row in reading.rows(session, table.path)) == ids
    assert sorted(row[0] for row in table.rows()) == ids


# -- statistics -------------------------------------------------------------------------------


@st.composite
def filters(draw: st.DrawFn) -> str:
    column = draw(st.sampled_from(list(EVERYTHING.schema)))
    # No zeros: Parquet takes 0.0 and -0.0 for two values where Spark takes them for one.
    values = [v for v in VALUES[column.type.name] if not (isinstance(v, float) and v == 0)]
    value = draw(st.sampled_from(values))
    if value is None:
        return f"{column.name} is {draw(st.sampled_from(['null', 'not null']))}"
    operator = draw(st.sampled_from(["=", "<", "<=", ">", ">=", "<>", "<=>"]))
    return f"{column.name} {operator} {literal(column.type.name, value)}"


def literal(kind: str, value: object) -> str:
    match kind:
        case "string":
            escaped = str(value).replace("\\", "\\\\").replace("'", "\\'")
            return f"'{escaped}'"
        case "binary":
            return f"X'{value.hex()}'"
        case "date" | "timestamp":
            return f"{kind} '{value}'"
        case "float" | "double":
            return f"cast('{value}' as {kind})"
        case _:
            return f"cast({value} as {'decimal(12, 2)' if kind == 'decimal' else kind})"


@pytest.mark.full
@pytest.mark.parametrize("kind", ["float", "double"])
def test_spark_finds_nan_above_all_numbers(
    session: SparkSession, tmp_path: Path, kind: str
) -> None:
    shape = Shape.of(["id"], **{"id": types.LONG, "a.b": getattr(types, kind.upper())})
    table = HandmadeTable(tmp_path / "t", shape.schema)
    filled(table, shape, [([(1, 1.5), (2, float("nan"))], [])])
    view = reading.table(session, table.path)
    for condition in ("> 1.5", "= cast('nan' as float)", ">= cast('inf' as float)"):
        assert [row["id"] for row in view.where(f"`a.b` {condition}").collect()] == [2], condition


@pytest.mark.full
@settings(
    max_examples=2, phases=[Phase.generate], suppress_health_check=list(HealthCheck), database=None
)
@given(
    files=st.lists(st.lists(ROW, min_size=1, max_size=3), min_size=3, max_size=6),
    wanted=st.lists(filters(), min_size=12, max_size=12, unique=True),
)
def test_spark_skips_no_file_that_has_a_wanted_row(
    session: SparkSession, tmp_path_factory: pytest.TempPathFactory, files, wanted: list[str]
) -> None:
    table = HandmadeTable(tmp_path_factory.mktemp("t") / "t", EVERYTHING.schema)
    filled(table, EVERYTHING, [(rows, [0] if len(rows) > 1 else []) for rows in files])
    session = reading.exact(session)
    view = reading.table(session, table.path)
    truth = view.selectExpr(*(f"count_if({condition})" for condition in wanted)).collect()[0]
    view.createOrReplaceTempView("skipped")
    found = session.sql(
        " union all ".join(
            f"select {n} n, count(*) from skipped where {condition}"
            for n, condition in enumerate(wanted)
        )
    ).collect()
    assert {wanted[n]: count for n, count in found} == dict(zip(wanted, truth, strict=True))


@pytest.mark.full
def test_spark_answers_from_our_statistics_as_from_the_rows(
    session: SparkSession, tmp_path: Path
) -> None:
    table = HandmadeTable(tmp_path / "t", EVERYTHING.schema)
    rows = [
        tuple(values[n % len(values)] for values in map(VALUES.get, EVERYTHING.schema.names[1:]))
        for n in range(20)
    ]
    filled(table, EVERYTHING, [([(n, *row) for n, row in enumerate(rows)], [3, 4])])
    names = ["id", "byte", "integer", "date"]
    bounds = [f"{function}({name})" for name in names for function in ("min", "max")]
    found = reading.table(session, table.path).selectExpr("count(*)", *bounds).collect()
    columns = zip(*table.rows(), strict=True)
    live = {
        column.name: [value for value in values if value is not None]
        for column, values in zip(EVERYTHING.schema, columns, strict=True)
    }
    expected = [function(live[name]) for name in names for function in (min, max)]
    assert [tuple(row) for row in found] == [(18, *expected)]


# -- the probe on files of Spark --------------------------------------------------------------


def spark_files(session: SparkSession, path: Path, *, mapped: bool) -> HandmadeTable:
    """A table with a column of each type, in several files that Spark has written."""
    columns = ", ".join(f"{c.name} {c.type}" for c in EVERYTHING.schema)
    mapping = ", 'delta.columnMapping.mode' = 'name'" if mapped else ""
    session.sql(
        f"create table {reading.sql_name(path)} ({columns}) using delta "
        f"tblproperties ('delta.enableDeletionVectors' = 'true'{mapping})"
    )
    most = max(len(VALUES[column.type.name]) for column in EVERYTHING.schema)
    rows = [
        tuple(
            values[n % len(values)]
            for values in (VALUES[column.type.name] for column in EVERYTHING.schema)
        )
        for n in range(2 * most)
    ]
    frame = session.createDataFrame(EVERYTHING.arrow(rows)).repartition(3)
    frame.write.format("delta").mode("append").save(str(path))
    return HandmadeTable(path)


def assert_all_found(table: HandmadeTable, shape: Shape) -> None:
    """Each value of each column, taken as a key, is found where a plain scan finds it."""
    for column in shape.schema:
        keyed = Shape(shape.schema, (column.name,))
        keys = keys_of(keyed, [row for row in table.rows() if row[0] is None or row[0] != 0])
        searched = candidates(table.files, table.schema, keys)
        matches = find_rows(table.path, searched, table.schema, keys, 2)
        assert counted(rows_of(matches.rows)) == counted(expected(table, keyed, keys))


@pytest.mark.full
@pytest.mark.parametrize("mapped", [False, True])
def test_keys_are_found_in_files_of_spark(
    session: SparkSession, tmp_path: Path, mapped: bool
) -> None:
    table = spark_files(session, tmp_path / "t", mapped=mapped)
    session.sql(f"delete from {reading.sql_name(table.path)} where integer = 0")
    assert counted(table.rows()) == counted(reading.rows(session, table.path))
    assert_all_found(table, EVERYTHING)


@pytest.mark.full
def test_keys_are_found_in_files_of_both_before_and_after_an_optimize(
    session: SparkSession, tmp_path: Path
) -> None:
    table = spark_files(session, tmp_path / "t", mapped=False)
    more = [tuple(VALUES[column.type.name][-1] for column in EVERYTHING.schema)]
    filled(table, EVERYTHING, [(more, [])])
    assert_all_found(table, EVERYTHING)
    session.sql(f"optimize {reading.sql_name(table.path)}")
    assert counted(table.rows()) == counted(reading.rows(session, table.path))
    assert_all_found(table, EVERYTHING)


@pytest.mark.full
def test_keys_are_found_after_columns_were_renamed_and_dropped(
    session: SparkSession, tmp_path: Path
) -> None:
    table = spark_files(session, tmp_path / "t", mapped=True)
    name = reading.sql_name(table.path)
    session.sql(f"alter table {name} drop column binary")
    session.sql(f"alter table {name} rename column string to `a b`")
    session.sql(f"alter table {name} add column binary date")
    shape = Shape(table.schema.schema, ("id",))
    assert pa.types.is_date(shape.arrow([]).schema.field("binary").type)
    assert_all_found(table, shape)
