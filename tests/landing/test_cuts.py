"""Cuts: each names what changed, all of them together name everything."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.landing.cuts import FULL_EVERY, Cut, Cuts
from mirrorlake.model.landed import LaterFormat
from tests.conformance.store import names
from tests.doubles.clock import SteppedClock
from tests.doubles.memory_store import MemoryStore

ZONE = "Files/LandingZone"
PLACE = f"{ZONE}/_mirrorlake/cuts"

table_names = st.sampled_from(["a", "b", "ü", "sales.c"])
changes = st.dictionaries(table_names, st.integers(1, 10**6), max_size=3)
reasons = st.dictionaries(table_names, st.text(max_size=5), max_size=2)
histories = st.lists(st.tuples(changes, reasons), min_size=1, max_size=3 * FULL_EVERY)
cuts = st.builds(
    Cut,
    number=st.integers(1, 10**9),
    stream=st.text(),
    position=st.text(),
    commit_time=st.none() | st.text(),
    tables=changes,
    excluded=reasons,
    source=st.dictionaries(st.text(), st.text()),
    full=st.booleans(),
    begun=st.lists(table_names, max_size=2).map(tuple),
)


def cut(number: int, excluded: dict[str, str] | None = None, **tables: int) -> Cut:
    return Cut(number, "stream", f"0/{number:X}", None, tables, excluded or {})


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(SteppedClock())


@pytest.fixture
def writer(store: MemoryStore) -> Cuts:
    return Cuts(store, ZONE)


@pytest.fixture
def reader(store: MemoryStore) -> Cuts:
    return Cuts(store, ZONE)


def numbers(store: MemoryStore) -> list[int]:
    return [int(name.removesuffix(".json")) for name in names(store, PLACE)]


class TestCut:
    @given(cuts)
    def test_a_cut_is_read_as_written(self, one: Cut) -> None:
        assert Cut.decode(one.encode()) == one

    def test_a_later_format_is_refused_by_its_name(self) -> None:
        later = cut(1).encode().replace(b'"format": "1"', b'"format": "2"')
        with pytest.raises(LaterFormat, match="format 2;"):
            Cut.decode(later)

    def test_a_later_cut_keeps_what_did_not_change(self) -> None:
        assert cut(1, a=1, b=1).then(cut(2, b=2, c=1)).tables == {"a": 1, "b": 2, "c": 1}

    def test_a_later_cut_forgets_the_former_files_of_a_table_that_begins_anew(self) -> None:
        later = replace(cut(2, c=1), begun=("a", "c"))
        assert cut(1, a=7, b=1).then(later).tables == {"b": 1, "c": 1}

    def test_in_a_cut_of_an_earlier_release_none_begins_anew(self) -> None:
        earlier = cut(1).encode().replace(b'"begun": [], ', b"")
        assert earlier != cut(1).encode()
        assert Cut.decode(earlier) == cut(1)

    def test_a_later_full_cut_replaces_earlier_ones(self) -> None:
        full = replace(cut(2, b=2), full=True)
        assert cut(1, a=1, b=1).then(full) == full


class TestWriting:
    def test_a_zone_without_cuts_has_no_newest(self, reader: Cuts) -> None:
        assert reader.newest() is None

    def test_the_first_cut_is_full(self, store: MemoryStore, writer: Cuts) -> None:
        writer.write(cut(1, a=1))
        assert Cut.decode(store.read(f"{PLACE}/{1:020d}.json")).full

    def test_a_later_cut_names_only_what_changed(self, store: MemoryStore, writer: Cuts) -> None:
        writer.write(cut(1, a=1))
        writer.write(cut(2, b=2))
        assert Cut.decode(store.read(f"{PLACE}/{2:020d}.json")) == cut(2, b=2)

    def test_the_writer_returns_what_readers_see(self, writer: Cuts, reader: Cuts) -> None:
        writer.write(cut(1, a=1))
        written = writer.write(cut(2, b=2))
        assert written == reader.newest()
        assert written.tables == {"a": 1, "b": 2}

    def test_a_second_writer_loses(self, store: MemoryStore, writer: Cuts) -> None:
        writer.write(cut(1, a=1))
        second = Cuts(store, ZONE)
        second.newest()
        writer.write(cut(2, a=2))
        with pytest.raises(FileExistsError):
            second.write(cut(2, a=9))
        assert second.newest() == writer.newest()

    def test_a_restarted_writer_knows_every_table(self, store: MemoryStore, writer: Cuts) -> None:
        writer.write(cut(1, a=1))
        restarted = Cuts(store, ZONE)
        restarted.newest()
        assert restarted.write(cut(2, b=1)).tables == {"a": 1, "b": 1}

    def test_other_files_next_to_the_cuts_are_ignored(
        self, store: MemoryStore, writer: Cuts, reader: Cuts
    ) -> None:
        writer.write(cut(1, a=1))
        for name in ("_tmp.json", "2.json", f"{2:020d}.json.tmp", "notes"):
            store.create(f"{PLACE}/{name}", b"x")
        assert reader.newest() == writer.newest()


class TestPruning:
    def written(self, writer: Cuts, count: int) -> None:
        for number in range(1, count + 1):
            writer.write(cut(number, **{f"t{number % 7}": number}))

    def test_a_cut_is_full_from_time_to_time(self, store: MemoryStore, writer: Cuts) -> None:
        self.written(writer, 2 * FULL_EVERY + 1)
        full = [n for n in numbers(store) if Cut.decode(store.read(f"{PLACE}/{n:020d}.json")).full]
        assert full == [FULL_EVERY, 2 * FULL_EVERY]

    def test_cuts_before_the_second_to_last_full_cut_are_removed(
        self, store: MemoryStore, writer: Cuts
    ) -> None:
        self.written(writer, 3 * FULL_EVERY + 5)
        assert numbers(store) == list(range(2 * FULL_EVERY, 3 * FULL_EVERY + 6))

    def test_a_reader_that_missed_cuts_sees_everything(self, writer: Cuts, reader: Cuts) -> None:
        self.written(writer, 5)
        reader.newest()
        for number in range(6, 4 * FULL_EVERY):
            writer.write(cut(number, away=number))
        assert reader.newest() == writer.newest()


class TestReading:
    @given(histories, st.data())
    def test_a_reader_sees_the_fold_of_all_cuts(
        self, history: list[tuple[dict[str, int], dict[str, str]]], data: st.DataObject
    ) -> None:
        """Whenever it looks, however often, and whoever writes."""
        store = MemoryStore(SteppedClock())
        writer, reader = Cuts(store, ZONE), Cuts(store, ZONE)
        tables: dict[str, int] = {}
        looks = data.draw(st.sets(st.integers(1, len(history))), "looks")
        restarts = data.draw(st.sets(st.integers(1, len(history)), max_size=3), "restarts")
        for number, (changed, excluded) in zip(itertools.count(1), history, strict=False):
            if number in restarts:
                writer = Cuts(store, ZONE)
                writer.newest()
            writer.write(cut(number, excluded, **changed))
            tables |= changed
            for one in [reader] * (number in looks) + [Cuts(store, ZONE)] * (
                number == len(history)
            ):
                seen = one.newest()
                assert seen is not None
                assert (seen.number, seen.position) == (number, f"0/{number:X}")
                assert (seen.tables, seen.excluded) == (tables, excluded)


class TestTablesThatBeginAnew:
    @pytest.mark.parametrize("number", [1, FULL_EVERY - 1, FULL_EVERY])
    def test_no_cut_names_their_former_files(self, writer: Cuts, reader: Cuts, number: int) -> None:
        writer.write(cut(1, {"d": "stopped"}, a=50, b=1))
        for later in range(2, number + 1):
            writer.write(cut(later, {"d": "stopped"}, b=later))
        writer.begin_anew(["a", "c"])
        found = reader.newest()
        assert found is not None
        assert (found.number, found.position) == (number + 1, f"0/{number:X}")
        assert (found.tables, found.begun) == ({"b": number}, ("a",))
        assert found.excluded == {"d": "stopped", "a": "loaded again"}
        assert "a" not in list(reader.whole())[-1].tables
        writer.write(cut(number + 2, a=3))
        assert reader.newest() == cut(number + 2, a=3, b=number)

    def test_tables_that_no_cut_names_need_none(self, writer: Cuts, store: MemoryStore) -> None:
        writer.begin_anew(["a"])
        writer.write(cut(1, b=1))
        writer.begin_anew(["a"])
        assert numbers(store) == [1]
