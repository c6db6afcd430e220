"""Large tables are read by tasks of the mirror, which may die, come late, or fail."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq
import pytest

from mirrorlake import root
from mirrorlake.app.mirror import Mirror
from mirrorlake.app.running import load_tasks
from mirrorlake.app.running.load_tasks import LoadTaskRunner
from mirrorlake.app.stores import store_of
from mirrorlake.apply.in_process.runner import InProcessRunner
from mirrorlake.apply.runner import TasksDied
from mirrorlake.capture.landing import stage_part
from mirrorlake.capture.landing.load_tasks import LoadTasks, PartAnswer, PartFailure, TableTasks
from mirrorlake.capture.landing.remote_parts import PATIENCE, RemoteParts
from mirrorlake.capture.landing.stage_part import PartTask
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.config import Project
from mirrorlake.errors import (
    PrerequisiteMissing,
    SourceUnavailable,
    SparkUnavailable,
    UnsupportedTable,
)
from mirrorlake.landing import layout
from mirrorlake.model.clock import WallClock
from mirrorlake.sources.postgresql.settings import PostgresSettings
from mirrorlake.storage.local import LocalStore
from tests.conformance.scene import until
from tests.conftest import Database

ROWS = 2_000
PAGES = 4
TABLES = (
    "create table large (id int primary key, note text, day date)",
    f"""insert into large select g, repeat('x', 100), case when g = 7 then date 'infinity' end
        from generate_series(1, {ROWS}) g""",
    "create table small (id int primary key)",
    "insert into small values (1)",
)
SETTINGS = CaptureSettings(parts_on_spark=True, debounce_seconds=0.01)

END_SNAPSHOT = """
    select pg_terminate_backend(pid, 5000) from pg_stat_activity
    where backend_type = 'walsender' and datname = current_database()
"""

Hook = Callable[[PartTask], None]


class Tasks(InProcessRunner):
    """Runs tasks here. before, after: called with each."""

    def __init__(self, before: Hook = lambda _t: None, after: Hook = lambda _t: None) -> None:
        super().__init__(slots=3)
        self.before, self.after = before, after
        self.begun: list[int] = []
        self.answers: list[PartAnswer] = []

    def run(self, work: Any, items: Sequence[Any], packing: Any = None) -> list[Any]:
        (task,) = items
        self.begun.append(task.number)
        self.before(task)
        found = super().run(work, items, packing)
        self.after(task)
        self.answers += found
        return found


class Refusing(InProcessRunner):
    """Each task answers that its table cannot be read."""

    def run(self, work: Any, items: Any, packing: Any = None) -> list[Any]:
        code = UnsupportedTable.code
        return [PartAnswer(failure=PartFailure.TABLE, code=code, what="no", hint="Yes.")]


@dataclass
class Scene:
    database: Database
    root: Path
    tasks: InProcessRunner = field(default_factory=Tasks)

    @property
    def project(self) -> Project:
        source = self.database.settings(part_bytes=PAGES * 8192)
        return Project("shop", self.root, source, SETTINGS)

    @property
    def folder(self) -> Path:
        return self.root / root.LANDING / "public.schema" / "large"

    @contextmanager
    def mirror(self, project: Project | None = None) -> Iterator[None]:
        """What runs the tasks meanwhile."""
        project = project or self.project
        with LoadTaskRunner(project, store_of(project), lambda: self.tasks).running(alone=False):
            yield

    def load(self, project: Project | None = None) -> None:
        with self.mirror(project), closing(Mirror(self.project).capture()) as capture:
            capture.open()
            capture.once()

    def rows(self) -> list[int]:
        """The ids in the files of the load."""
        files = sorted(self.folder.glob("0*.parquet"))
        found = [pq.read_table(file) for file in files]
        return sorted(
            i for t in found if "__rowMarker__" not in t.column_names for i in t["id"].to_pylist()
        )

    def staged(self) -> list[str]:
        return [file.name for file in self.folder.glob(f"{stage_part.STAGED}*")]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_tasks, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(stage_part, "REACH_PAUSES", (0.0,))


@pytest.fixture
def scene(database: Database, tmp_path: Path) -> Scene:
    database.execute(*TABLES)
    return Scene(database, tmp_path / "root")


@pytest.mark.full
@pytest.mark.postgres
def test_parts_are_read_in_the_snapshot_while_rows_change(scene: Scene) -> None:
    def change(task: PartTask) -> None:
        with psycopg.connect(scene.database.url, autocommit=True) as sql:
            sql.execute("delete from large where id = %s", [1 + task.number])
            sql.execute("insert into large values (%s, '')", [ROWS + 1 + task.number])

    scene.tasks = tasks = Tasks(change)
    scene.load()
    assert scene.rows() == list(range(1, ROWS + 1))
    assert len(tasks.begun) > 5
    assert not scene.staged()
    assert not list(scene.root.glob("**/load_tasks/*"))
    assert [dict(one.replaced) for one in tasks.answers if one.replaced] == [{"day": 1}]


@pytest.mark.full
@pytest.mark.postgres
def test_only_the_files_of_the_answered_attempt_count(scene: Scene) -> None:
    def die(task: PartTask) -> None:
        if tasks.begun.count(task.number) == 1:
            raise TasksDied("its executor was lost")

    scene.tasks = tasks = Tasks(after=die)
    scene.load()
    assert scene.rows() == list(range(1, ROWS + 1))
    assert len(tasks.begun) == 2 * len(tasks.answers) > 10
    assert not scene.staged()


@pytest.mark.postgres
@pytest.mark.full
def test_what_a_late_attempt_wrote_is_deleted_by_the_next_start(scene: Scene) -> None:
    scene.load()
    late = scene.folder / f"{stage_part.STAGED}1-0-late.parquet"
    late.write_bytes(b"late")
    scene.load()
    assert not late.exists()
    assert scene.rows() == list(range(1, ROWS + 1))


@pytest.mark.postgres
@pytest.mark.full
def test_a_load_whose_snapshot_is_lost_keeps_the_parts_that_were_read(scene: Scene) -> None:
    def lose(task: PartTask) -> None:
        if task.number == 3:
            scene.database.execute(END_SNAPSHOT)

    scene.tasks = first = Tasks(lose)
    with pytest.raises(SourceUnavailable, match=r"snapshot|public\.large"):
        scene.load()
    assert not scene.rows()
    scene.database.execute(
        "delete from large where id % 10 = 0; update large set note = 'new' where id % 10 = 1",
        f"insert into large values ({ROWS + 1}, 'new')",
    )
    scene.tasks = second = Tasks()
    scene.load()
    assert scene.rows() == [number for number in range(1, ROWS + 2) if number % 10]
    assert {0, 1, 2} <= {*first.begun}
    assert len({0, 1, 2} - {*second.begun}) >= 2, "two at a time are read, and kept"
    assert not scene.staged()


@pytest.mark.postgres
@pytest.mark.full
def test_parts_of_a_load_that_has_ended_are_not_begun_though_its_folder_is_there_again(
    scene: Scene,
) -> None:
    """What the mirror writes late makes it again. The next load would wait for all of them."""
    store, records = store_of(scene.project), layout.stream_folder(root.LANDING)
    asked: list[TableTasks | None] = []
    scene.tasks = Tasks(lambda _task: asked.append(LoadTasks.found(store, records)[0].tasks_of(0)))
    scene.load()
    assert asked[0] is not None
    ended = threading.Event()
    scene.tasks = tasks = Tasks(lambda _task: ended.wait(60))
    mirror = LoadTaskRunner(scene.project, store, lambda: tasks)
    load = LoadTasks.begin(store, records)
    load.ask(0, asked[0])
    mirror.look()
    until(lambda: len(tasks.begun) == 2)  # as many as are read at a time
    load.end()
    load.take()
    mirror.look()
    ended.set()
    until(lambda: len(tasks.answers) == 2)
    WallClock().sleep(0.3)
    assert len(tasks.begun) == 2


@pytest.mark.postgres
@pytest.mark.full
def test_a_table_that_is_rewritten_meanwhile_is_read_anew(scene: Scene) -> None:
    def rewrite(task: PartTask) -> None:
        if tasks.begun.count(2) == 1 and task.number == 2:
            scene.database.execute("vacuum full large")

    scene.database.execute("delete from large where id % 3 = 0")
    scene.tasks = tasks = Tasks(rewrite)
    scene.load()
    assert scene.rows() == [number for number in range(1, ROWS + 1) if number % 3]
    assert PartFailure.MOVED in {answer.failure for answer in tasks.answers}
    assert not scene.staged()


@pytest.mark.full
@pytest.mark.postgres
def test_executors_that_cannot_connect_are_an_error_with_the_host_and_a_remedy(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = load_tasks.shared_snapshot
    elsewhere = PostgresSettings("postgresql://u:hushhidden@127.0.0.1:1/db")
    monkeypatch.setattr(
        load_tasks, "shared_snapshot", lambda _settings, *facts: real(elsewhere, *facts)
    )
    with pytest.raises(PrerequisiteMissing) as raised:
        scene.load()
    said = str(raised.value)
    assert "PostgreSQL at 127.0.0.1:1" in said
    assert "load.on to capture" in said
    assert "hushhidden" not in said
    assert not scene.rows()


@pytest.mark.postgres
@pytest.mark.full
def test_a_mirror_with_another_selection_reads_nothing(scene: Scene) -> None:
    source = scene.project.source
    assert isinstance(source, PostgresSettings)
    other = replace(source, selection=replace(source.selection, rows={"public.large": "id < 10"}))
    scene.tasks = tasks = Tasks()
    with pytest.raises(SourceUnavailable, match="is not what it was"):
        scene.load(replace(scene.project, source=other))
    assert not tasks.begun


@pytest.mark.postgres
@pytest.mark.full
def test_a_table_that_cannot_be_read_stops_alone(scene: Scene) -> None:
    scene.tasks = Refusing(slots=3)
    scene.load()
    records = Records(LocalStore(scene.root), root.LANDING)
    assert records.stopped()["public.large"]["code"] == UnsupportedTable.code
    assert not scene.rows()
    assert list((scene.root / root.LANDING / "public.schema" / "small").glob("0*.parquet"))


def test_a_load_on_which_nobody_works_ends_with_a_remedy(tmp_path: Path) -> None:
    now = [0.0]
    tasks = LoadTasks.begin(LocalStore(tmp_path), "records")
    parts = RemoteParts(tasks, lambda: None, lambda: now[0])
    asked = TableTasks(
        "t", "1", "d", "e", "name", "0/1", "f", "s", "", False, 1, [(0, {"a": "b"}, True)]
    )
    (future,) = parts.submit(asked, lambda _part, _answer: None)
    for now[0] in (PATIENCE - 1, 2 * PATIENCE - 2, 3 * PATIENCE - 3):
        tasks.take()
        parts.look()
    now[0] += PATIENCE + 1
    with pytest.raises(SparkUnavailable, match="no mirror has worked") as raised:
        parts.look()
    assert "load.on" in raised.value.hint
    assert not future.done()
    assert tasks.tasks_of(0) == asked


def test_a_second_answer_does_not_count(tmp_path: Path) -> None:
    tasks = LoadTasks.begin(LocalStore(tmp_path), "records")
    assert tasks.answer(0, 1, PartAnswer(1, [("a", 1)]))
    assert not tasks.answer(0, 1, PartAnswer(1, [("b", 1)]))
    assert list(tasks.answer_of(0, 1).files) == [("a", 1)]
    assert list(tasks.answered()) == [(0, 1)]


@pytest.mark.full
@pytest.mark.postgres
def test_a_mirror_that_fails_says_so_at_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_facts: object) -> None:
        raise ModuleNotFoundError("No module named 'psycopg'")

    monkeypatch.setattr(load_tasks, "shared_snapshot", fail)
    with pytest.raises(SparkUnavailable, match="cannot read tables for a load: ModuleNotFound"):
        scene.load()
