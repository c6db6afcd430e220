"""Tables as Trino reads them. Not in `make test-full`: the server is 600 MB to fetch."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mirrorlake.app.stores import store_of
from mirrorlake.config import Project
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.mirror.settings import TableTemplate
from mirrorlake.model import types
from mirrorlake.model.change import Marker
from mirrorlake.spark.engine import spark_engine
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.storage.store import Store
from mirrorlake.storage.urls import StorageLocation
from tests.conformance.mirrored import Mirrored
from tests.histories import DECIMAL, VALUES, Shape
from tests.objects import S3Server
from tests.spark.test_apply import SparkReader
from tests.trino import Trino, trino_server

pytestmark = [pytest.mark.long, pytest.mark.spark]

INSERT, UPDATE, DELETE = Marker.INSERT, Marker.UPDATE, Marker.DELETE


@pytest.fixture(scope="module")
def trino(s3: S3Server) -> Iterator[Trino]:
    with trino_server(s3) as server:
        yield server


@pytest.fixture
def store(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    s3.described(monkeypatch)
    tables = StorageLocation(f"{s3.new_bucket()}/shop", s3.options)
    return store_of(Project("shop", tmp_path / "root", tables=tables))


def mirrored(
    spark: Spark, store: Store, name: str, template: TableTemplate, shape: Shape
) -> Mirrored:
    engine = spark_engine(spark, store, template=template)
    reader = SparkReader(spark.session, store)  # type: ignore[arg-type]
    return Mirrored(engine, store, reader, shape, f"Tables/{name}").create()  # type: ignore[arg-type]


@pytest.mark.parametrize("template", list(TableTemplate))
def test_rows_and_changes(
    spark: Spark, store: Store, trino: Trino, template: TableTemplate
) -> None:
    shape = Shape.of(["id"], id=types.LONG, name=types.STRING)
    name = f"orders_{template}"
    orders = mirrored(spark, store, name, template, shape)
    orders.apply([(INSERT, (n, "old")) for n in range(1_000)])
    orders.engine.checkpoint(orders.path)
    orders.apply([(UPDATE, (1, "new")), (DELETE, (2, None)), (INSERT, (1_000, "x"))])
    location = store.location(orders.path)
    trino.register(name, location)
    found = trino.ask(f"select * from {name}")
    assert len(found) == 1_000
    assert sorted(found) == sorted(orders.rows())
    changes = f"select _change_type, id, name from table(system.table_changes('s', '{name}', 1))"
    assert sorted(trino.ask(changes)) == [
        ("delete", 2, "old"),
        ("insert", 1_000, "x"),
        ("update_postimage", 1, "new"),
        ("update_preimage", 1, "old"),
    ]
    if template is TableTemplate.FAST:
        vectors = [a for a in TableLog(location).snapshot().files.values() if "deletionVector" in a]
        assert vectors


def test_values_of_every_type(spark: Spark, store: Store, trino: Trino) -> None:
    kinds = {
        kind.name: kind
        for kind in (types.BOOLEAN, types.BYTE, types.SHORT, types.INTEGER, types.LONG)
    } | {"float": types.FLOAT, "double": types.DOUBLE, "string": types.STRING}
    kinds |= {"binary": types.BINARY, "decimal": DECIMAL, "date": types.DATE}
    shape = Shape.of(["id"], id=types.LONG, **{f"a {name}": kind for name, kind in kinds.items()})
    every = mirrored(spark, store, "every", TableTemplate.FAST, shape)
    rows = [
        (number, *(VALUES[name][number % len(VALUES[name])] for name in kinds))
        for number in range(max(map(len, VALUES.values())))
    ]
    every.apply([(INSERT, row) for row in rows])
    trino.register("every", store.location(every.path))
    shown_as = {"binary": "to_hex({})", "date": "cast({} as varchar)", "float": "{} * 1e0"}
    columns = [shown_as.get(name, "{}").format(f'"a {name}"') for name in kinds]
    found = trino.ask(f"select id, {', '.join(columns)} from every order by id")
    expected = []
    for row in rows:
        shown = list(row)
        for index, value in enumerate(row):
            if isinstance(value, bytes):
                shown[index] = value.hex().upper()
            elif value is not None and index > list(kinds).index("binary"):
                shown[index] = str(value)
        expected.append(tuple(map(_plain, shown)))
    assert [tuple(map(_plain, row)) for row in found] == expected


def test_times_are_shown_to_the_millisecond(spark: Spark, store: Store, trino: Trino) -> None:
    shape = Shape.of(["id"], id=types.LONG, at=types.TIMESTAMP)
    times = mirrored(spark, store, "times", TableTemplate.FAST, shape)
    times.apply([(INSERT, (1, datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=UTC)))])
    trino.register("times", store.location(times.path))
    ((told,),) = trino.ask("select cast(at as varchar) from times")
    assert told == "2026-03-29 01:30:00.123 UTC"


def _plain(value: object) -> object:
    """Floats as their text: Trino writes NaN and Infinity so."""
    return repr(float(value)) if isinstance(value, float) or value in _NAMES else value


_NAMES = {"NaN", "Infinity", "-Infinity"}
