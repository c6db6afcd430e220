"""Publishing onto objects: the same promises, where nothing can be renamed."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from obstore.store import MemoryStore

from mirrorlake.errors import LeaseHeld, NameTaken
from mirrorlake.publisher import Outcome, Publisher
from mirrorlake.storage.object_file import WHOLE
from mirrorlake.storage.objects import ObjectStore
from mirrorlake.storage.urls import open_store
from tests.doubles.memory_store import Crash
from tests.histories import counted
from tests.objects import S3Server, dying
from tests.publisher.mirrored_zone import Zone
from tests.publisher.test_round_trip import Script, _is_plain, scripts

ROWS = [{"id": n, "v": f"v{n}"} for n in range(5)]


@pytest.fixture
def bucket(s3: S3Server) -> ObjectStore:
    found = open_store(f"{s3.new_bucket()}/shop", s3.options)
    assert isinstance(found, ObjectStore)
    return found


def memory() -> ObjectStore:
    return ObjectStore(MemoryStore(), "memory://")


@pytest.mark.clause("LZ-327")
@settings(max_examples=settings.default.max_examples // 10)
@given(scripts().filter(_is_plain))
def test_the_mirror_has_the_rows_that_were_published(script: Script) -> None:
    zone = Zone(memory())
    script.run(zone)
    assert counted(zone.mirrored("s.t").table.rows) == script.expected()


@pytest.mark.clause("LZ-327", "LZ-135", "LZ-136")
@settings(max_examples=settings.default.max_examples // 4)
@given(scripts().filter(_is_plain), st.integers(1, 120), st.integers(1, 120))
def test_it_has_them_through_crashes_and_repeats(script: Script, first: int, second: int) -> None:
    store = memory()
    zone = Zone(store)
    for step in (first, second):
        zone.store = dying(store, step)
        with suppress(Crash):
            script.run(zone, mirrored=False)
        zone.store = store
        zone.clock.advance(60)
    script.run(zone)
    assert counted(zone.mirrored("s.t").table.rows) == script.expected()
    names = [entry.name for entry in store.list(zone.folder("s.t")).files]
    assert [name for name in names if name.endswith("quet") and name.startswith("_")] == []


def wide(count: int) -> list[dict[str, Any]]:
    """Rows that make a file too large to be put at one stroke."""
    return [{"id": n, "v": f"{n:x}" * 400} for n in range(count)]


class TestS3:
    """Over a real protocol."""

    @pytest.mark.clause("LZ-135")
    def test_a_batch_that_is_there_is_not_written_again(self, bucket: ObjectStore) -> None:
        zone = Zone(bucket)
        with zone.publisher() as publisher:
            publisher.load("t", ROWS, key="id", batch="one")
        before = bucket.list(zone.folder("t")).files[0]
        with zone.publisher() as publisher:
            again = publisher.load("t", ROWS, batch="one")
        assert again.outcome is Outcome.ALREADY_PUBLISHED
        assert bucket.list(zone.folder("t")).files[0] == before

    @pytest.mark.clause("LZ-134", "LZ-137")
    def test_a_path_with_other_content_stops_the_publisher(self, bucket: ObjectStore) -> None:
        zone = Zone(bucket)
        with zone.publisher() as publisher:
            publisher.load("t", ROWS, key="id", batch="one")
        path = f"{zone.folder('t')}/{zone.names('t')[0]}"
        bucket.replace(path, b"other")
        with zone.publisher() as publisher, pytest.raises(NameTaken):
            publisher.load("t", ROWS, batch="one")
        assert bucket.read(path) == b"other"

    def test_a_large_file_is_published_whole(self, bucket: ObjectStore) -> None:
        zone, rows = Zone(bucket), wide(6_000)
        with zone.publisher(codec="none") as publisher:
            (file,) = publisher.load("t", rows, key="id").files
        assert file.size > WHOLE
        assert zone.file("t").num_rows == len(rows)
        assert [f.name for f in bucket.list(zone.folder("t")).files if "quet" in f.name] == [
            file.name
        ]

    @pytest.mark.clause("LZ-138")
    def test_a_second_writer_is_refused(self, bucket: ObjectStore) -> None:
        zone = Zone(bucket)
        with zone.publisher() as first, zone.publisher() as second:
            first.load("t", ROWS, key="id")
            with pytest.raises(LeaseHeld):
                second.load("t", ROWS, key="id")

    def test_a_dropped_table_leaves_nothing(self, bucket: ObjectStore) -> None:
        zone = Zone(bucket)
        with zone.publisher() as publisher:
            publisher.load("t", ROWS, key="id")
            publisher.drop("t")
        assert bucket.list("Files/LandingZone").folders == ()

    def test_a_url_is_all_that_a_publisher_needs(
        self, s3: S3Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        s3.described(monkeypatch)
        url = f"{s3.new_bucket()}/shop"
        with Publisher(url) as publisher:
            publisher.load("s.t", ROWS, key="id")
        assert Zone(open_store(url)).numbers("s.t") == [1]
