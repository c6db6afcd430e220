"""What commits record of files without numbers: found from the newest commit back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.delta.log.history import named_batches
from mirrorlake.delta.log.table_log import BrokenLog, TableLog
from mirrorlake.model.landed import NamedBatch

OURS = "mirrorlake/g"
METADATA = {"metaData": {"id": "x", "schemaString": "{}", "partitionColumns": []}}


class Log:
    """A log whose commits are written by hand."""

    def __init__(self, path: Path) -> None:
        self._folder = path / "_delta_log"
        self._folder.mkdir()
        self.log = TableLog(path)
        self.version = -1
        self.commit(METADATA)

    def commit(self, *actions: dict[str, Any]) -> None:
        self.version += 1
        lines = "\n".join(json.dumps(action) for action in actions)
        self.file(self.version).write_text(lines)

    def batch(self, number: int, *names: str, app: str = OURS, **said: Any) -> None:
        said = said or {"mirrorlake": 1, "files": [number, number], "names": names}
        self.commit(
            {"commitInfo": {"operation": "MERGE", "userMetadata": json.dumps(said)}},
            {"txn": {"appId": app, "version": number}},
        )

    def file(self, version: int) -> Path:
        return self._folder / f"{version:020d}.json"

    def numbers(self, after: int = 0) -> list[int]:
        return [batch.number for batch in named_batches(self.log, OURS, after)]


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def test_a_batch_has_its_number_version_and_names_in_order(log: Log) -> None:
    log.batch(1, "b.parquet", "a.parquet")
    assert named_batches(log.log, OURS, 0) == [NamedBatch(1, 1, ("b.parquet", "a.parquet"))]


def test_commits_of_other_writers_are_skipped(log: Log) -> None:
    log.batch(1, "a.parquet")
    log.commit({"commitInfo": {"operation": "OPTIMIZE"}})
    log.batch(77, "x.parquet", app="another")
    log.commit({"commitInfo": {"operation": "DELETE", "userMetadata": '{"names": ["y"]}'}})
    log.batch(2, "b.parquet")
    log.commit({"commitInfo": {"operation": "WRITE", "userMetadata": "no JSON"}})
    assert (log.numbers(), log.numbers(1), log.numbers(2)) == ([1, 2], [2], [])


def test_only_the_needed_commits_are_read(log: Log) -> None:
    for number in range(1, 6):
        log.batch(number, f"{number}.parquet")
    log.log.snapshot()
    for version in range(4):
        log.file(version).write_text("damaged")
    assert log.numbers(after=3) == [4, 5]
    with pytest.raises(BrokenLog):
        log.numbers(after=2)


def test_batches_whose_commits_were_deleted_are_missing(log: Log) -> None:
    for number in range(1, 6):
        log.batch(number, f"{number}.parquet")
    log.log.snapshot()
    for version in range(3):
        log.file(version).unlink()
    assert log.numbers() == [3, 4, 5]


@pytest.mark.parametrize("said", [{"mirrorlake": 1, "files": [2, 2]}, {"names": None}])
def test_a_batch_without_names_is_missing(log: Log, said: dict[str, Any]) -> None:
    log.batch(1, "a.parquet")
    log.batch(2, **said)
    log.batch(3, "c.parquet")
    assert log.numbers() == [1, 3]


def test_a_table_without_commits_has_none(tmp_path: Path) -> None:
    assert named_batches(TableLog(tmp_path), OURS, 0) == []
