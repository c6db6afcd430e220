"""A batch whose tasks go through all waves together does what it does on one."""

from __future__ import annotations

import errno
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from mirrorlake.errors import MirrorlakeError
from mirrorlake.mirror.engine import Failed
from mirrorlake.mirror.steps import ApplyFiles
from mirrorlake.mirror.strategy import Way
from mirrorlake.model.change import Marker
from mirrorlake.model.seams import no_crash
from mirrorlake.model.table import TableId
from mirrorlake.spark import course, crew, crew_board, spread, task
from mirrorlake.spark.direct import Direct
from mirrorlake.spark.engine import SparkEngine
from mirrorlake.spark.pieces import (
    DealSpec,
    Dealt,
    Folded,
    FoldSpec,
    Taken,
    TakeSpec,
    WriteSpec,
)
from mirrorlake.spark.refusals import lost
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.spark.spread import SCRATCH, Spread, SpreadSettings
from mirrorlake.spark.waves import Waves, together
from mirrorlake.storage.local import LocalStore
from tests.conformance.apply import play
from tests.conformance.apply_rows import RowContract
from tests.conformance.mirrored import Mirrored
from tests.doubles.handmade_engine import (
    AlwaysSpread,
    HandmadeEngine,
    HandmadeReader,
    HereJobs,
    ThreadJobs,
)
from tests.histories import Shape, histories
from tests.spark.batches import BATCH, ORDERS, filled, holds_batch
from tests.spark.test_apply import SparkReader

INSERT, UPDATE, DELETE, UPSERT = Marker.INSERT, Marker.UPDATE, Marker.DELETE, Marker.UPSERT
CREW = 3

_numbers = itertools.count(1)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who comes is waited for, however slow the machine."""
    monkeypatch.setattr(crew, "ROLL_CALL", 60.0)
    monkeypatch.setattr(crew, "PATIENCE", 60.0)


@pytest.fixture
def in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is waited for long."""
    monkeypatch.setattr(crew, "ROLL_CALL", 0.3)
    monkeypatch.setattr(crew, "PATIENCE", 1.0)


@pytest.fixture
def reader(store: LocalStore) -> HandmadeReader:
    return HandmadeReader(store)


@pytest.fixture
def make(store: LocalStore, reader: HandmadeReader) -> Callable[..., Mirrored]:
    """Makes a table of a shape, whose batches go to a crew of three tasks, or to one."""

    def make(shape: Shape = ORDERS, path: str = "Tables/orders", tasks: int = CREW) -> Mirrored:
        engine = HandmadeEngine(store, spread=tasks, crew=tasks > 0)
        return Mirrored(engine, store, reader, shape, path).create()

    return make


@pytest.fixture
def orders(make: Callable[..., Mirrored]) -> Mirrored:
    return make()


class Recorded:
    """Jobs that note what each of them was made of."""

    def __init__(self, jobs: Any) -> None:
        self._jobs, self.slots, self.waves = jobs, jobs.slots, list[str]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._jobs, name)

    def run(self, specs: Sequence[task.Spec]) -> list[task.TaskResult]:
        self.waves.append(type(specs[0]).__name__)
        return list(self._jobs.run(specs))


def recorded(table: Mirrored, jobs: Any) -> Recorded:
    """Let the batches of a table be run by other jobs."""
    table.engine._direct._jobs = found = Recorded(jobs)
    return found


# -- a crew that stays together -----------------------------------------------------------------


class TestRows(RowContract):
    """What the rows of a batch do, as of every engine."""


@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(drawn=st.lists(histories(truncations=False), min_size=1, max_size=2))
def test_rows_and_feed_of_random_histories_are_those_of_the_model(
    make: Callable[..., Mirrored], drawn
) -> None:
    tables = [make(shape, f"Tables/t{next(_numbers)}") for shape, _landings in drawn]
    play(tables, [landings for _shape, landings in drawn], compacting=True)


def test_all_waves_are_one_job(orders: Mirrored) -> None:
    filled(orders)
    jobs = recorded(orders, ThreadJobs(CREW))
    orders.apply(BATCH[:80], BATCH[80:])
    assert jobs.waves == ["MemberSpec"]
    holds_batch(orders)
    assert not orders.store.list(SCRATCH).folders


def test_tasks_of_spark_are_a_crew_too(spark: Spark, store: LocalStore) -> None:
    engine = SparkEngine(spark, store, compaction=False)
    always, jobs = AlwaysSpread(store, no_crash, SpreadSettings(rest=0)), Recorded(engine._jobs)
    engine._strategies[Way.DIRECT] = Direct(jobs, engine._committer, store, no_crash, always)
    orders = Mirrored(engine, store, SparkReader(spark.session, store), ORDERS)
    filled(orders.create())
    orders.apply(BATCH[:80], BATCH[80:])
    holds_batch(orders)
    for _time in range(9):  # on a busy machine one of them may not come in time
        jobs.waves.clear()
        orders.apply([(UPSERT, (n, "b", None)) for n in range(20)])
        if jobs.waves == ["MemberSpec"]:
            return
    pytest.fail("no crew came together")


def test_the_answer_is_that_of_one_task(make: Callable[..., Mirrored]) -> None:
    """Counts, and the rows read of each file, which the commit says."""
    batch = [(INSERT, (n, "a", None)) for n in range(9)]
    more = [(UPSERT, (n, "b", None)) for n in range(5, 15)] + [(DELETE, (2, None, None))]
    many, one = make(path="Tables/many"), make(path="Tables/one", tasks=0)
    for table in (many, one):
        table.apply(batch + batch[:3])
    answers = [table.apply(more[:4], more[4:], rows=15).counts for table in (many, one)]
    assert answers[0] == answers[1]
    said = [table.reader.commit(table.path, 2)["userMetadata"] for table in (many, one)]
    assert said[0] == said[1]


def test_what_is_no_batch_for_pieces_is_given_up_as_ever(orders: Mirrored) -> None:
    for name in ("a", "b"):
        orders.apply([(INSERT, (1, name, None)), (INSERT, (2, name, None))])
    with capture_logs() as logs:
        orders.apply([(UPDATE, (1, "c", None))])
    (given_up,) = [line for line in logs if line["event"] == "spread_given_up"]
    assert given_up["reason"] == "a key with rows in files of several tasks"
    assert sorted(name for _id, name, _note in orders.rows()) == ["a", "b", "c"]


def test_an_error_is_that_of_one_task(make: Callable[..., Mirrored]) -> None:
    bad = [(INSERT, (n, "a", None)) for n in range(9)], [(INSERT, (None, "b", None))]
    failed = []
    for path, tasks in (("Tables/many", CREW), ("Tables/one", 0)):
        table = make(path=path, tasks=tasks)
        step = table.step(*bad)
        for file in step.files[1:]:
            Path(table.store.location(file.path)).write_bytes(b"PAR1 no more of it PAR1")
        outcome = table.run(step)
        assert isinstance(outcome, Failed)
        failed.append(str(outcome.error).replace(f"table {step.table}", ""))
    assert failed[0] == failed[1]


# -- a crew that does not -----------------------------------------------------------------------


@pytest.mark.usefixtures("in_haste")
def test_tasks_that_do_not_run_at_once_leave_it_to_waves_and_are_not_tried_soon_again(
    orders: Mirrored,
) -> None:
    """There are fewer slots than there were."""
    filled(orders)
    orders.engine._direct._spread = AlwaysSpread(
        orders.store, lambda _point: None, SpreadSettings(rest=2)
    )
    jobs = recorded(orders, HereJobs(CREW))
    waves = ["DealSpec", "FoldSpec", "TakeSpec", "WriteSpec"]
    with capture_logs() as logs:
        orders.apply(BATCH)
    assert jobs.waves == ["MemberSpec", *waves]
    assert [line["tasks"] for line in logs if line["event"] == "crew_incomplete"] == [CREW]
    holds_batch(orders)
    for _again in range(2):
        orders.apply([(UPSERT, (1, "again", None))])
    assert jobs.waves == ["MemberSpec", *waves * 3]
    orders.apply([(UPSERT, (2, "again", None))])
    assert jobs.waves == ["MemberSpec", *waves * 3, "MemberSpec", *waves]


class Dying(ThreadJobs):
    """A member dies at a kind of piece, before or after it, and is run again or not."""

    def __init__(self, kind: type[task.Spec], *, after: bool, again: bool) -> None:
        super().__init__(CREW)
        self._kind, self._after, self._again = kind, after, again
        self._died = threading.Lock()

    def run(self, specs: Sequence[task.Spec]) -> list[task.TaskResult]:
        if not isinstance(specs[0], crew.MemberSpec):
            return super().run(specs)
        return self.map(self._member, specs)

    def _member(self, spec: crew.MemberSpec) -> task.TaskResult:
        try:
            return task.run(spec)
        except SystemExit:
            if self._again:
                return task.run(spec)
            return task.TaskResult(handed=crew.Report({}, waited=False))

    def at(self, spec: task.Spec, work: Callable[[task.Spec], task.TaskResult]) -> task.TaskResult:
        dies = isinstance(spec, self._kind) and self._died.acquire(blocking=False)
        if dies and not self._after:
            raise SystemExit
        result = work(spec)
        if dies:
            raise SystemExit
        return result


@pytest.mark.parametrize("again", [True, False], ids=["run again", "gone"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("kind", [DealSpec, FoldSpec, TakeSpec, WriteSpec])
def test_a_member_that_dies_costs_time_only(
    orders: Mirrored, monkeypatch: pytest.MonkeyPatch, kind: Any, after: bool, again: bool
) -> None:
    filled(orders)
    if not again:
        monkeypatch.setattr(crew, "PATIENCE", 1.0)
    dying = Dying(kind, after=after, again=again)
    jobs, work = recorded(orders, dying), task.run
    monkeypatch.setattr(crew.task, "run", lambda spec: dying.at(spec, work))
    orders.apply(BATCH[:80], BATCH[80:])
    holds_batch(orders)
    assert (jobs.waves == ["MemberSpec"]) == again


def test_a_member_that_runs_twice_at_once_doubles_nothing(orders: Mirrored) -> None:
    """As Spark may, of what takes long."""

    class Twice(ThreadJobs):
        def run(self, specs: Sequence[task.Spec]) -> list[task.TaskResult]:
            self.slots = 2 * CREW
            answers = super().run([spec for spec in specs for _time in range(2)])
            return answers[1::2]

    filled(orders)
    jobs = recorded(orders, Twice(CREW))
    jobs.slots = CREW
    orders.apply(BATCH[:80], BATCH[80:])
    assert jobs.waves == ["MemberSpec"]
    holds_batch(orders)


def test_an_answer_that_is_gone_again_is_not_taken_for_none(
    orders: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A storage may show a file to one look and not to the next."""
    filled(orders)
    jobs, read, gone = recorded(orders, ThreadJobs(CREW)), crew_board.Board.read, threading.Lock()

    def sometimes(index: Any, name: str, kind: Any) -> Any:
        found = read(index, name, kind)
        return None if found and name == "2-1" and gone.acquire(blocking=False) else found

    monkeypatch.setattr(crew_board.Board, "read", sometimes)
    orders.apply(BATCH[:80], BATCH[80:])
    assert gone.locked()
    assert jobs.waves == ["MemberSpec", "WriteSpec"]
    holds_batch(orders)


def test_a_member_that_cannot_say_what_it_found_says_at_least_that(
    orders: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk of the scratch folder is full for one of them: nobody waits, and it is told."""
    filled(orders)
    jobs, put, full = recorded(orders, ThreadJobs(CREW)), crew_board.Board.put, threading.Lock()

    def refuse(index: Any, name: str, facts: Any) -> None:
        if name.startswith("1-") and full.acquire(blocking=False):
            raise OSError(errno.ENOSPC, "No space left on device")
        put(index, name, facts)

    monkeypatch.setattr(crew_board.Board, "put", refuse)
    with capture_logs() as logs:
        orders.apply(BATCH[:80], BATCH[80:])
    (told,) = [line for line in logs if line["event"] == "crew_incomplete"]
    assert told["errors"] == ["internal"]
    assert jobs.waves[0] == "MemberSpec"
    holds_batch(orders)


@pytest.mark.usefixtures("in_haste")
def test_a_member_whose_piece_is_far_longer_is_not_waited_for(
    orders: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others have slots that are better used."""
    filled(orders)
    jobs, work, slow = recorded(orders, ThreadJobs(CREW)), task.run, threading.Lock()

    def run(spec: task.Spec) -> task.TaskResult:
        if isinstance(spec, TakeSpec) and slow.acquire(blocking=False):
            time.sleep(3)
        return work(spec)

    monkeypatch.setattr(crew.task, "run", run)
    with capture_logs() as logs:
        orders.apply(BATCH[:80], BATCH[80:])
    assert any(line["event"] == "crew_incomplete" for line in logs)
    assert jobs.waves == ["MemberSpec", "WriteSpec"]
    holds_batch(orders)


def test_a_batch_of_which_a_member_has_nothing_to_read_is_none_for_a_crew(
    orders: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text is read by one task, however large it is."""
    filled(orders)
    monkeypatch.setattr(spread, "shares", lambda landed, _count: [tuple(landed)])
    jobs = recorded(orders, ThreadJobs(CREW))
    orders.apply(BATCH)
    assert jobs.waves == ["DealSpec", "FoldSpec", "TakeSpec", "WriteSpec"]


def test_a_batch_whose_pieces_do_not_fit_together_is_given_up(
    orders: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(orders)
    true = course.stretches
    monkeypatch.setattr(course, "stretches", lambda *args: true(*args)[1:])
    with capture_logs() as logs:
        orders.apply(BATCH[:80], BATCH[80:])
    (told,) = [line for line in logs if line["event"] == "spread_given_up"]
    assert told["reason"] == "pieces that do not fit together"
    holds_batch(orders)


def test_a_crew_whose_tasks_die_with_their_processes_is_an_error_of_the_table(
    orders: Mirrored,
) -> None:
    class Lost(ThreadJobs):
        def run(self, specs: Sequence[task.Spec]) -> list[task.TaskResult]:
            return [task.TaskResult(error=lost(spec.table, "it was killed")) for spec in specs]

    filled(orders)
    recorded(orders, Lost(CREW))
    outcome = orders.run(orders.step(BATCH))
    assert isinstance(outcome, Failed)
    assert "it was killed" in str(outcome.error)
    assert {name for _id, name, _note in orders.rows()} == {"old"}


# -- when ---------------------------------------------------------------------------------------


def step_of(rows: int, size: int = 1) -> ApplyFiles:
    facts: dict[str, Any] = {"table": TableId("", "t"), "path": "", "folder": "", "files": ()}
    facts |= {"first": 1, "last": 1, "key": ("id",), "default": INSERT}
    return ApplyFiles(rows=rows, size=size, **facts)


def test_only_a_batch_that_is_alone_and_not_very_large_keeps_its_slots(store: LocalStore) -> None:
    ours = Spread(store, lambda _point: None)
    large, larger = step_of(1_000_000), step_of(3_000_000)
    assert ours.is_for_crew(large, [large], slots=2)
    assert not ours.is_for_crew(large, [large, step_of(1)], slots=2)
    assert not ours.is_for_crew(larger, [larger], slots=5)
    assert ours.is_for_crew(larger, [larger], slots=6)
    wide = step_of(1_000, size=2 << 30)
    assert not ours.is_for_crew(wide, [wide], slots=2)


def test_there_is_one_crew_at_a_time(make: Callable[..., Mirrored]) -> None:
    """Each of two would wait for slots that the other has."""
    orders, other = filled(make()), filled(make(path="Tables/other"))
    other.engine._direct._spread = orders.engine._direct._spread
    seen: list[list[str]] = []

    class Meanwhile(ThreadJobs):
        def run(self, specs: Sequence[task.Spec]) -> list[task.TaskResult]:
            if not seen:
                jobs = recorded(other, ThreadJobs(CREW))
                other.apply(BATCH)
                seen.append(jobs.waves)
            return super().run(specs)

    jobs = recorded(orders, Meanwhile(CREW))
    orders.apply(BATCH)
    assert seen == [["DealSpec", "FoldSpec", "TakeSpec", "WriteSpec"]]
    assert jobs.waves == ["MemberSpec"]
    holds_batch(orders)
    holds_batch(other)


# -- what is handed on --------------------------------------------------------------------------

_counts = st.integers(0, 2**40)
_texts = st.text(max_size=5)
HANDED = st.one_of(
    st.builds(
        Dealt,
        _texts,
        st.lists(_texts).map(tuple),
        st.lists(st.tuples(*[_counts] * 4)).map(tuple),
        _texts,
        st.booleans(),
    ),
    st.builds(
        Folded,
        _texts,
        st.lists(st.lists(_counts).map(tuple)).map(tuple),
        _texts,
        _counts,
        st.lists(_counts).map(tuple),
    ),
    st.builds(
        Taken,
        st.lists(_texts).map(tuple),
        _counts,
        _counts,
        st.lists(st.binary()).map(tuple),
        st.lists(st.binary()).map(tuple),
    ),
)


@settings(suppress_health_check=list(HealthCheck))
@given(handed=HANDED)
def test_what_is_left_for_others_is_what_they_find(tmp_path: Path, handed: Any) -> None:
    left = crew_board.Board(tmp_path)
    left.put("0-0", asdict(handed))
    found = left.read("0-0", type(handed))
    assert found is not None
    assert found.handed == handed
    assert left.read("0-1", type(handed)) is None


@given(done=st.sets(st.tuples(st.integers(0, 3), st.integers(0, 2))))
def test_what_has_been_done_is_not_done_again(done: set[tuple[int, int]]) -> None:
    """Whichever pieces those are, each piece is done once and every answer has its place."""

    def course() -> Waves[list[Any]]:
        found: list[Any] = []
        for wave in range(4):
            found += [(yield [(wave, index) for index in range(wave % 3 + 1)])]
        return found

    ran: list[Any] = []

    def run(specs: Sequence[Any]) -> list[Any]:
        ran.extend(specs)
        return [("made", one) for one in specs]

    ((found),) = together([crew.resumed(course(), {at: ("known", at) for at in done})], run)
    every = {(wave, index) for wave in range(4) for index in range(wave % 3 + 1)}
    assert sorted(ran) == sorted(every - done)
    assert [one for wave in found for _how, one in wave] == sorted(every)
    assert {one for wave in found for how, one in wave if how == "known"} == every & done


def test_an_error_of_the_course_is_an_error_of_what_is_resumed() -> None:
    def course() -> Waves[list[Any]]:
        yield [None]
        raise MirrorlakeError("no")

    with pytest.raises(MirrorlakeError):
        together([crew.resumed(course(), {(0, 0): task.TaskResult()})], lambda specs: [])
