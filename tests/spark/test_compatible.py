"""Tables of the template `compatible`, for readers without deletion vectors and column mapping."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from mirrorlake.config import load
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.errors import ConfigError, UnsupportedColumn
from mirrorlake.mirror.settings import TableTemplate
from mirrorlake.model import types
from mirrorlake.model.change import Marker
from mirrorlake.model.table import Column
from mirrorlake.spark.committer import USER_METADATA
from mirrorlake.spark.engine import spark_engine
from mirrorlake.spark.merge.statements import APPLICATION_ID, APPLICATION_VERSION
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.storage.local import LocalStore
from tests.conformance.mirrored import Mirrored
from tests.delta.readers import rows_by_duckdb
from tests.histories import Shape
from tests.spark.test_apply import SparkReader

SHAPE = Shape.of(["id"], id=types.LONG, name=types.STRING)
INSERT, UPDATE, DELETE = Marker.INSERT, Marker.UPDATE, Marker.DELETE
LEFT_OUT = {"deletionVectors", "columnMapping"}


@pytest.mark.spark
@pytest.mark.clause("CF-157", "CF-081", "CF-152")
def test_readers_that_know_no_deletion_vectors_read_a_compatible_table(
    spark: Spark, store: LocalStore
) -> None:
    engine = spark_engine(spark, store, template=TableTemplate.COMPATIBLE)
    orders = Mirrored(engine, store, SparkReader(spark.session, store), SHAPE).create()
    orders.apply([(INSERT, (1, "a")), (INSERT, (2, "b")), (INSERT, (3, "c"))])
    orders.apply([(UPDATE, (1, "new")), (DELETE, (2, None))])
    for name in (APPLICATION_ID, APPLICATION_VERSION, USER_METADATA):
        assert spark.session.conf.get(name, None) is None
    location = store.location(orders.path)
    snapshot = TableLog(location).snapshot()
    assert not LEFT_OUT & snapshot.features
    assert not any(add.get("deletionVector") for add in snapshot.files.values())
    expected = [{"id": 1, "name": "new"}, {"id": 3, "name": "c"}]
    table = DeltaTable(location)
    assert table.to_pyarrow_table().sort_by("id").to_pylist() == expected
    changes = pa.table(table.load_cdf(starting_version=2).read_all()).to_pylist()
    told = sorted(row["_change_type"] for row in changes)
    assert told == ["delete", "update_postimage", "update_preimage"]
    rows = rows_by_duckdb(Path(location).absolute().as_uri())
    assert sorted(rows) == sorted(orders.rows()) == [(1, "new"), (3, "c")]
    with pytest.raises(UnsupportedColumn, match="a b"):
        orders.add_columns(Column("a b", types.STRING))
    assert not LEFT_OUT & TableLog(location).snapshot().features


def test_the_template_is_a_setting(tmp_path: Path) -> None:
    path = tmp_path / "mirrorlake.yaml"
    for told, expected in (("{}", "fast"), ("{template: compatible}", "compatible")):
        path.write_text(f"name: a\nroot: b\nmirror: {told}\n")
        assert load(path, {}).mirror.template == expected
    path.write_text(json.dumps({"name": "a", "root": "b", "mirror": {"template": "old"}}))
    with pytest.raises(ConfigError, match="template"):
        load(path, {})
    told = {"template": "compatible", "strategy": "direct"}
    path.write_text(json.dumps({"name": "a", "root": "b", "mirror": told}))
    with pytest.raises(ConfigError, match="deletion vectors"):
        load(path, {})
