"""The runner and the committer in this process keep their contracts."""

from __future__ import annotations

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


def test_what_does_not_pickle_is_refused_here_as_elsewhere() -> None:
    with pytest.raises(TypeError, match="pickle"):
        InProcessRunner().run(list, [(n for n in ())])
