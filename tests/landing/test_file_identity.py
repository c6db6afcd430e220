"""What tells a landed file from another of the same name."""

from __future__ import annotations

import os

import pytest

from mirrorlake.landing.file_identity import TAIL, Identity, Tails
from mirrorlake.landing.scan import Landed, data_files
from tests.doubles.clock import SteppedClock
from tests.doubles.memory_store import MemoryStore
from tests.landing.zone import name

FOLDER = "Files/LandingZone/t"
CONTENT = os.urandom(3 * TAIL)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(SteppedClock())


def landed(store: MemoryStore, content: bytes) -> Landed:
    store.replace(f"{FOLDER}/{name(1)}", content)
    return data_files(FOLDER, store.list(FOLDER))[0]


def test_an_identity_is_parsed_as_recorded(store: MemoryStore) -> None:
    found = Identity.of(store, landed(store, CONTENT))
    assert found is not None
    assert Identity.parse(found.as_record()) == found
    assert found.size == len(CONTENT)


@pytest.mark.parametrize("content", [CONTENT, CONTENT[:10]], ids=["large", "small"])
def test_files_with_different_ends_differ(store: MemoryStore, content: bytes) -> None:
    tails = Tails(store)
    one = tails(landed(store, content))
    assert tails(landed(store, content)) == one
    assert tails(landed(store, content[:-1] + bytes([content[-1] ^ 1]))) != one


def test_the_end_of_a_file_is_read_once(store: MemoryStore) -> None:
    tails, file = Tails(store), landed(store, CONTENT)
    one = tails(file)
    store.delete(file.path)
    assert tails(file) == one


def test_a_missing_file_has_no_identity(store: MemoryStore) -> None:
    file = landed(store, CONTENT)
    store.delete(file.path)
    assert Tails(store)(file) == ""
    assert Identity.of(store, file) is None
