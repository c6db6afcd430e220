"""The runner and the committer in this process keep their contracts."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from mirrorlake.apply.in_process.committer import LogCommitter
from mirrorlake.apply.in_process.runner import InProcessRunner
from mirrorlake.apply.in_process.tables import LogTables
from mirrorlake.storage.local import LocalStore
from tests.conformance.committer import CommitterContract
from tests.conformance.runner import RunnerContract


class TestInProcessRunner(RunnerContract):
    @pytest.fixture
    def runner(self) -> InProcessRunner:
        return InProcessRunner(2)


class TestLogCommitter(CommitterContract):
    @pytest.fixture
    def committer(self) -> LogCommitter:
        return LogCommitter()

    @pytest.fixture
    def tables(self, store: LocalStore) -> LogTables:
        return LogTables(store)


def test_values_that_cannot_be_pickled_are_refused() -> None:
    with pytest.raises(TypeError, match="pickle"):
        InProcessRunner().run(list, [(n for n in ())])


def test_vacuum_does_not_touch_inner_tables(tmp_path: Path) -> None:
    outer, inner = tmp_path / "sales", tmp_path / "sales/orders"
    for table in (outer, inner):
        for mode in ("append", "overwrite"):
            deltalake.write_deltalake(table, pa.table({"x": [1]}), mode=mode)
    for path in outer.rglob("*.parquet"):
        os.utime(path, (0, 0))
    LogTables(LocalStore(tmp_path)).vacuum("sales", timedelta(days=7), lambda: None)
    assert [len(list(table.glob("*.parquet"))) for table in (outer, inner)] == [2, 2]
    for log in outer.glob("_delta_log/*.json"):
        os.utime(log, (0, 0))
    LogTables(LocalStore(tmp_path)).vacuum("sales", timedelta(days=7), lambda: None)
    assert [len(list(table.glob("*.parquet"))) for table in (outer, inner)] == [1, 2]
