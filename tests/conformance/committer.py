"""The contract of `apply/committer.py` as a suite that every committer passes.

A subclass supplies the fixtures `committer` and `tables`, which makes a table at a path of `store`.
"""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from mirrorlake.apply.committer import BatchCommit, Committer, CompactionCommit
from mirrorlake.apply.table_definitions import TableDefinitions
from mirrorlake.delta.log.first_commit import begin
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.delta.schema import parse
from mirrorlake.delta.write.compact import compact
from mirrorlake.delta.write.rewrite import write_data_files
from mirrorlake.mirror.engine import Applied, Conflicted, Counts
from mirrorlake.mirror.steps import CreateTable
from mirrorlake.model import types
from mirrorlake.model.table import Column, Schema, TableId
from mirrorlake.storage.local import LocalStore

SCHEMA = Schema.of([Column("id", types.LONG)])
TABLE, PATH, APPLICATION = TableId("", "t"), "Tables/t", "mirrorlake/g"


class CommitterContract:
    """Every committer passes these."""

    @pytest.fixture
    def location(self, tables: TableDefinitions, store: LocalStore) -> str:
        """An empty table at version 0."""
        tables.create(CreateTable(TABLE, PATH, "t", SCHEMA, ("id",), "g"))
        return store.location(PATH)

    def actions(self, location: str, *numbers: int) -> list[str]:
        """Those of a new data file."""
        schema = parse(TableLog(location).snapshot().metadata)
        rows = pa.table({"id": pa.array(numbers, pa.int64())})
        return [json.dumps(one) for one in write_data_files(Path(location), schema, rows, ["id"])]

    def batch(self, location: str, version: int, number: int, **more: Any) -> BatchCommit:
        facts: dict[str, Any] = {
            "table": "t",
            "location": location,
            "version": version,
            "application": APPLICATION,
            "number": number,
            "actions": more.get("actions") or self.actions(location, number),
            "counts": Counts(insert=1),
            "metadata": {"mirrorlake": 1, "said": number},
        }
        return BatchCommit(**facts | more)

    @pytest.mark.clause("CF-150")
    def test_rows_number_and_metadata_are_one_commit(
        self, committer: Committer, location: str
    ) -> None:
        outcome = committer.commit(self.batch(location, 0, 1))
        assert outcome == Applied(1, Counts(insert=1))
        log = TableLog(location)
        assert log.snapshot().transactions == {APPLICATION: 1}
        actions = log.actions(1)
        (info,) = [one["commitInfo"] for one in actions if "commitInfo" in one]
        assert json.loads(info["userMetadata"])["said"] == 1
        assert sum("add" in one for one in actions) == 1

    @pytest.mark.clause("CF-142", "CF-150")
    def test_a_table_and_its_first_rows_are_one_commit(
        self, committer: Committer, tables: TableDefinitions, store: LocalStore
    ) -> None:
        described = tables.metadata_of(CreateTable(TABLE, PATH, "t", SCHEMA, ("id",), "g"))
        assert described is not None
        location = store.location(PATH)
        begin(store, PATH)
        committer.prepare(location)
        rows = pa.table({"id": pa.array([1], pa.int64())})
        added = write_data_files(Path(location), parse(described), rows, ["id"])
        actions = [json.dumps(one) for one in added]
        commit = self.batch(location, -1, 1, actions=actions, creates=described)
        assert committer.commit(commit) == Applied(0, Counts(insert=1))
        snapshot = TableLog(location).snapshot()
        assert (len(snapshot.files), snapshot.transactions) == (1, {APPLICATION: 1})
        assert snapshot.metadata["id"] == described["id"]
        assert snapshot.properties["delta.enableChangeDataFeed"] == "true"
        committer.forget(location)
        assert isinstance(committer.commit(commit), Conflicted)
        assert committer.commit(self.batch(location, 0, 2)) == Applied(1, Counts(insert=1))

    def test_a_table_that_has_moved_on_is_a_conflict_and_stays(
        self, committer: Committer, location: str
    ) -> None:
        committer.commit(self.batch(location, 0, 1))
        committer.forget(location)
        for version in (0, 5):
            assert isinstance(committer.commit(self.batch(location, version, 2)), Conflicted)
        snapshot = TableLog(location).snapshot()
        assert (snapshot.version, snapshot.transactions) == (1, {APPLICATION: 1})

    def test_commits_follow_each_other(self, committer: Committer, location: str) -> None:
        for number in range(1, 4):
            outcome = committer.commit(self.batch(location, number - 1, number))
            assert isinstance(outcome, Applied)
            assert outcome.version == number

    def test_of_two_at_once_one_is_applied(self, committer: Committer, location: str) -> None:
        """Whoever comes second changes nothing, and replaces nothing."""
        commits = [self.batch(location, 0, 1, metadata={"mirrorlake": 1, "who": n}) for n in (1, 2)]
        ready = threading.Barrier(2)

        def commit(one: BatchCommit) -> object:
            ready.wait()
            return committer.commit(one)

        with ThreadPoolExecutor(2) as pool:
            outcomes = list(pool.map(commit, commits))
        assert sorted(type(one).__name__ for one in outcomes) == ["Applied", "Conflicted"]
        winner = next(n for n, one in enumerate(outcomes, 1) if isinstance(one, Applied))
        (info,) = [a["commitInfo"] for a in TableLog(location).actions(1) if "commitInfo" in a]
        assert json.loads(info["userMetadata"])["who"] == winner

    @pytest.mark.clause("CF-095")
    def test_a_compaction_records_nothing_and_changes_no_row(
        self, committer: Committer, location: str
    ) -> None:
        for number in (1, 2):
            committer.commit(self.batch(location, number - 1, number))
        snapshot = TableLog(location).snapshot()
        schema = parse(snapshot.metadata)
        files = list(snapshot.files.values())
        made = [json.dumps(one) for one in compact(Path(location), files, schema, ["id"])]
        assert committer.compact(CompactionCommit("t", location, 2, made)) == Applied(3)
        after = TableLog(location).snapshot()
        assert (len(after.files), after.transactions) == (1, {APPLICATION: 2})
        assert isinstance(committer.compact(CompactionCommit("t", location, 2, made)), Conflicted)
