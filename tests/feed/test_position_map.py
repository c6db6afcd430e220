"""The map from versions to positions: what it tells when the log no longer does."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrorlake import read_feed
from mirrorlake.app.changes import cut as cuts
from mirrorlake.app.changes import trace
from mirrorlake.app.maintenance import file_maintenance
from mirrorlake.app.maintenance.position_maps import keep_positions
from mirrorlake.delta.log import checkpoint
from mirrorlake.delta.log.history import CommittedBatch
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.errors import FeedError, UsageError
from mirrorlake.feed.commits import position_map
from mirrorlake.feed.commits.history import CommitHistory
from mirrorlake.feed.commits.position_map import PositionMap
from mirrorlake.storage.local import LocalStore
from tests.app.changes.shop import Shop
from tests.app.maintenance.test_file_maintenance import Worked
from tests.feed.handmade_feed import INSERT, UPDATE, FeedTable
from tests.profiles import tries

PATH = "Tables/s/orders"


class Mapped:
    """A table in a mirror, with a map, each version of which is one file further in the source."""

    def __init__(self, root: Path) -> None:
        self.store, self.root = LocalStore(root), root
        self.table = FeedTable(root / PATH)
        self.map = PositionMap(self.store, PATH)
        self.folder = root / "Files/Mirrorlake/positions/s/orders"

    def grow(self, versions: int, half: int = 0) -> None:
        for _ in range(versions):
            number = self.table.log.snapshot().version + 1
            self.table.change((INSERT, (number, "a")), position=f"{half}/{number:X}:1")

    def keep(self) -> int:
        return self.map.keep(TableLog(self.table.path))

    def clean(self) -> None:
        """Remove all commits but the newest."""
        checkpoint.write(self.table.path)
        log = TableLog(self.table.path)
        for version in log.versions()[:-1]:
            log.commit_file(version).unlink()

    def known(self) -> list[tuple[int, str | None]]:
        history = CommitHistory(TableLog(self.table.path), self.map)
        return [(one.version, one.position) for one in history.batches()]

    def range(self, **asked: str) -> tuple[int, int]:
        feed = read_feed(self.table.path, on_gap="report", **asked)  # type: ignore[arg-type]
        return feed.first, feed.last

    @property
    def files(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("*.parquet"))


@pytest.fixture
def mapped(tmp_path: Path) -> Mapped:
    return Mapped(tmp_path)


@pytest.mark.clause("CF-155", "CF-160")
def test_positions_that_the_log_no_longer_has_are_known(mapped: Mapped) -> None:
    mapped.grow(5)
    assert (mapped.keep(), mapped.keep()) == (6, 0)
    asked = [{"from_position": f"0/{at:X}", "to_position": f"0/{at + 1:X}"} for at in range(5)]
    before, known = [mapped.range(**one) for one in asked], mapped.known()
    mapped.clean()
    mapped.grow(1)
    assert [mapped.range(**one) for one in asked] == before == [(n, n) for n in range(1, 6)]
    assert mapped.known() == [(6, "0/6:1"), *known]
    with pytest.raises(FeedError, match=r"version 2 to 4 are no longer kept") as refused:
        read_feed(mapped.table.path, from_position="0/1")
    assert refused.value.reason == "expired"
    feed = read_feed(mapped.table.path, from_position="0/4")
    assert feed.to_arrow()["_commit_version"].to_pylist() == [5, 6]


@pytest.mark.clause("CF-155")
def test_it_is_made_again_of_what_the_log_has(mapped: Mapped) -> None:
    mapped.grow(4)
    mapped.keep()
    known = mapped.known()
    for path in mapped.folder.glob("*.parquet"):
        path.unlink()
    assert mapped.keep() == 5
    mapped.clean()
    assert mapped.known() == known


@pytest.mark.clause("CF-155", "CF-160")
def test_what_it_does_not_know_is_an_error_that_names_the_span(mapped: Mapped) -> None:
    mapped.grow(3)
    mapped.clean()
    mapped.keep()
    mapped.grow(2)
    mapped.keep()
    with pytest.raises(FeedError, match="reach from 0/3:1 to 0/5:1"):
        mapped.range(from_position="0/1")
    with pytest.raises(UsageError, match="the map of positions"):
        trace.batch_with(str(mapped.table.path), position="0/1")
    assert trace.batch_with(str(mapped.table.path), position="0/4:1").version == 4


def test_a_damaged_segment_is_read_from_the_log_and_written_again(mapped: Mapped) -> None:
    mapped.grow(3)
    mapped.keep()
    known = mapped.known()
    (path,) = mapped.folder.glob("*.parquet")
    content = path.read_bytes()
    for damaged in (b"", b"PAR1", content[: len(content) // 2], content[:-1] + b"X"):
        path.write_bytes(damaged)
        assert mapped.known() == known
        assert mapped.keep() == 4
        assert path.read_bytes() == content


def test_a_table_made_anew_in_its_place_has_a_map_of_its_own(mapped: Mapped) -> None:
    mapped.grow(5)
    mapped.keep()
    for path in sorted(mapped.table.path.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    mapped.table = FeedTable(mapped.table.path)
    for versions in (2, 5):  # fewer than those of before, and more
        mapped.grow(versions, half=1)
        found = mapped.known()
        assert found == [(n, f"1/{n:X}:1") for n in range(found[0][0], 0, -1)]
    assert mapped.keep() == 8
    mapped.clean()
    assert mapped.known() == found


def test_segments_are_few_and_what_a_crash_left_is_no_second_answer(
    mapped: Mapped, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(position_map, "FULL", 3)
    for _ in range(8):
        mapped.grow(1)
        mapped.keep()
    assert mapped.files == [f"{a:020d}-{b:020d}.parquet" for a, b in ((0, 3), (4, 6), (7, 8))]
    known = mapped.known()
    whole = (mapped.folder / mapped.files[1]).read_bytes()
    (mapped.folder / f"{4:020d}-{5:020d}.parquet").write_bytes(whole)
    (mapped.folder / "_half").write_bytes(b"x")
    assert mapped.known() == known == [(n, f"0/{n:X}:1") for n in range(8, 0, -1)]
    (mapped.folder / mapped.files[1]).unlink()  # the middle
    (mapped.folder / f"{4:020d}-{6:020d}.parquet").unlink()
    assert mapped.known() == known
    assert mapped.keep() == 3
    mapped.clean()
    assert mapped.known() == known


def test_what_another_process_adds_meanwhile_stays(
    mapped: Mapped, monkeypatch: pytest.MonkeyPatch
) -> None:
    mapped.grow(3)
    mapped.keep()
    slow = TableLog(mapped.table.path)
    versions = slow.versions()

    def listed() -> list[int]:
        mapped.grow(2)
        mapped.keep()
        mapped.clean()
        return versions

    monkeypatch.setattr(slow, "versions", listed)
    mapped.map.keep(slow)
    assert mapped.known() == [(n, f"0/{n:X}:1") for n in range(5, 0, -1)]


def test_a_long_log_is_kept_in_time_that_follows_its_length(mapped: Mapped) -> None:
    versions = list(range(200_000))
    runs = [versions[:70_000], versions[70_001:]]
    assert list(position_map._runs(runs[0] + runs[1])) == runs


@settings(max_examples=tries(40))
@given(st.lists(st.sampled_from("gkcg"), max_size=12), st.integers(1, 3))
def test_batches_stored_before_each_cleaning_are_known(
    tmp_path_factory: pytest.TempPathFactory, acts: str, full: int
) -> None:
    mapped, version = Mapped(tmp_path_factory.mktemp("map")), 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(position_map, "FULL", full)
        for act in acts:
            if act == "g":
                mapped.grow(1)
                version += 1
            else:
                mapped.keep()
            if act == "c":
                mapped.clean()
            assert mapped.known() == [(n, f"0/{n:X}:1") for n in range(version, 0, -1)]


def test_a_record_has_all_facts_of_a_batch(mapped: Mapped) -> None:
    mapped.grow(1)
    (batch,) = CommitHistory(TableLog(mapped.table.path)).batches()
    mapped.keep()
    (kept,) = CommitHistory(TableLog(mapped.table.path), mapped.map).batches()
    assert kept == batch
    assert isinstance(kept, CommittedBatch)


@pytest.mark.clause("CF-155")
def test_cuts_and_traces_reach_back_behind_the_log(tmp_path: Path) -> None:
    shop = Shop.with_three_cuts(tmp_path / "shop")
    store = LocalStore(shop.root)
    shop.apply("a", 3, 3, (UPDATE, (1, "c")))
    for name in ("a", "b"):
        keep_positions(store, f"Tables/s/{name}")
        checkpoint.write(shop.tables[name].path)
        log = TableLog(shop.tables[name].path)
        for version in log.versions()[:-1]:
            log.commit_file(version).unlink()
    assert shop.found("0/1") == ("0/1", {"s.a": 1, "s.b": 1})
    assert trace.batch_with(str(shop.tables["a"].path), file=2).version == 2
    assert trace.batch_with(str(shop.tables["a"].path), position="0/2:1").version == 2
    cuts.wait(shop.project, "0/1", clock=lambda: 0.0, pause=lambda _seconds: True)


@pytest.mark.clause("CF-155")
def test_it_is_kept_before_the_log_is_cleaned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_maintenance, "CHECKPOINT_EVERY", 1)
    worked = Worked(tmp_path)
    worked.held.is_open = True
    seen: list[bool] = []
    checkpoint_of = worked.engine.checkpoint

    def clean(path: str) -> None:
        seen.append(any(PositionMap(worked.store, path).newest_first(TableLog(tmp_path / path))))
        checkpoint_of(path)

    monkeypatch.setattr(worked.engine, "checkpoint", clean)
    for number in range(3):
        worked.land({number: "x"})
        worked.loop.once()
    worked.loop.close()
    assert seen
    assert all(seen)
