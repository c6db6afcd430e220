"""A stream over the feed of a table: what it gives, why it starts again, how it recovers."""

from __future__ import annotations

import re
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from structlog.testing import capture_logs

from mirrorlake import FeedError, Project, read_feed, stream_feed
from mirrorlake.app.changes.feed_streams import recover
from mirrorlake.app.subscribe import states
from mirrorlake.feed.subscriptions.stream import FeedStreamRecords
from mirrorlake.spark.feed_stream import STREAM_RESTARTED, FeedStream, StreamBatch
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.storage.local import LocalStore
from mirrorlake.storage.urls import StorageLocation
from tests.docs.blocks import blocks, shell
from tests.feed.handmade_feed import DELETE, INSERT, UPDATE, FeedTable
from tests.histories import rows_of
from tests.objects import S3Server
from tests.spark import reading
from tests.spark.plain_delta.plain import new_session

pytestmark = pytest.mark.spark

PROPERTIES = (
    "'delta.enableChangeDataFeed' = 'true', 'delta.columnMapping.mode' = 'name', "
    "'delta.enableDeletionVectors' = 'true'"
)
PAGE = "how-to/stream-the-changes.md"
OURS = {"_change_type": "kind", "_commit_version": "version", "_commit_timestamp": "time"}


class Streamed:
    """A mirrored table, and a stream that appends its changes to another one."""

    def __init__(self, root: Path, spark: Spark) -> None:
        self.root, self.session, self.fails_after = root, new_session(spark), -1
        self.table, self.target = root / "Tables/s/orders", root / "copy"
        self.name = reading.sql_name(self.table)
        self.sql(
            f"create table {{}} (id bigint, name string) using delta tblproperties ({PROPERTIES})"
        )

    def sql(self, *statements: str) -> None:
        for statement in statements:
            self.session.sql(statement.format(self.name)).collect()

    def write(self, rows: DataFrame, batch: StreamBatch) -> None:
        writer = rows.withColumnsRenamed(OURS).write.format("delta").mode("append")
        writer.options(**batch.options).option("mergeSchema", "true").save(str(self.target))
        if batch.number == self.fails_after:
            raise KeyError("killed")

    def stream(self, **asked: Any) -> FeedStream:
        given = {"start": "beginning", "target": self.target, **asked}
        return stream_feed("audit", self.table, self.session, self.write, **given)

    def run(self, **asked: Any) -> int:
        """Returns how often it was started again."""
        with self.stream(**asked) as stream:
            stream.run(available_now=True)
            return stream.restarts

    def written(self) -> Counter[tuple[Any, ...]]:
        found = (
            self.session.read.format("delta").load(str(self.target)).select("kind", "version", "id")
        )
        return Counter(map(tuple, found.collect()))

    def expected(self, first: int = 0) -> Counter[tuple[Any, ...]]:
        rows = read_feed(self.table, from_version=first, on_schema_change="unite").to_arrow()
        return Counter(rows_of(rows.select(["_change_type", "_commit_version", "id"])))


@pytest.fixture
def streamed(tmp_path: Path, spark: Spark) -> Streamed:
    return Streamed(tmp_path, spark)


@pytest.mark.clause("CF-185", "CF-183")
def test_it_starts_again_after_other_columns_and_recovers(streamed: Streamed) -> None:
    streamed.sql("insert into {} values (1, 'a'), (2, 'b')", "update {} set name = 'c'")
    streamed.sql("alter table {} add column note string", "insert into {} values (3, 'd', 'x')")
    with capture_logs() as logs:
        restarts = streamed.run()
    told = [one["condition"] for one in logs if one["event"] == STREAM_RESTARTED]
    assert told == ["DELTA_STREAMING_METADATA_EVOLUTION"] * restarts != []
    assert streamed.written() == streamed.expected()
    (state,) = states(Project.of_root(streamed.root))
    assert (state.name, state.behind, state.problem) == ("audit", 0, "")
    old = streamed.root / "Files/Mirrorlake/subscriptions/audit.stream/checkpoint-1"
    assert (old / "_schema_log").is_dir()
    for damaged in (old / "offsets").iterdir():
        damaged.write_text("damaged")
    streamed.sql("delete from {} where id = 2")
    before = {path: path.stat().st_mtime_ns for path in old.rglob("*")}
    assert recover(Project.of_root(streamed.root), "audit").first == 5
    assert streamed.run() == 0
    assert streamed.written() == streamed.expected()
    assert {path: path.stat().st_mtime_ns for path in old.rglob("*")} == before


def below(folder: Path, code: str) -> str:
    """Code whose paths lie in a folder: the JVM has a working folder of its own."""
    path = re.compile(r'(\("|= "|target=")((?:audit|changes|streams/audit|shop/Tables[^"]*)")')
    return path.sub(rf"\g<1>{folder}/\2", code).replace(f'stream_feed("{folder}/', 'stream_feed("')


@pytest.mark.full
def test_the_page_runs(
    tmp_path: Path,
    spark: Spark,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = FeedTable(tmp_path / "shop/Tables/shop/orders")
    table.change((INSERT, (1, "a")), (INSERT, (2, "b")))
    table.change((UPDATE, (1, "c")), (DELETE, (2, None)))
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"session": spark.session}
    for block in blocks(PAGE, "python"):
        code = below(tmp_path, block)
        exec(compile(code, PAGE, "exec"), names)
        expected = [line[2:] for line in code.splitlines() if line.startswith("# ")]
        assert capsys.readouterr().out.splitlines()[-1:] == expected
    (recovery,) = blocks(PAGE, "sh")
    shell(tmp_path, recovery)
    record = FeedStreamRecords(LocalStore(tmp_path / "shop")).read("changes")
    assert record is not None
    assert (record.number, record.start) == (2, 3)


@pytest.mark.full
def test_small_batches_and_a_writer_that_dies_write_each_change_once(streamed: Streamed) -> None:
    for number in range(2):
        rows = ", ".join(f"({100 * number + n}, 'a')" for n in range(40))
        streamed.sql("insert into {} select /*+ repartition(3) */ * from values " + rows)
    streamed.sql("update {} set name = 'b' where id < 20", "delete from {} where id = 150")
    for streamed.fails_after in (1, 4):
        with pytest.raises(KeyError, match="killed"):
            streamed.run(max_files=1)
    streamed.fails_after = -1
    assert streamed.run(max_files=1) == 0
    assert streamed.written() == streamed.expected()


@pytest.mark.full
def test_a_rename_waits_for_the_target(streamed: Streamed) -> None:
    streamed.sql("insert into {} values (1, 'a')", "alter table {} rename column name to title")
    streamed.sql("insert into {} values (2, 'b')")
    with pytest.raises(FeedError) as refused:
        streamed.run()
    assert "accept_schema_change" in refused.value.hint
    streamed.run(accept_schema_change=2)
    assert streamed.written() == streamed.expected()


@pytest.mark.full
def test_a_snapshot_comes_first_and_what_is_committed_later_follows(streamed: Streamed) -> None:
    streamed.sql("insert into {} values (1, 'a'), (2, 'b')")
    stop = threading.Event()

    def write(rows: DataFrame, batch: StreamBatch) -> None:
        streamed.write(rows, batch)
        if batch.number == 0:
            streamed.sql("insert into {} values (3, 'c')")
        elif batch.position is not None and batch.position.version == 2:
            stop.set()

    with stream_feed("audit", streamed.table, streamed.session, write) as stream:
        stream.run(stop)
        assert stream.subscription.record.next == 3
    assert sorted(id_ for _kind, _version, id_ in streamed.written()) == [1, 2, 3]


@pytest.mark.full
def test_a_stream_of_any_name_on_objects(tmp_path: Path, spark: Spark, s3: S3Server) -> None:
    name, location = "a b: [x]{1}*#%41é", StorageLocation(f"{s3.new_bucket()}/shop", s3.options)
    root, found = location.url, list[Any]()
    orders = reading.sql_name(f"{root}/Tables/s/orders")
    for statement in (
        f"create table {orders} (id bigint) using delta tblproperties ({PROPERTIES})",
        f"insert into {orders} values (1), (2)",
        f"delete from {orders} where id = 1",
    ):
        spark.session.sql(statement).collect()

    def write(rows: DataFrame, batch: StreamBatch) -> None:
        found.extend((row["_change_type"], row["id"]) for row in rows.collect())

    project = Project("shop", tmp_path / "root", tables=location)
    for expected in ([("delete", 1), ("insert", 1), ("insert", 2)], []):
        with stream_feed(
            name, f"{root}/Tables/s/orders", spark.session, write, start=0, options=s3.options
        ) as stream:
            stream.run(available_now=True)
        assert sorted(found) == expected
        assert recover(project, name).first == 3
        found.clear()


@pytest.mark.full
def test_it_waits_for_a_version_that_is_not_there_yet(streamed: Streamed) -> None:
    streamed.run(start="latest")
    assert not streamed.target.exists()
    streamed.sql("insert into {} values (1, 'a')")
    streamed.run(start="latest")
    assert streamed.written() == streamed.expected(first=1)
