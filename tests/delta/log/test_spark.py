"""The log as Delta itself writes it: we say of a table what Delta says of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import deltalake
import pytest
from pyspark.sql import DataFrame, SparkSession

from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.model.change import Marker
from mirrorlake.spark.session.spark_session import Spark
from tests.delta.handmade import HandmadeTable
from tests.delta.log.test_table_log import SHAPE, facts, put
from tests.spark import reading

pytestmark = pytest.mark.spark


class Written:
    """A table that Delta writes."""

    def __init__(self, session: SparkSession, path: Path) -> None:
        self.session, self.path, self.name = session, path, reading.sql_name(path)
        session.sql(
            f"create table {self.name} (id bigint, name string, at timestamp) using delta "
            "tblproperties ('delta.enableDeletionVectors' = 'true')"
        ).collect()

    def append(self, first: int, last: int, number: int = 0) -> None:
        rows = self.session.range(first, last, 1, 2).selectExpr(
            "id", "concat('n', id) name", "timestamp_seconds(id) at"
        )
        writer = rows.write.format("delta").mode("append")
        writer.option("txnAppId", "app").option("txnVersion", number or last).save(str(self.path))

    def run(self, statement: str) -> None:
        self.session.sql(statement.format(t=self.name)).collect()

    def newest(self) -> tuple[int, set[tuple[str, str]]]:
        """The newest version, its live files and their deletion vectors, as Delta has them."""
        nothing = self.session._jvm.scala.Option.empty()
        snapshot = delta_log(self.session, self.path).update(False, nothing, nothing)
        files = DataFrame(snapshot.allFiles().toDF(), self.session)
        vector = "concat(deletionVector.storageType, deletionVector.pathOrInlineDv)"
        at = "coalesce(concat('@', deletionVector.offset), '')"
        found = files.selectExpr("path", f"coalesce(concat({vector}, {at}), '') vector").collect()
        return snapshot.version(), {(row["path"], row["vector"]) for row in found}


def delta_log(session: SparkSession, path: Path) -> Any:
    """Delta's own view of a log."""
    jvm: Any = session._jvm
    return jvm.org.apache.spark.sql.delta.DeltaLog.forTable(session._jsparkSession, str(path))


@pytest.fixture
def written(spark: Spark, tmp_path: Path) -> Written:
    return Written(spark.session, tmp_path / "table")


WORK: list[list[Callable[[Written], None]]] = [
    [
        lambda t: t.append(0, 100),
        lambda t: t.run("delete from {t} where id % 7 = 0"),
        lambda t: t.run("update {t} set name = 'u' where id between 20 and 30"),
    ],
    [
        lambda t: delta_log(t.session, t.path).checkpoint(),
        lambda t: t.append(100, 130),
        lambda t: t.run("alter table {t} add columns (more decimal(12, 2))"),
    ],
    [lambda t: t.run("delete from {t} where id % 5 = 0"), lambda t: t.run("optimize {t}")],
    [
        lambda t: delta_log(t.session, t.path).checkpoint(),
        lambda t: t.run("alter table {t} set tblproperties ('a.b' = 'c')"),
        lambda t: t.run("restore table {t} to version as of 2"),
        lambda t: t.append(200, 210),
    ],
]


@pytest.mark.full
def test_all_operations_of_delta_are_followed(written: Written) -> None:
    followed = TableLog(written.path)
    for group in WORK:
        for work in group:
            work(written)
            assert facts(followed.snapshot()) == facts(TableLog(written.path).snapshot())
        snapshot, other = followed.snapshot(), deltalake.DeltaTable(str(written.path))
        assert (snapshot.version, set(snapshot.files)) == written.newest()
        assert snapshot.version == other.version()
        paths = sorted(str(written.path / path) for path, _vector in snapshot.files)
        assert paths == sorted(other.file_uris())
        assert snapshot.transactions["app"] == other.transaction_version("app")


@pytest.mark.full
@pytest.mark.parametrize("kind", ["classic", "parts", "v2 parquet", "v2 json"])
def test_every_kind_of_checkpoint_is_read(spark: Spark, tmp_path: Path, kind: str) -> None:
    table = HandmadeTable(tmp_path / "table", SHAPE.schema)
    for number in range(4):
        put(table, number, number + 10)
    put(table, 2, marker=Marker.DELETE)
    prefix = "spark.databricks.delta."
    if kind.startswith("v2"):
        allow_v2_checkpoints(table)
        name, value = prefix + "checkpointV2.topLevelFileFormat", kind.removeprefix("v2 ")
    else:
        name, value = prefix + "checkpoint.partSize", "3" if kind == "parts" else "1000"
    with setting(spark.session, name, value):
        delta_log(spark.session, table.path).checkpoint()
    names = [path.name for path in (table.path / "_delta_log").glob("0*.checkpoint*")]
    assert {
        "classic": any(name.endswith(".checkpoint.parquet") for name in names),
        "parts": len([name for name in names if name.count(".") == 4]) > 1,
        "v2 parquet": any(name.endswith(".parquet") and name.count("-") == 4 for name in names),
        "v2 json": any(name.endswith(".json") for name in names),
    }[kind], names
    before = facts(table.log.snapshot())
    for version in range(before[0]):
        table.log.commit_file(version).unlink()
    assert facts(TableLog(table.path).snapshot()) == before


def allow_v2_checkpoints(table: HandmadeTable) -> None:
    snapshot = table.log.snapshot()
    features = {
        name: [*snapshot.protocol[name], "v2Checkpoint"]
        for name in ("readerFeatures", "writerFeatures")
    }
    policy = {**snapshot.properties, "delta.checkpointPolicy": "v2"}
    table.commit(
        [
            {"protocol": {**snapshot.protocol, **features}},
            {"metaData": {**snapshot.metadata, "configuration": policy}},
        ]
    )


@contextmanager
def setting(session: SparkSession, name: str, value: str) -> Iterator[None]:
    session.conf.set(name, value)
    try:
        yield
    finally:
        session.conf.unset(name)
