"""Section 7: numbers, retries, one writer; nothing lost, nothing twice, nothing overwritten."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from mirrorlake.errors import (
    BadFile,
    BatchPending,
    LeaseHeld,
    LeaseLost,
    NameTaken,
    UnknownMarker,
)
from mirrorlake.publisher import Outcome, Partner, Publisher, TextFormat
from tests.doubles.lossy_store import LossyStore, first
from tests.doubles.memory_store import Crash, Effect, Hook, crash_at
from tests.publisher.mirrored_zone import ZONE, Zone

A, B, C = ([{"id": n, "v": name}] for n, name in ((1, "a"), (2, "b"), (3, "c")))


@pytest.mark.clause("LZ-111", "LZ-112", "LZ-113", "LZ-114")
def test_numbers_begin_with_one_and_grow_by_one(zone: Zone, publisher: Publisher) -> None:
    publisher.load("t", A, key="id")
    publisher.publish("t", B, operation="insert")
    publisher.publish("t", C, operation="upsert")
    assert zone.names("t") == [f"0000000000000000000{n}.parquet" for n in (1, 2, 3)]


@pytest.mark.clause("LZ-115")
def test_text_has_the_same_numbers(zone: Zone, publisher: Publisher) -> None:
    publisher.load("t", A, key="id", text=TextFormat(extension="tsv", column_separator="\t"))
    assert zone.names("t") == ["00000000000000000001.tsv"]


@pytest.mark.clause("LZ-131", "LZ-134")
def test_a_file_is_whole_under_an_underscore_name_before_it_has_its_own(zone: Zone) -> None:
    seen: list[Effect] = []
    zone.store = zone.store.reopened(seen.append)
    with zone.publisher() as publisher:
        publisher.load("t", A, key="id")
    done = [(e.name, e.path.rpartition("/")[2]) for e in seen if e.done and e.path.endswith("quet")]
    assert done == [
        ("stage", "_00000000000000000001.parquet"),
        ("staged", "_00000000000000000001.parquet"),
        ("publish", "00000000000000000001.parquet"),
        ("unstage", "_00000000000000000001.parquet"),
    ]


@pytest.mark.clause("LZ-121")
def test_a_batch_has_its_number_in_durable_storage_before_anything_is_uploaded(zone: Zone) -> None:
    def look(effect: Effect) -> None:
        if effect.name == "stage" and not effect.done:
            path = f"{zone.folder('t')}/_publisher.json"
            state = json.loads(zone.store.files.content[path].content)
            assigned.append((state["pending"]["batch"], state["pending"]["first"]))

    assigned: list[tuple[str, int]] = []
    zone.store = zone.store.reopened(look)
    with zone.publisher() as publisher:
        publisher.load("t", A, key="id", batch="first")
        publisher.publish("t", B, operation="insert", batch="second")
    assert assigned == [("first", 1), ("second", 2)]


@pytest.mark.clause("LZ-135")
def test_a_batch_that_is_there_is_not_written_again(zone: Zone, publisher: Publisher) -> None:
    publisher.load("t", A, key="id", batch="one")
    before = zone.store.list(zone.folder("t"))
    again = publisher.load("t", A, key="id", batch="one")
    assert again.outcome is Outcome.ALREADY_PUBLISHED
    assert again.rows == {"insert": 1}
    assert zone.store.list(zone.folder("t")) == before


@pytest.mark.clause("LZ-135")
def test_a_batch_is_known_after_the_mirror_put_it_aside(zone: Zone) -> None:
    with zone.publisher() as publisher:
        publisher.load("t", A, key="id", batch="one")
        publisher.publish("t", B, operation="insert", batch="two")
    zone.rows("t")
    assert zone.numbers("t") == [2]
    with zone.publisher() as publisher:
        assert publisher.load("t", A, batch="one").outcome is Outcome.ALREADY_PUBLISHED
    assert zone.rows("t") == [*A, *B]


def test_a_batch_without_a_name_is_another_one_each_time(zone: Zone, publisher: Publisher) -> None:
    for _ in range(2):
        publisher.publish("t", A, operation="insert", key="id")
    assert zone.rows("t") == [*A, *A]


@pytest.mark.clause("LZ-137", "LZ-134")
@pytest.mark.parametrize("content", [b"", b"other"])
def test_a_path_with_other_content_stops_the_publisher(zone: Zone, content: bytes) -> None:
    path = f"{zone.folder('t')}/00000000000000000001.parquet"

    def rival(effect: Effect) -> None:
        if effect.name == "publish" and not effect.done:
            zone.store.files.put(path, content)

    zone.store = zone.store.reopened(rival)
    publisher = zone.publisher()
    with pytest.raises(NameTaken) as caught:
        publisher.load("t", A, key="id", batch="one")
    assert caught.value.file == "00000000000000000001.parquet"
    publisher.close()
    zone.store = zone.store.reopened()
    with zone.publisher() as later, pytest.raises(NameTaken):  # and so it stays
        later.load("t", A, key="id", batch="one")
    assert zone.store.read(path) == content
    assert zone.numbers("t") == [1]


@pytest.mark.clause("LZ-137")
def test_a_published_batch_whose_file_was_exchanged_stops(zone: Zone, publisher: Publisher) -> None:
    publisher.load("t", A, key="id", batch="one")
    zone.store.replace(f"{zone.folder('t')}/00000000000000000001.parquet", b"other")
    with pytest.raises(NameTaken):
        publisher.load("t", A, key="id", batch="one")


@pytest.mark.clause("LZ-136", "LZ-268")
def test_a_deleted_file_is_published_again_under_its_name(zone: Zone, publisher: Publisher) -> None:
    publisher.load("t", A, key="id", batch="one")
    publisher.publish("t", B, operation="insert", batch="two")
    publisher.publish("t", C, operation="insert", batch="three")
    zone.store.delete(f"{zone.folder('t')}/00000000000000000002.parquet")
    again = publisher.publish("t", B, operation="insert", batch="two")
    assert [file.number for file in again.files] == [2]
    assert zone.rows("t") == [*A, *B, *C]


@pytest.mark.parametrize("at", ["publish", "unstage"])
def test_a_name_that_a_killed_run_gave_is_durable_before_it_is_recorded(
    zone: Zone, at: str
) -> None:
    def die(effect: Effect) -> None:
        if effect.name == at and effect.done:
            raise Crash(str(effect))

    seen: list[Effect] = []
    zone.store = zone.store.reopened(die)
    with pytest.raises(Crash):
        zone.publisher().load("t", A, key="id", batch="one")
    zone.clock.advance(60)
    zone.store = zone.store.reopened(seen.append)
    with zone.publisher() as publisher:
        publisher.load("t", A, key="id", batch="one")
    about = {zone.folder("t"), f"{zone.folder('t')}/_publisher.json"}
    assert [e.name for e in seen if e.done and e.path in about] == ["flush", "replace"]


class TestNextNumber:
    @pytest.mark.clause("LZ-140")
    @pytest.mark.parametrize("index", ["", "/_ProcessedFiles", "/_FilesReadyToDelete"])
    def test_it_follows_whatever_is_there(self, zone: Zone, index: str) -> None:
        with zone.publisher() as publisher:
            publisher.load("t", A, key="id")
        zone.store.create(f"{zone.folder('t')}{index}/00000000000000000007.csv", b"x")
        with zone.publisher() as publisher:
            done = publisher.publish("t", B, operation="insert")
        assert [file.number for file in done.files] == [8]

    @pytest.mark.clause("LZ-140", "LZ-121")
    def test_it_is_remembered_when_every_file_is_gone(self, zone: Zone) -> None:
        with zone.publisher() as publisher:
            publisher.load("t", A, key="id")
            zone.store.delete(f"{zone.folder('t')}/00000000000000000001.parquet")
            done = publisher.publish("t", B, operation="insert")
        assert [file.number for file in done.files] == [2]

    @pytest.mark.clause("LZ-140")
    def test_it_is_found_without_a_state(self, zone: Zone) -> None:
        with zone.publisher() as publisher:
            publisher.load("t", A, key="id")
        zone.store.delete(f"{zone.folder('t')}/_publisher.json")
        with zone.publisher() as publisher:
            done = publisher.publish("t", B, operation="insert")
        assert [file.number for file in done.files] == [2]

    @pytest.mark.clause("LZ-121", "LZ-113")
    def test_a_refused_batch_leaves_no_gap(self, zone: Zone, publisher: Publisher) -> None:
        publisher.load("t", A, key="id")
        with pytest.raises(UnknownMarker):
            publisher.publish("t", [{"id": 2, "v": "b", "op": "nonsense"}], marker_column="op")
        publisher.publish("t", B, operation="insert")
        assert zone.numbers("t") == [1, 2]
        assert zone.rows("t") == [*A, *B]


class TestOneWriter:
    @pytest.mark.clause("LZ-138")
    def test_a_second_one_is_refused(self, zone: Zone, publisher: Publisher) -> None:
        publisher.load("t", A, key="id")
        with zone.publisher() as second, pytest.raises(LeaseHeld):
            second.publish("t", B, operation="insert")
        assert zone.numbers("t") == [1]

    def test_another_table_is_free(self, zone: Zone, publisher: Publisher) -> None:
        publisher.load("t", A, key="id")
        with zone.publisher() as second:
            second.load("u", A, key="id")

    def test_the_next_one_may_write_when_the_first_is_closed(self, zone: Zone) -> None:
        with zone.publisher() as first:
            first.load("t", A, key="id")
        with zone.publisher() as second:
            second.publish("t", B, operation="insert")
        assert zone.numbers("t") == [1, 2]

    @pytest.mark.clause("LZ-138")
    def test_one_that_was_taken_over_writes_nothing_more(self, zone: Zone) -> None:
        first = zone.publisher()
        first.load("t", A, key="id")
        zone.clock.advance(60)
        with zone.publisher() as second:
            second.publish("t", B, operation="insert")
            with pytest.raises(LeaseLost):
                first.publish("t", C, operation="insert")
        assert zone.numbers("t") == [1, 2]

    @pytest.mark.clause("LZ-138")
    def test_one_that_is_taken_over_while_it_stages_publishes_nothing(self, zone: Zone) -> None:
        first = zone.publisher()

        def slow() -> Any:
            yield A[0]
            zone.clock.advance(60)
            second.give_up("t", "one")
            second.load("t", B, key="id")

        second = zone.publisher()
        with pytest.raises(LeaseLost):
            first.load("t", slow(), key="id", batch="one")
        assert zone.numbers("t") == [1]
        assert zone.rows("t") == B

    @pytest.mark.clause("LZ-138")
    def test_one_that_is_taken_over_between_two_files_stops_there(self, zone: Zone) -> None:
        def take_over(effect: Effect) -> None:
            if effect.name == "publish" and effect.done and not taken:
                taken.append(zone.publisher())
                zone.clock.advance(60)
                taken[0].give_up("t", "nothing")

        taken: list[Publisher] = []
        plain = zone.store
        first = Publisher(plain.reopened(take_over), clock=zone.clock)
        with pytest.raises(LeaseLost):
            first.load("t", growing(), key="id", batch="one")
        assert zone.numbers("t") == [1]
        assert taken[0].load("t", growing(), batch="one").outcome is Outcome.ALREADY_PUBLISHED
        assert zone.numbers("t") == [1, 2]


@pytest.mark.clause("LZ-132", "LZ-133")
@pytest.mark.parametrize("built", ["beside", "scratch_pad"])
@pytest.mark.parametrize("text", [None, TextFormat()], ids=["Parquet", "CSV"])
@pytest.mark.parametrize(
    "left", [0, 4, -1, None], ids=["empty", "cut", "cut at its end", "changed"]
)
def test_what_does_not_read_back_is_never_visible(
    zone: Zone, text: TextFormat | None, left: int | None, built: str
) -> None:
    indexes: list[str] = []

    def spoil(effect: Effect) -> None:
        if effect.name == "staged" and effect.done:
            indexes.append(effect.path)
            whole = zone.store.files.content[effect.path].content
            zone.store.files.put(effect.path, whole.swapcase() if left is None else whole[:left])

    zone.store = zone.store.reopened(spoil)
    with zone.publisher(built=built) as publisher, pytest.raises(BadFile):
        publisher.load("t", [*A, *B], key="id", text=text)
    assert zone.names("t") == []
    assert ["_scratchPad" in path for path in indexes] == [built == "scratch_pad"]


def growing() -> Iterator[pa.Table]:
    """Two files: a column comes in the middle."""
    yield pa.table({"id": [10], "v": ["x"]})
    yield pa.table({"id": [11], "v": ["y"], "w": [1.5]})


EXPECTED = [
    {"id": 10, "v": "x", "w": None},
    {"id": 11, "v": "y", "w": 1.5},
    {"id": 2, "v": "b", "w": None},
]


class TestCrash:
    """The process ends at any effect on the store; its caller starts again and repeats."""

    def script(self, publisher: Publisher) -> None:
        publisher.load("t", [*A, *B], key="id", batch="load")
        publisher.publish("t", growing(), operation="insert", batch="2026-05-01/17")
        publisher.publish("t", [{"id": 1}], operation="delete", batch="2026-05-01/18")

    def run(self, zone: Zone, hook: Callable[[Effect], None] | None) -> None:
        zone.store = zone.store.reopened(hook)
        self.script(zone.publisher())

    def effects(self) -> int:
        counted = Zone()
        seen: list[Effect] = []
        self.run(counted, seen.append)
        return len(seen)

    @pytest.mark.clause("LZ-121", "LZ-135", "LZ-136", "LZ-111", "LZ-113")
    def test_no_batch_is_lost_and_none_is_there_twice(self) -> None:
        for step in range(1, self.effects() + 1):
            zone = Zone()
            with pytest.raises(Crash):
                self.run(zone, crash_at(step))
            zone.clock.advance(60)
            self.run(zone, None)
            assert zone.numbers("t") == [1, 2, 3, 4], step
            assert zone.rows("t") == EXPECTED, step

    @pytest.mark.clause("LZ-134")
    def test_what_was_visible_stays_as_it_was(self) -> None:
        for step in range(1, self.effects() + 1):
            zone = Zone()
            with pytest.raises(Crash):
                self.run(zone, crash_at(step))
            zone.store = zone.store.reopened()
            before = {
                name: zone.store.read(f"{zone.folder('t')}/{name}") for name in zone.names("t")
            }
            zone.clock.advance(60)
            self.run(zone, None)
            after = {name: zone.store.read(f"{zone.folder('t')}/{name}") for name in before}
            assert after == before, step

    @pytest.mark.clause("LZ-133", "LZ-056")
    def test_the_mirror_can_read_what_is_visible_at_any_moment(self) -> None:
        for step in range(1, self.effects() + 1):
            zone = Zone()
            with pytest.raises(Crash):
                self.run(zone, crash_at(step))
            zone.store = zone.store.reopened()
            if zone.numbers("t"):
                assert zone.metadata("t")["keyColumns"] == ["id"]
                assert zone.numbers("t") == list(range(1, len(zone.numbers("t")) + 1))
                newest = zone.numbers("t")[-1]
                assert zone.mirrored("t").recorded == newest

    @pytest.mark.clause("LZ-060", "LZ-062", "LZ-063")
    def test_partner_events_are_written_whole_or_not_at_all_and_in_the_end(self) -> None:
        partner = Partner("contoso", source_type="SQL")
        path = f"{ZONE}/_partnerEvents.json"

        def run(zone: Zone, hook: Hook | None) -> None:
            zone.store = zone.store.reopened(hook)
            with zone.publisher(partner=partner) as publisher:
                publisher.load("t", A, key="id", batch="one")

        def partner_events(zone: Zone) -> dict[str, Any]:
            found: dict[str, Any] = json.loads(zone.store.reopened().read(path))
            return found

        for step in range(1, 200):
            zone = Zone()
            try:
                run(zone, crash_at(step))
            except Crash:
                if path in zone.store.files.content:
                    assert partner_events(zone)["partnerName"] == "contoso", step
                zone.clock.advance(60)
                run(zone, None)
                assert partner_events(zone)["partnerName"] == "contoso", step
            else:
                assert step > 5
                return
        raise AssertionError("it never came to its end")

    def test_a_mirror_that_runs_in_between_changes_nothing(self) -> None:
        for step in range(1, self.effects() + 1, 3):
            zone = Zone()
            with pytest.raises(Crash):
                self.run(zone, crash_at(step))
            zone.store = zone.store.reopened()
            if zone.numbers("t"):
                zone.rows("t")
            zone.clock.advance(60)
            self.run(zone, None)
            assert zone.rows("t") == EXPECTED, step


class TestLostResponse:
    """A write takes effect and fails; its caller repeats the call, on the same publisher."""

    def calls(self, publisher: Publisher) -> list[Callable[[], object]]:
        def load() -> object:
            return publisher.load("t", [*A, *B], key="id", batch="load")

        def publish() -> object:
            return publisher.publish("t", growing(), operation="insert", batch="17")

        def delete() -> object:
            return publisher.publish("t", [{"id": 1}], operation="delete", batch="18")

        return [load, publish, delete]

    def run(self, zone: Zone, store: Any) -> int:
        """How many calls failed and were repeated."""
        publisher, failed = Publisher(store, clock=zone.clock), 0
        for call in self.calls(publisher):
            try:
                call()
            except TimeoutError:
                failed += 1
                call()
        publisher.close()
        return failed

    @pytest.mark.clause("LZ-121", "LZ-135", "LZ-136", "LZ-111", "LZ-113")
    @pytest.mark.parametrize("is_done", [True, False])
    def test_no_batch_is_lost_and_none_is_there_twice(self, is_done: bool) -> None:
        counted = Zone()
        whole = LossyStore(counted.store, lambda _name, _number: False)
        assert self.run(counted, whole) == 0
        for lost in range(1, whole.writes):  # the last one gives the right back
            zone = Zone()
            store = LossyStore(
                zone.store, lambda _n, number, at=lost: number == at, is_done=is_done
            )
            self.run(zone, store)
            assert zone.numbers("t") == [1, 2, 3, 4], lost
            assert zone.rows("t") == EXPECTED, lost


class TestClosing:
    def test_every_table_is_given_back_though_one_cannot_be(self, zone: Zone) -> None:
        publisher = zone.publisher()
        publisher.load("t", A, key="id")
        publisher.load("u", A, key="id")
        publisher._store = store = LossyStore(zone.store, first("replace"), is_done=False)
        for table in publisher._tables.values():
            table._lease._store = store
        with pytest.raises(TimeoutError):
            publisher.close()
        with zone.publisher() as second:
            second.publish("t", B, operation="insert")
            with pytest.raises(LeaseHeld):
                second.publish("u", B, operation="insert")

    def test_the_first_of_two_errors_is_raised(self, zone: Zone) -> None:
        def fail() -> None:
            with zone.publisher() as publisher:
                publisher.load("t", A, key="id")
                store = LossyStore(zone.store, first("replace"), is_done=False)
                for table in publisher._tables.values():
                    table._lease._store = store
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()


@pytest.mark.clause("LZ-239")
def test_a_table_that_is_begun_anew_survives_a_crash() -> None:
    def anew(zone: Zone, hook: Callable[[Effect], None] | None) -> None:
        zone.store = zone.store.reopened(hook)
        publisher = zone.publisher()
        publisher.drop("t")
        publisher.load("t", [*B, *C], key="v", batch="anew")

    def loaded() -> Zone:
        zone = Zone()
        with zone.publisher() as publisher:
            publisher.load("t", A, key="id", batch="load")
        assert zone.rows("t") == A
        return zone

    seen: list[Effect] = []
    anew(loaded(), seen.append)
    for step in range(1, len(seen) + 1):
        zone = loaded()
        with pytest.raises(Crash):
            anew(zone, crash_at(step))
        zone.clock.advance(60)
        anew(zone, None)
        assert zone.numbers("t") == [1], step
        assert zone.rows("t") == [*B, *C], step


class TestPendingBatch:
    def interrupted(self, zone: Zone, batch: str | None) -> None:
        """Ended while its first file was staged."""
        zone.store = zone.store.reopened(_at("staged"))
        with pytest.raises(Crash):
            zone.publisher().load("t", A, key="id", batch=batch)
        zone.store = zone.store.reopened()
        zone.clock.advance(60)

    @pytest.mark.clause("LZ-121")
    def test_it_is_asked_for_before_another_one(self, zone: Zone) -> None:
        self.interrupted(zone, "one")
        with zone.publisher() as publisher:
            with pytest.raises(BatchPending, match="'one'"):
                publisher.publish("t", B, operation="insert", batch="two")
            assert zone.names("t") == []  # its number is for no other batch
            one = publisher.load("t", A, batch="one")
            two = publisher.publish("t", B, operation="insert", batch="two")
        assert [file.number for done in (one, two) for file in done.files] == [1, 2]
        assert zone.rows("t") == [*A, *B]

    def test_it_can_be_given_up(self, zone: Zone) -> None:
        self.interrupted(zone, "one")
        with zone.publisher() as publisher:
            assert not publisher.give_up("t", "other")
            assert publisher.give_up("t", "one")
            publisher.load("t", B, batch="two")
        assert zone.numbers("t") == [1]
        assert zone.rows("t") == B

    def test_one_without_a_name_is_forgotten(self, zone: Zone) -> None:
        self.interrupted(zone, None)
        with zone.publisher() as publisher:
            publisher.load("t", B)
        assert zone.numbers("t") == [1]
        assert zone.rows("t") == B

    def test_a_whole_one_is_completed_before_the_next(self, zone: Zone) -> None:
        zone.store = zone.store.reopened(_at("publish"))
        with pytest.raises(Crash):
            zone.publisher().load("t", A, key="id", batch="one")
        zone.store = zone.store.reopened()
        zone.clock.advance(60)
        with zone.publisher() as publisher:
            publisher.publish("t", B, operation="insert", batch="two")
            assert publisher.load("t", A, batch="one").outcome is Outcome.ALREADY_PUBLISHED
        assert zone.rows("t") == [*A, *B]

    @pytest.mark.clause("LZ-136")
    def test_a_whole_one_whose_staged_file_is_gone_begins_again(self, zone: Zone) -> None:
        zone.store = zone.store.reopened(_at("publish"))
        with pytest.raises(Crash):
            zone.publisher().load("t", A, key="id", batch="one")
        zone.store = zone.store.reopened()
        zone.store.delete(f"{zone.folder('t')}/_00000000000000000001.parquet")
        zone.clock.advance(60)
        with zone.publisher() as publisher:
            publisher.load("t", A, batch="one")
        assert zone.rows("t") == A


def _at(name: str) -> Callable[[Effect], None]:
    def hook(effect: Effect) -> None:
        if effect.name == name and not effect.done:
            raise Crash(name)

    return hook
