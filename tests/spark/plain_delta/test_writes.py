"""What plain Delta leaves in the feed and in the log, write by write. Two tables live through all
kinds of writes, one with deletion vectors and one without."""

from __future__ import annotations

import json
from pathlib import Path

import deltalake
import pytest
from pyspark.sql import SparkSession

from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.spark.committer import SparkCommitter
from mirrorlake.spark.session.spark_session import Spark
from tests.feed.handmade_feed import INSERT, FeedTable
from tests.spark.plain_delta.plain import ON, VECTORS, Plain, condition, new_session

pytestmark = pytest.mark.spark

APP, NUMBER = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"
SAID = "spark.databricks.delta.commitInfo.userMetadata"


@pytest.fixture(scope="module")
def session(spark: Spark) -> SparkSession:
    return new_session(spark)


def of_four(path: Path, **properties: str) -> FeedTable:
    """A table of which version 1 has the keys 1 to 4."""
    table = FeedTable(path, **properties)
    table.change(*((INSERT, (number, "old")) for number in range(1, 5)))
    return table


@pytest.mark.clause("CF-087", "CF-001", "CF-002", "CF-019", "CF-004", "CF-094", "CF-058")
def test_the_golden_student(session: SparkSession, tmp_path: Path) -> None:
    student = Plain(session, tmp_path / "student", "id int, name string, age int", VECTORS)
    student.sql(
        "insert into {} values (1, 'Ann', 20)",
        "update {} set age = 21 where id = 1",
        "delete from {} where id = 1",
    )
    rows = student.frame(startingVersion=0).collect()
    assert sorted((row._commit_version, row._change_type, *row[:3]) for row in rows) == [
        (1, "insert", 1, "Ann", 20),
        (2, "update_postimage", 1, "Ann", 21),
        (2, "update_preimage", 1, "Ann", 20),
        (3, "delete", 1, "Ann", 21),
    ]
    # Inserts have no change files, and neither has a deletion with deletion vectors.
    assert [student.kinds(version) for version in (1, 2, 3)] == [
        {"add"},
        {"add", "cdc", "remove"},
        {"remove"},
    ]


@pytest.mark.clause("CF-057", "CF-094", "CF-096", "CF-004", "CF-056")
def test_change_files_without_deletion_vectors(session: SparkSession, tmp_path: Path) -> None:
    written = FeedTable(tmp_path / "t", **{"delta.enableDeletionVectors": "false"})
    written.change(*((INSERT, (number, f"{number * 7919:x}" * 9)) for number in range(2000)))
    table = Plain(session, written.path)
    table.sql("update {} set name = name where id = 2", "delete from {} where id < 2")
    assert [kind for _v, kind, _key in table.feed(2, 2)] == ["update_postimage", "update_preimage"]
    before, after = table.frame(startingVersion=2, endingVersion=2).collect()
    assert before[:2] == after[:2]
    assert table.feed(3) == [(3, "delete", 0), (3, "delete", 1)]
    named = set()
    for version in (2, 3):
        actions = TableLog(table.path).actions(version)
        added, changed = (
            sum(action[kind]["size"] for action in actions if kind in action)
            for kind in ("add", "cdc")
        )
        assert 0 < changed < added / 5
        named |= {action["cdc"]["path"] for action in actions if "cdc" in action}
    folder = table.path / "_change_data"
    assert {f"_change_data/{file.name}" for file in folder.glob("*.parquet")} == named


@pytest.mark.clause("CF-058")
def test_whole_partitions_are_deleted_without_change_files(
    session: SparkSession, tmp_path: Path
) -> None:
    columns = "partitioned by (part)"
    table = Plain(session, tmp_path / "t")
    table.sql(
        f"create table {{}} (id int, part int) using delta {columns} tblproperties ({ON})",
        "insert into {} values (1, 1), (2, 2)",
        "delete from {} where part = 1",
    )
    assert table.kinds(2) == {"remove"}
    assert table.feed(2) == [(2, "delete", 1)]


@pytest.fixture(scope="module")
def merged(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Plain:
    return Plain(session, of_four(tmp_path_factory.mktemp("merged") / "t").path)


def merge(rows: str, clauses: str, *, evolving: bool = False) -> str:
    how = "with schema evolution " if evolving else ""
    return f"merge {how}into {{}} t using ({rows}) s on t.id = s.id {clauses}"


UPSERT = "when matched then update set * when not matched then insert *"


@pytest.mark.clause("CF-100", "CF-097", "CF-104", "CF-105", "CF-108", "CF-110")
def test_a_merge_of_a_session_with_a_transaction(
    spark: Spark, session: SparkSession, merged: Plain
) -> None:
    """Its feed shows the net change of each key; done again it is skipped."""
    first = merged.version + 1
    statement = merge(
        "select 1 as id, 'new' as name, 7 as more union all select 9, 'new', 8",
        UPSERT,
        evolving=True,
    )
    own = new_session(spark, **{APP: "txn of ours", NUMBER: "3", SAID: "said"})
    table = Plain(own, merged.path)
    assert len(table.sql(statement)) == 1
    assert table.sql(statement) == []
    assert table.version == first
    rows = merged.frame(startingVersion=first).select("_change_type", "id", "name", "more")
    assert sorted(map(tuple, rows.collect()), key=str) == [
        ("insert", 9, "new", 8),
        ("update_postimage", 1, "new", 7),
        ("update_preimage", 1, "old", None),
    ]
    # Where the number of the transaction stands, and where it does not.
    checksum = json.loads((merged.path / f"_delta_log/{first:020d}.crc").read_text())
    recorded = [(one["appId"], one["version"]) for one in checksum["setTransactions"]]
    assert recorded.count(("txn of ours", 3)) == 1  # beside those of other tests of this table
    assert deltalake.DeltaTable(str(merged.path)).transaction_version("txn of ours") == 3
    assert "txn of ours" not in str(session.sql(f"describe detail {merged.name}").first())
    assert session.sql(f"describe history {merged.name} limit 1").first().userMetadata == "said"
    # Another session is not concerned; one of the two settings alone is refused.
    assert session.conf.get(APP, None) is None
    own.conf.unset(NUMBER)
    assert condition(lambda: table.sql("update {} set name = 'x' where id = 1")) == (
        "DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS",
        "42616",
    )
    # The options of a writer win over the settings.
    own.conf.set(NUMBER, "3")
    options = {"txnAppId": "other", "txnVersion": "1"}
    frame = own.sql("select 20L as id, 'w' as name, 1 as more")
    frame.write.format("delta").mode("append").options(**options).save(str(merged.path))
    transactions = TableLog(merged.path).snapshot().transactions
    assert (transactions["txn of ours"], transactions["other"]) == (3, 1)


@pytest.mark.clause("CF-106")
@pytest.mark.parametrize(
    ("statement", "records"),
    [
        (merge("select -1L as id, 'x' as name", "when matched then delete"), True),
        pytest.param("update {} set name = 'x' where id = -1", True, marks=pytest.mark.full),
        ("delete from {} where id = -1", False),
    ],
    ids=["merge", "update", "delete"],
)
def test_a_write_without_effect_may_record_its_transaction(
    spark: Spark, merged: Plain, statement: str, records: bool
) -> None:
    before, app = merged.version, f"nothing {records} {statement[:6]}"
    own = new_session(spark, **{APP: app, NUMBER: "1"})
    Plain(own, merged.path).sql(statement)
    assert (merged.version > before) is records
    assert (app in TableLog(merged.path).snapshot().transactions) is records
    if records:
        assert merged.feed(merged.version) == []


@pytest.mark.clause("CF-098", "CF-094")
def test_two_rows_for_one_key(merged: Plain) -> None:
    twice = "select 2L as id, 'a' as name union all select 2L, 'b'"
    assert condition(
        lambda: merged.sql(merge(twice, "when matched then update set name = s.name"))
    ) == (
        "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE",
        "21506",
    )
    merged.sql(merge(twice, "when matched then delete"))
    assert merged.feed(merged.version) == [(merged.version, "delete", 2)]
    merged.sql(merge(twice, "when not matched then insert (id, name) values (s.id, s.name)"))
    assert merged.feed(merged.version) == [(merged.version, "insert", 2)] * 2
    assert merged.kinds(merged.version) == {"add"}


@pytest.mark.clause("CF-099", "CF-094", "CF-103")
def test_rows_are_replaced_by_a_writer(session: SparkSession, tmp_path: Path) -> None:
    """In one commit, told as a delete and an insert; a number that is not above is skipped."""
    table = Plain(session, of_four(tmp_path / "t").path)
    frame = session.sql("select 1L as id, 'new' as name union all select 9L, 'new'")
    for number in ("5", "5", "4"):
        writer = frame.write.format("delta").mode("overwrite").option("replaceUsing", "id")
        writer.option("txnAppId", "app").option("txnVersion", number).save(str(table.path))
    assert table.version == 2
    assert table.feed(2) == [(2, "delete", 1), (2, "insert", 1), (2, "insert", 9)]
    assert "cdc" not in table.kinds(2)
    assert len(table.sql("select * from {}")) == 5


@pytest.mark.full
@pytest.mark.clause("CF-095")
def test_what_rewrites_a_table_whole_leaves(session: SparkSession, tmp_path: Path) -> None:
    table = Plain(session, of_four(tmp_path / "t").path)
    old = [1, 2, 3, 4]
    for statement, expected in (
        (
            "insert overwrite {} values (5, 'new')",
            [*(("delete", key) for key in old), ("insert", 5)],
        ),
        ("truncate table {}", [("delete", 5)]),
        ("restore table {} to version as of 1", [("insert", key) for key in old]),
        ("restore table {} to version as of 3", [("delete", key) for key in old]),
    ):
        table.sql(statement)
        assert [one[1:] for one in table.feed(table.version)] == expected


@pytest.mark.clause("CF-109")
def test_an_old_transaction_counts_as_absent_where_the_table_says_so(
    session: SparkSession, tmp_path: Path
) -> None:
    frame, path = session.sql("select 1 as id"), str(tmp_path / "t")

    def write() -> int:
        writer = frame.write.format("delta").mode("append").option("txnAppId", "app")
        writer.option("txnVersion", "1").save(path)
        return TableLog(path).versions()[-1]

    assert (write(), write()) == (0, 0)
    Plain(session, Path(path)).sql(
        "alter table {} set tblproperties "
        "('delta.setTransactionRetentionDuration' = 'interval 1 microsecond')"
    )
    assert write() == 2


@pytest.mark.clause("CF-107")
def test_of_two_commits_under_one_application_the_later_one_fails(
    session: SparkSession, tmp_path: Path
) -> None:
    """The first one is made while the second is under way."""
    path = str(of_four(tmp_path / "t").path)
    delta = SparkCommitter(session)._delta
    transactions = [delta.transaction(session, path) for _ in range(2)]

    def commit(number: int) -> None:
        actions = delta.sequence([delta.recorded("app", number)])
        transactions[number].commit(actions, delta.optimize)

    for transaction in transactions:
        transaction.txnVersion("app")
    commit(0)
    assert condition(lambda: commit(1))[0] in {
        "DELTA_CONCURRENT_TRANSACTION",
        "ConcurrentTransactionException",  # as PySpark has it where delta-spark is not imported
    }
