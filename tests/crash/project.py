"""A mirror of a real database, driven through its own command line, and killed at will."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import yaml

from mirrorlake.app.loop.apply_loop import ApplyLoop
from mirrorlake.capture.landing.stage_part import STAGED
from mirrorlake.capture.staged.parts import NOTE
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.model.clock import WallClock
from mirrorlake.model.crash_points import CrashPoint, no_crash
from mirrorlake.storage.local import LocalStore
from tests.conftest import Database
from tests.crash.forked import mirrorlake
from tests.profiles import FORMAT
from tests.sim.engine import Lake, ModelledEngine, replayed

TABLES = ("a.orders", "a.items", "b.notes")

SCHEMA = """
create schema a;
create schema b;
create table a.orders (id bigint primary key, note text, long text);
alter table a.orders alter column long set storage external;
create table a.items ("order" bigint, line int, note text, primary key ("order", line));
create table b.notes (id bigint primary key, note text);
insert into a.orders select g, 'note ' || g, repeat(md5(g::text), 99)
    from generate_series(1, 60) g;
insert into a.items select g, 1, 'item ' || g from generate_series(1, 60) g;
"""

CHANGES = """
begin;
insert into a.orders select g, 'new', repeat(md5(g::text), 100) from generate_series(101, 160) g;
insert into a.items select g, n, 'new' from generate_series(101, 160) g, generate_series(1, 2) n;
update a.orders set note = 'changed' where id % 3 = 0;
commit;
begin;
update a.orders set id = id + 10000, note = 'moved' where id between 20 and 30;
delete from a.items where "order" between 20 and 30;
update a.items set note = note || '!' where "order" between 40 and 50;
insert into b.notes values (1, 'first');
commit;
update a.orders set long = repeat('x', 3000) where id between 40 and 45;
begin;
truncate b.notes;
insert into b.notes select g, 'after' from generate_series(1, 20) g;
commit;
"""

MORE = """
delete from a.orders where id % 7 = 0;
update b.notes set note = 'more' where id < 10;
insert into a.items values (5000, 1, 'late');
"""


LARGE = """
create table a.large (id bigint primary key, note text);
alter table a.large alter note set storage plain;
insert into a.large select g, repeat(md5(g::text), 60) from generate_series(1, 30000) g;
"""
PART_BYTES = "1MiB"
"""`load.part_bytes`, with which that table is read in 60 parts, which takes a while."""


@dataclass
class Project:
    """A project file beside its root."""

    folder: Path
    database: Database

    def write(self, *source: str, **capture: Any) -> None:
        """source: more lines of that section."""
        settings = "".join(f"  {name}: {value}\n" for name, value in capture.items())
        self.file.write_text(
            f"name: {self.database.name}\nroot: ./root\n"
            f"source:\n  type: postgresql\n  url: ${{TEST_URL}}\n  tables: ['a.*', 'b.*']\n"
            f"  load_workers: 1\n{FORMAT}"
            + "".join(f"  {line}\n" for line in source)
            + "spark:\n  driver_memory: 1g\n  master: local[2]\n"
            + (f"capture:\n{settings}" if settings else "")
        )

    def configure(self, section: str, **settings: Any) -> None:
        """Set more of a section of the file that was written."""
        content = yaml.safe_load(self.file.read_text())
        content.setdefault(section, {}).update(settings)
        self.file.write_text(yaml.safe_dump(content))

    @property
    def file(self) -> Path:
        return self.folder / "mirrorlake.yaml"

    def is_landed(self, table: str) -> bool:
        schema, name = table.split(".")
        return (self.root / f"Files/LandingZone/{schema}.schema/{name}").exists()

    @property
    def root(self) -> Path:
        return self.folder / "root"

    def run(self, *arguments: str) -> None:
        """Run a command to its end, which must be good."""
        done = mirrorlake(*arguments, "-c", str(self.file), TEST_URL=self.database.url)
        assert done.code == 0, done.error

    def killed_at(self, point: CrashPoint, *arguments: str, passage: int = 1) -> None:
        """Run a command that kills itself at a named point; it must get there."""
        crash = {"TEST_URL": self.database.url, "CRASH_AT": f"{point}#{passage}"}
        done = mirrorlake(*arguments, "-c", str(self.file), **crash)
        assert done.code == -signal.SIGKILL, f"{done.code}: {done.error}"

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        environment = os.environ | {"TEST_URL": self.database.url}
        return subprocess.Popen(
            [sys.executable, "-m", "mirrorlake.cli.main", *arguments, "-c", str(self.file)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    @contextmanager
    def started(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """A command that runs meanwhile. What a test that fails has left of it is killed."""
        process = self.start(*arguments)
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def source_rows(self, table: str) -> Counter[tuple[Any, ...]]:
        schema, name = table.split(".")
        return Counter(self.database.sql.execute(f'select * from "{schema}"."{name}"').fetchall())


def new_project(folder: Path, database: Database) -> Project:
    """A database with rows, and a project that has not run."""
    database.execute(SCHEMA)
    project = Project(folder, database)
    project.write()
    return project


def assert_landed(project: Project, *more: str) -> None:
    """What is landed, applied by the reference, equals the source; so does the feed of it. more:
    tables beside the usual ones."""
    store = LocalStore(project.root)
    lake = Lake()
    engine = ModelledEngine(lake, store, Random(0), no_crash, lost_answers=0.0)
    loop = ApplyLoop(store, engine, MirrorSettings(cleanup_seconds=1e9), WallClock())
    loop.open()
    report = loop.once()
    loop.close()
    assert not report.errors
    for table in (*TABLES, *more):
        mirrored = lake.tables["Tables/" + table.replace(".", "/")]
        assert Counter(mirrored.table.rows) == project.source_rows(table)
        assert replayed(mirrored) == project.source_rows(table)


def is_large_loading(project: Project) -> bool:
    """Whether parts of the table of `LARGE` are read, and none is published."""
    folder = project.root / "Files/LandingZone/a.schema/large"
    return len([*folder.glob(f"{STAGED}*{NOTE}")]) >= 3 and not [*folder.glob("0*")]
