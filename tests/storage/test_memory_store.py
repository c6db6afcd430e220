"""The store of the tests is a store like any other, and can die."""

from __future__ import annotations

from typing import BinaryIO

import pytest

from mirrorlake.storage.store import Store
from tests.conformance.store import StoreContract, names, stage
from tests.doubles.clock import SteppedClock
from tests.doubles.memory_store import Crash, Effect, MemoryStore, crash_at


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore(SteppedClock())


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def alive(clock: SteppedClock) -> MemoryStore:
    return MemoryStore(clock)


def test_times_are_those_of_the_clock(clock: SteppedClock, alive: MemoryStore) -> None:
    clock.advance(90)
    alive.create("a", b"x")
    assert alive.list("").files[0].modified == clock.now().timestamp()


def test_the_hook_is_called_before_and_after_each_effect(clock: SteppedClock) -> None:
    heard: list[Effect] = []
    MemoryStore(clock, heard.append).create("a", b"x")
    assert heard == [Effect("create", "a", done=False), Effect("create", "a", done=True)]


def test_a_crash_before_an_effect_prevents_it(alive: MemoryStore) -> None:
    with pytest.raises(Crash):
        alive.reopened(crash_at(1)).create("a", b"x")
    assert names(alive, "") == []


def test_a_crash_after_an_effect_keeps_it(alive: MemoryStore) -> None:
    with pytest.raises(Crash):
        alive.reopened(crash_at(2)).create("a", b"x")
    assert names(alive, "") == ["a"]


def test_a_store_does_not_write_after_a_crash(alive: MemoryStore) -> None:
    dead = alive.reopened(crash_at(1))
    for _attempt in range(2):
        with pytest.raises(Crash):
            dead.create("a", b"x")
    assert names(alive, "") == []


def test_a_store_does_not_read_after_a_crash(alive: MemoryStore) -> None:
    alive.create("a", b"x")
    dead = alive.reopened(crash_at(1))
    with pytest.raises(Crash):
        dead.delete("a")
    with pytest.raises(Crash):
        dead.read("a")


def test_a_file_that_was_being_staged_at_the_crash_stays_unfinished(alive: MemoryStore) -> None:
    with pytest.raises(Crash):
        stage(alive.reopened(crash_at(3)), b"rows")
    assert names(alive, "zone/t") == ["_stage-1"]
    assert alive.read("zone/t/_stage-1") == b""


def test_a_crash_within_publication_leaves_both_names(alive: MemoryStore) -> None:
    stage(alive, b"rows")
    with pytest.raises(Crash):
        alive.reopened(crash_at(2)).publish("zone/t/_stage-1", "zone/t/1")
    assert names(alive, "zone/t") == ["1", "_stage-1"]


def test_a_writer_left_open_by_a_crash_has_no_effect(alive: MemoryStore) -> None:
    dead = alive.reopened(crash_at(3))
    staging = dead.stage("_a")
    file: BinaryIO = staging.__enter__()
    with pytest.raises(Crash):
        dead.create("b", b"x")
    file.write(b"late")
    del staging, file
    assert alive.read("_a") == b""
