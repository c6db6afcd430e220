"""The commit that creates a table, where the storage or others are in the way."""

from __future__ import annotations

import errno
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from mirrorlake.apply import engine as engines
from mirrorlake.apply.in_process.tables import LogTables
from mirrorlake.delta.log.first_commit import is_begun
from mirrorlake.mirror.engine import Applied, Conflicted, Failed
from mirrorlake.mirror.faults import UnreachableTable
from mirrorlake.model import types
from mirrorlake.storage.local import LocalStore
from mirrorlake.storage.store import Store
from tests.conformance.apply.creation import first
from tests.conformance.apply.scenario import insert
from tests.conformance.mirrored import Mirrored
from tests.doubles.handmade_engine import HandmadeReader, in_process_engine
from tests.histories import Shape

SHAPE = Shape.of(["id"], id=types.LONG)


@pytest.fixture
def new(store: LocalStore) -> Mirrored:
    return Mirrored(in_process_engine(store), store, HandmadeReader(store), SHAPE, "Tables/new")


def test_a_folder_that_is_removed_before_the_commit_is_made_anew(new: Mirrored) -> None:
    step = first(new, [insert(1)])
    outcome = new.run(step, lambda: shutil.rmtree(new.store.location(new.path)))
    assert isinstance(outcome, Conflicted)
    assert isinstance(new.run(step), Applied)
    assert new.rows() == [(1,)]


@pytest.mark.clause("LZ-258")
def test_a_table_that_another_created_after_the_plan_is_not_written(new: Mirrored) -> None:
    step = first(new, [insert(1)])
    replace(new, engine=in_process_engine(new.store)).create(generation="of another")
    assert isinstance(new.run(step), Conflicted)
    assert new.rows() == []


def test_a_full_disk_stops_that_table_alone(new: Mirrored, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Mirrored(new.engine, new.store, new.reader, SHAPE, "Tables/other")
    begin = engines.begin

    def full(store: Store, path: str) -> None:
        if path == new.path:
            raise OSError(errno.ENOSPC, "No space left on device")
        begin(store, path)

    monkeypatch.setattr(engines, "begin", full)
    steps = [first(new, [insert(1)]), first(other, [insert(2)])]
    refused, applied = new.engine.apply(steps, lambda: None)
    assert isinstance(refused, Failed)
    assert isinstance(refused.error, UnreachableTable)
    assert "no space left on device" in refused.error.what
    assert isinstance(applied, Applied)
    monkeypatch.undo()
    assert isinstance(new.run(steps[0]), Applied)
    assert (new.rows(), other.rows()) == ([(1,)], [(2,)])


def test_a_table_that_cannot_be_created_before_stops_alone(
    new: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(LogTables, "create", refuse)
    monkeypatch.setattr(LogTables, "metadata_of", lambda *_arguments: None)
    outcome = new.run(first(new, [insert(1)]))
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, UnreachableTable)


def test_the_marker_of_a_process_that_ended_after_its_commit_goes_with_the_next_batch(
    new: Mirrored,
) -> None:
    location = new.store.location(new.path)
    assert isinstance(new.run(first(new, [insert(1)])), Applied)
    assert is_begun(location)
    later = new.apply([insert(2)])
    new.engine.make_durable(new.path, later.version)
    assert not is_begun(location)


def test_files_of_somebody_else_stay_and_the_table_is_created_before(new: Mirrored) -> None:
    theirs = Path(new.store.location(new.path), "theirs.parquet")
    theirs.parent.mkdir(parents=True)
    theirs.touch()
    assert not new.engine.creates_with_batch(new.creation())
    outcome = new.run(first(new, [insert(1)]))
    assert isinstance(outcome, Applied)
    assert outcome.version == 1
    assert theirs.exists()
