"""Tables and schemas whose names have dots, from a live PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.app.mirror import Mirror
from mirrorlake.app.reset import plan_reset
from mirrorlake.app.targets.keeper import TargetKeeper
from mirrorlake.app.targets.target_status import targets_of
from mirrorlake.app.verification.verify import VerifySettings, verify
from mirrorlake.capture.backfill.jobs import BackfillJobState
from mirrorlake.capture.records.records import Records
from mirrorlake.config import Project, load
from mirrorlake.model.clock import WallClock
from mirrorlake.model.crash_points import no_crash
from mirrorlake.root import LANDING
from mirrorlake.storage.local import LocalStore
from tests.app.applying import Applying
from tests.cli.conftest import Run, run
from tests.conftest import Database
from tests.doubles.handmade_engine import in_process_engine
from tests.events.values import decoded
from tests.profiles import some

__all__ = ["run"]

pytestmark = pytest.mark.postgres

ONE, OTHER, DOTTED = 'xx."y.z"', '"xx.y".z', 'public."v1.0"'
ALIKE = """
create schema xx; create schema "xx.y";
create table xx."y.z" (id int primary key, v text);
create table "xx.y".z (id int primary key, v text);
insert into xx."y.z" values (1, 'a'), (2, 'bb');
insert into "xx.y".z values (1, 'other'), (3, 'others');
"""
VERSIONED = """
create table "v1.0" (id int primary key, v text);
insert into "v1.0" values (1, 'a'), (2, 'bb');
"""
REWRITTEN = (
    "alter table {table} alter v type int using length(v) * 7",
    "insert into {table} values (9, 9)",
)


class Live:
    """A database and its mirror, as a project; the JVM is left out."""

    def __init__(self, folder: Path, database: Database, setup: str, **more: Any) -> None:
        """more: members of the project."""
        self.database, self.folder = database, folder
        database.execute(setup)
        source = {"type": "postgresql", "url": database.url, "slot": database.name}
        source |= more.pop("source", {})
        self.file = folder / "mirrorlake.yaml"
        self.file.write_text(json.dumps({"name": "v", "root": "lake", "source": source, **more}))
        self.project: Project = load(self.file)
        self.once()

    @property
    def records(self) -> Records:
        return Records(LocalStore(self.folder / "lake"), LANDING)

    def once(self) -> None:
        Mirror(self.project).capture_once()
        if self.project.lands:
            loop = Applying(self.project, in_process_engine).loop()
            loop.open()
            try:
                assert not loop.once().errors
            finally:
                loop.close()

    def after(self, statements: Sequence[str], table: str) -> None:
        self.database.execute(*(one.format(table=table) for one in statements))
        self.once()
        self.once()

    def verified(self) -> dict[str, bool]:
        settings = VerifySettings(timeout=30)

        def pause(seconds: float) -> bool:
            if seconds:
                self.once()
            return False

        found = verify(self.project, [], settings, WallClock(), pause)
        return {one.table: one.is_equal for one in found.tables}

    def rename_records(self) -> int:
        """Give records the names that an earlier release wrote. Returns in how many files."""
        count = 0
        for path in (self.folder / "lake/Files").rglob("*.json"):
            text = former = path.read_text()
            for name in (ONE, OTHER, DOTTED):
                former = former.replace(json.dumps(name)[1:-1], name.replace('"', ""))
            if former != text:
                path.write_text(former)
                count += 1
        return count


@pytest.mark.parametrize("table", some([ONE, OTHER]))
def test_of_two_tables_that_print_alike_without_quotes_the_altered_one_is_read_again(
    tmp_path: Path, database: Database, table: str
) -> None:
    live = Live(tmp_path, database, ALIKE, source={"tables": ["xx.*", "xx.y.*"]})
    assert live.verified() == {ONE: True, OTHER: True}
    live.after(REWRITTEN, table)
    assert not live.records.stopped()
    assert [(one.request.table, one.state) for one in Mirror(live.project).backfills()] == [
        (table, BackfillJobState.COMPLETED)
    ]
    assert live.verified() == {ONE: True, OTHER: True}


def test_a_table_with_a_dot_is_read_again(tmp_path: Path, database: Database) -> None:
    live = Live(tmp_path, database, VERSIONED)
    live.after(REWRITTEN, DOTTED)
    assert not live.records.stopped()
    assert live.verified() == {DOTTED: True}


def test_tables_that_print_alike_without_quotes_are_event_files_of_their_own(
    tmp_path: Path, database: Database
) -> None:
    bucket = tmp_path / "bucket"
    live = Live(
        tmp_path,
        database,
        ALIKE,
        source={"tables": ["xx.*", "xx.y.*"]},
        destination={"type": "events", "url": str(bucket)},
    )
    live.after(["insert into xx.\"y.z\" values (9, 'nine')"], ONE)
    found: dict[str, list[str]] = {}
    for file in sorted(bucket.rglob("*.avro")):
        for event in decoded(file.read_bytes()):
            found.setdefault(event["object"], []).append(event["payload"]["v"])
    assert {name: sorted(values) for name, values in found.items()} == {
        "xx_y.z": ["a", "bb", "nine"],
        "xx.y_z": ["other", "others"],
    }


def folders(root: Path) -> list[Path]:
    """Those of the tables, and of their files in the landing zone."""
    return sorted([*(root / "lake/Tables").glob("*/*"), *(root / "lake").glob("*/*/*.schema/*")])


def test_a_mirror_of_an_earlier_release_goes_on(tmp_path: Path, database: Database) -> None:
    live = Live(tmp_path, database, VERSIONED)
    before = folders(tmp_path)
    database.execute("insert into \"v1.0\" values (3, 'ccc')")
    Mirror(live.project).backfill("public.v1.0")
    assert live.rename_records() >= 3
    live.once()
    (job,) = Mirror(live.project).backfills()
    assert (job.request.table, job.state) == (DOTTED, BackfillJobState.COMPLETED)
    live.after(REWRITTEN, DOTTED)
    assert live.verified() == {DOTTED: True}
    assert live.records.known().keys() == {DOTTED}
    assert not live.records.stopped()
    assert [one for one in folders(tmp_path) if one not in before] == []


def test_event_files_of_an_earlier_release_go_on(tmp_path: Path, database: Database) -> None:
    bucket = tmp_path / "bucket"
    live = Live(tmp_path, database, VERSIONED, destination={"type": "events", "url": str(bucket)})
    assert live.rename_records() >= 2
    before = len([*bucket.rglob("*.avro")])
    live.after(["insert into {table} values (3, 'ccc')"], DOTTED)
    assert len([*bucket.rglob("*.avro")]) == before + 1  # and not all rows again
    assert not live.records.stopped()
    assert live.records.known().keys() == {DOTTED}


def test_a_table_that_an_earlier_release_stopped_is_loaded_again(
    tmp_path: Path, database: Database
) -> None:
    live = Live(tmp_path, database, VERSIONED)
    live.records.stop(DOTTED, {"code": "bad_value", "message": "it was"})
    live.rename_records()
    assert live.records.stopped().keys() == {DOTTED}
    plan_reset(live.project, ["public.v1.0"]).execute()
    assert not live.records.stopped()
    live.once()
    assert live.verified() == {DOTTED: True}


@pytest.mark.parametrize("name", some(["public.v2.0", 'public."v2.0"']))
def test_a_table_with_a_dot_that_comes_later_is_left_out_until_it_is_admitted(
    tmp_path: Path, database: Database, name: str
) -> None:
    """Also where an earlier release has recorded which tables take part."""
    ignored = {"schema_change": {"table_created": "ignore"}}
    live = Live(tmp_path, database, VERSIONED, mirror=ignored)
    database.execute('create table "v2.0" (id int primary key, v text)')
    live.after(["insert into {table} values (3, 'ccc')"], DOTTED)
    for _ in range(2):
        admission = live.records.admission()
        assert admission is not None
        assert (admission.tables, admission.left_out.keys()) == ({DOTTED}, {'public."v2.0"'})
        live.rename_records()
    live.once()
    assert live.verified()[DOTTED]
    plan_reset(live.project, [name]).execute()
    live.once()
    assert live.verified() == {DOTTED: True, 'public."v2.0"': True}


@pytest.mark.parametrize("name", ["public.v1.0", DOTTED])
def test_targets_find_their_table_by_its_plain_and_its_printed_name(
    tmp_path: Path, database: Database, name: str
) -> None:
    live = Live(
        tmp_path,
        database,
        VERSIONED,
        histories=[{"table": name}],
        archives=[{"table": name, "to": "public.all"}],
        mirror={"tables": {name: {"change_log": True}}},
    )
    keeper = TargetKeeper(live.project, WallClock(), no_crash)
    assert keeper.once() == {}
    found = {one.target: (one.table, one.covered) for one in targets_of(live.project)}
    assert found == {
        'public."v1.0_history"': (DOTTED, 0),
        "public.all": (DOTTED, 0),
        'public."v1.0_change_log"': (DOTTED, 0),
    }


@pytest.mark.parametrize("name", ["public.v1.0", DOTTED])
def test_every_command_finds_a_table_by_its_plain_and_its_printed_name(
    tmp_path: Path, database: Database, run: Run, name: str
) -> None:
    live = Live(tmp_path, database, VERSIONED)
    config = ("--config", str(live.file))
    for command in (
        ("feed", name, "--from", "0"),
        ("trace", name, "1"),
        ("files", name),
        ("read", name, "--root", "lake", "--csv", "rows.csv"),
        ("backfill", name),
        ("backfill", name, "--stop"),
        ("history", name, "--to", str(tmp_path / "history")),
        ("archive", name, "--to", str(tmp_path / "archive")),
        ("reset", name, "--dry-run"),
        ("feed-views", name),
    ):
        where = () if command[0] == "read" else config
        done = run(*command[:1], *where, *command[1:])
        assert done.code == 0, (command, done)
