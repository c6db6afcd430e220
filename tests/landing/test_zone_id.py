"""The mark of a zone: it is known again, and nobody else's is taken for it."""

from __future__ import annotations

import pytest

from mirrorlake import root
from mirrorlake.delta import tables
from mirrorlake.landing import layout, zone_id
from mirrorlake.storage.local import LocalStore

ZONE = root.LANDING


def test_a_marked_zone_is_recognized(store: LocalStore) -> None:
    assert not zone_id.is_marked(store, ZONE)
    zone_id.mark(store, ZONE)
    assert zone_id.is_marked(store, ZONE)
    assert zone_id.is_marked(LocalStore(store.root), ZONE)


def test_a_mirror_keeps_its_id(store: LocalStore) -> None:
    first = zone_id.mirror_id(store)
    zone_id.mark(store, ZONE)
    assert zone_id.mirror_id(store) == first


def test_the_mark_of_another_mirror_stays_and_is_not_ours(store: LocalStore) -> None:
    store.replace(f"{ZONE}/{zone_id.MARK}", b'{"mirrorlake": 1, "id": "another"}')
    zone_id.mark(store, ZONE)
    assert not zone_id.is_marked(store, ZONE)
    assert b"another" in store.read(f"{ZONE}/{zone_id.MARK}")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"id": 7}', b"\xff"])
def test_a_damaged_mark_counts_as_missing(store: LocalStore, content: bytes) -> None:
    zone_id.mark(store, ZONE)
    store.replace(f"{ZONE}/{zone_id.MARK}", content)
    assert not zone_id.is_marked(store, ZONE)


@pytest.mark.clause("LZ-021")
def test_the_mark_is_not_a_table(store: LocalStore) -> None:
    zone_id.mark(store, ZONE)
    assert list(layout.table_folders(store, ZONE)) == []


class TestTablesBelowARoot:
    @pytest.fixture(autouse=True)
    def tables(self, store: LocalStore) -> None:
        for path in ("t", "s/t", "s/u"):
            store.create(f"Tables/{path}/_delta_log/{0:020d}.json", b"")
        store.create("Tables/s/files/a.parquet", b"")
        store.create(f"Tables/t/part/_delta_log/{0:020d}.json", b"")

    def test_tables_are_found_at_two_levels(self, store: LocalStore) -> None:
        assert set(tables.delta_tables(store)) == {"Tables/t", "Tables/s/t", "Tables/s/u"}

    def test_known_tables_are_skipped(
        self, store: LocalStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        looked, whole = [], LocalStore.list
        monkeypatch.setattr(
            LocalStore, "list", lambda self, path: looked.append(path) or whole(self, path)
        )
        known = {"Tables/t", "Tables/s/t"}
        assert list(tables.delta_tables(store, known)) == ["Tables/s/u"]
        assert not known & set(looked)
