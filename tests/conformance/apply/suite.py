"""The contract of `mirror/engine.py` as suites that every engine passes.

A subclass supplies the fixture `subject_at`, of the scope of a class, which makes an engine under
test on an empty folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from mirrorlake.errors import LeaseLost
from mirrorlake.landing.metadata import BY_TIME as TIMESTAMP_MODE
from mirrorlake.mirror.compaction import small_files as compaction
from mirrorlake.mirror.engine import AlreadyApplied, Conflicted, Failed
from tests.conformance.apply import by_time
from tests.conformance.apply.backfills import BACKFILLS
from tests.conformance.apply.by_time import BY_TIME
from tests.conformance.apply.checks import check
from tests.conformance.apply.columns import COLUMNS
from tests.conformance.apply.commits import COMMITS
from tests.conformance.apply.compaction import COMPACTION
from tests.conformance.apply.creation import CreationContract, refuse
from tests.conformance.apply.examples import SPECIFIED
from tests.conformance.apply.player import Subject, play
from tests.conformance.apply.row_checks import ROW_CHECKS
from tests.conformance.apply.rows import ROWS
from tests.conformance.apply.scenario import ORDERS, Played, Scenario, insert, update, upsert
from tests.conformance.apply.soft_deletes import SOFT_DELETES
from tests.conformance.apply.tables import TABLES
from tests.conformance.apply.whole_rows import WHOLE_ROWS
from tests.conformance.mirrored import Mirrored
from tests.histories import counted

SCENARIOS = [
    *ROWS,
    *COLUMNS,
    *COMMITS,
    *TABLES,
    *ROW_CHECKS,
    *SPECIFIED,
    *BY_TIME,
    *BACKFILLS,
    *WHOLE_ROWS,
    *SOFT_DELETES,
]

SubjectAt = Callable[[Path], Subject]


class EngineContract:
    """What the suites of an engine begin with."""

    @pytest.fixture
    def subject(self, subject_at: SubjectAt, tmp_path: Path) -> Subject:
        return subject_at(tmp_path)

    @pytest.fixture
    def orders(self, subject: Subject) -> Mirrored:
        """A table with the columns id, name and note, and the key id."""
        return subject.table(ORDERS).create()


class ScenarioContract(EngineContract):
    """Every scenario ends as it says. They are played together, those that are asked for.

    quick: how many of them are part of `make test`, if not all are.
    """

    scenarios: ClassVar[Sequence[Scenario]] = SCENARIOS
    quick: ClassVar[int | None] = None

    @pytest.fixture(scope="class")
    @classmethod
    def played(
        cls,
        request: pytest.FixtureRequest,
        subject_at: SubjectAt,
        tmp_path_factory: pytest.TempPathFactory,
    ) -> dict[str, Played]:
        asked = [
            item.callspec.params["scenario"]
            for item in request.session.items
            if isinstance(item, pytest.Function)
            and item.cls is request.cls
            and "played" in item.fixturenames
        ]
        return play(subject_at(tmp_path_factory.mktemp("played")), asked)

    def test_scenario(self, played: dict[str, Played], scenario: Scenario) -> None:
        check(played[scenario.name])


class ApplyContract(CreationContract, ScenarioContract):
    """A batch is in the table exactly once, whoever else wants to write."""

    def test_of_two_engines_with_one_batch_one_applies_it(
        self, orders: Mirrored, subject: Subject
    ) -> None:
        step = orders.step([insert(1, "a", "x")])
        rival = subject.new_engine()
        outcome = orders.run(step, lambda: rival.apply([step], lambda: None))
        assert isinstance(outcome, Conflicted)
        assert orders.run(step) == AlreadyApplied(1)
        assert orders.rows() == [(1, "a", "x")]

    def test_who_may_not_commit_does_not(self, orders: Mirrored) -> None:
        outcome = orders.run(orders.step([insert(1, "a", "x")]), refuse)
        assert isinstance(outcome, Failed)
        assert isinstance(outcome.error, LeaseLost)
        assert (orders.rows(), orders.engine.progress(orders.path).recorded) == ([], 0)

    def test_a_table_that_is_not_there_has_no_progress(self, subject: Subject) -> None:
        progress = subject.new_engine().progress("Tables/nothing")
        assert (progress.exists, progress.recorded) == (False, 0)


class ByTimeContract(EngineContract):
    """The same in timestamp mode, and a file is the one that was listed."""

    @pytest.fixture
    def table(self, subject: Subject) -> Mirrored:
        return subject.table(by_time.SHAPE).create(detection=TIMESTAMP_MODE)

    def test_of_two_batches_with_one_number_one_is_applied_and_named(
        self, table: Mirrored, subject: Subject
    ) -> None:
        one = table.named_step({"a.parquet": [upsert(1, "x")]})
        other = table.named_step({"b.parquet": [upsert(1, "x")], "c.parquet": [upsert(2, "x")]})
        rival = subject.new_engine()
        outcome = table.run(one, lambda: rival.apply([other], lambda: None))
        assert isinstance(outcome, Conflicted)
        assert table.run(one) == AlreadyApplied(1)
        (batch,) = table.engine.named_batches(table.path, 0)
        assert batch.names == ("b.parquet", "c.parquet")

    def test_a_file_that_is_another_than_was_listed_is_not_applied(self, table: Mirrored) -> None:
        step = table.named_step({"a.parquet": [upsert(1, "x")], "b.parquet": [upsert(2, "x")]})
        table.write("b.parquet", [upsert(2, "written again")])
        outcome = table.run(step)
        assert isinstance(outcome, Conflicted)
        assert "b.parquet" in outcome.reason
        assert (table.rows(), table.engine.named_batches(table.path, 0)) == ([], [])


class CompactionContract(ScenarioContract):
    """Rows, feed and progress are what they were (CF-095, CF-156)."""

    scenarios = COMPACTION

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def soon(cls) -> Iterator[None]:
        """Two small files are many."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compaction, "FANOUT", 2)
            patch.setattr(compaction, "SMALLEST", 2)
            yield

    def test_so_is_one_that_is_gone(self, orders: Mirrored) -> None:
        """Between its last batch and its turn a table may be dropped."""
        gone = replace(orders, path="Tables/gone")
        assert gone.engine.compaction(gone.path) is None
        assert gone.compact() is None

    def test_a_table_that_changes_meanwhile_is_left_alone(self, orders: Mirrored) -> None:
        for number in (1, 2):
            orders.apply([insert(number, "a", "x")])
        outcome = orders.compact(lambda: orders.apply([update(1, "a", "new")]) and None)
        assert isinstance(outcome, Conflicted)
        assert counted(orders.rows()) == counted([(1, "a", "new"), (2, "a", "x")])

    def test_who_may_not_commit_does_not_compact(self, orders: Mirrored) -> None:
        for number in (1, 2):
            orders.apply([insert(number, "a", "x")])
        before = orders.engine.progress(orders.path).version
        with pytest.raises(LeaseLost):
            orders.compact(refuse)
        assert orders.engine.progress(orders.path).version == before
