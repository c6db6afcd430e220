"""A publisher on a data lake: over the wire, with answers that are lost and processes that end."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from mirrorlake.errors import NameTaken
from mirrorlake.publisher import Outcome, Publisher
from mirrorlake.storage.adls.store import AdlsStore
from tests.doubles.dfs import DataLake, Fault, Seen
from tests.doubles.memory_store import Crash
from tests.profiles import LONG
from tests.publisher.mirrored_zone import ZONE, Zone
from tests.publisher.scripted import growing
from tests.storage.azure_accounts import ROOT, Hook, Lake

A, B = ([{"id": n, "v": name}] for n, name in ((1, "a"), (2, "b")))
EXPECTED = [{"id": 10, "v": "x", "w": None}, {"id": 11, "v": "y", "w": 1.5}, {**B[0], "w": None}]
FIRST = "00000000000000000001.parquet"


class LakeZone(Zone):
    """A zone on a data lake. `built` as in `Publisher`."""

    store: AdlsStore

    def __init__(self, service: DataLake, built: str = "beside") -> None:
        super().__init__()
        self.data_lake, self.built = Lake(service), built
        self.store = self.data_lake.store

    def files(self) -> dict[str, bytes]:
        """The data files of the table, as the service holds them."""
        folder = f"{ROOT}/{self.folder('s.t')}/"
        nodes = self.data_lake.tree.nodes.items()
        below = {path.removeprefix(folder): node for path, node in nodes if folder in path}
        return {name: node.content for name, node in below.items() if name[0] == "0"}

    def script(self, hook: Hook | None = None) -> None:
        """A process that loads, changes and deletes; it closes nothing."""
        publisher = self.begin(hook)
        publisher.load("s.t", [*A, *B], key="id", batch="load")
        publisher.publish("s.t", growing(), operation="insert", batch="2026-05-01/17")
        publisher.publish("s.t", [{"id": 1}], operation="delete", batch="2026-05-01/18")

    def brief(self, hook: Hook | None = None) -> None:
        """A process that publishes one batch, of two files; it closes nothing."""
        self.begin(hook).load("s.t", growing(), key="id", batch="load")

    def begin(self, hook: Hook | None) -> Publisher:
        return Publisher(self.data_lake.opened(hook), clock=self.clock, built=self.built)


@pytest.fixture(scope="session")
def data_lake() -> Iterator[DataLake]:
    with DataLake() as service:
        yield service


@pytest.fixture
def zone(data_lake: DataLake) -> LakeZone:
    return LakeZone(data_lake)


@pytest.fixture(params=["beside", "scratch_pad"])
def any_zone(request: pytest.FixtureRequest, data_lake: DataLake) -> LakeZone:
    return LakeZone(data_lake, request.param)


@pytest.mark.full
def test_what_is_published_is_mirrored(any_zone: LakeZone) -> None:
    any_zone.script()
    assert any_zone.numbers("s.t") == [1, 2, 3, 4]
    assert any_zone.rows("s.t") == EXPECTED


@pytest.mark.clause("LZ-139", "LZ-131", "LZ-007")
def test_every_data_file_gets_its_name_by_a_rename_that_does_not_overwrite(zone: LakeZone) -> None:
    zone.script()
    folder = f"{ROOT}/{ZONE}/s.schema/t"
    data = [s for s in zone.data_lake.writes() if s.path.startswith(f"{folder}/0")]
    assert [seen.path.rpartition("/")[2][19] for seen in data] == ["1", "2", "3", "4"]
    for seen in data:
        name = seen.path.rpartition("/")[2]
        source = f"/{zone.data_lake.name}/{folder}/_{name}"
        assert seen.method == "PUT"
        assert seen.headers["x-ms-rename-source"] == source
        assert seen.headers["if-none-match"] == "*"


@pytest.mark.clause("LZ-132")
def test_a_file_can_be_built_in_the_scratch_pad_and_moved(data_lake: DataLake) -> None:
    zone = LakeZone(data_lake, "scratch_pad")
    zone.script()
    index = f"{ROOT}/{ZONE}/_scratchPad/s.schema/t/_"
    appended = {s.path for s in zone.data_lake.writes() if s.query.get("action") == "append"}
    built = {path for path in appended if path.endswith(".parquet")}
    assert len(built) == 4
    assert all(path.startswith(index) for path in built)
    moves = [s for s in zone.data_lake.writes() if s.is_rename and s.path.endswith(".parquet")]
    assert [s.headers["x-ms-rename-source"].rpartition("_")[2] for s in moves] == zone.names("s.t")
    assert zone.rows("s.t") == EXPECTED
    assert list(zone.lake.tables) == ["Tables/s/t"]


@pytest.mark.full
def test_an_unfinished_batch_is_finished_wherever_it_was_built(data_lake: DataLake) -> None:
    for first, then in itertools.permutations(["beside", "scratch_pad"]):
        zone = LakeZone(data_lake, first)
        with pytest.raises(Crash):
            zone.script(ending_at(lambda request: request.endswith(FIRST)))
        zone.clock.advance(60)
        zone.built = then
        zone.script()
        assert zone.rows("s.t") == EXPECTED
        indexes = [zone.folder("s.t"), f"{ZONE}/_scratchPad/s.schema/t"]
        left = [f.name for index in indexes for f in zone.store.list(index).files]
        assert [name for name in left if name.startswith("_0")] == []


def test_a_table_is_dropped_with_what_was_built_of_it(data_lake: DataLake) -> None:
    zone = LakeZone(data_lake, "scratch_pad")
    with pytest.raises(Crash):
        zone.script(ending_at(lambda request: request.endswith(FIRST)))
    zone.clock.advance(60)
    with zone.publisher() as publisher:
        publisher.drop("s.t")
    left = [path for path in zone.data_lake.tree.nodes if path.endswith("/t")]
    assert left == [f"{ROOT}/Files/Mirrorlake/leases/publisher/s.schema/t"]


class TestLostResponse:
    """The request took effect, and nobody was told; or it never arrived."""

    @pytest.mark.full
    @pytest.mark.clause("LZ-135", "LZ-136", "LZ-113")
    @pytest.mark.parametrize("target_first", [False, True])
    @pytest.mark.parametrize("keeps_etags", [True, False])
    def test_of_any_rename_is_recognised(
        self, zone: LakeZone, keeps_etags: bool, target_first: bool
    ) -> None:
        zone.data_lake.tree.keeps_etags = keeps_etags
        zone.data_lake.tree.target_first = target_first
        zone.data_lake.service.next(Fault.ANSWER_LOST, each_once(lambda s: s.is_rename), 1000)
        zone.script()
        assert list(zone.files()) == [file_name(number) for number in (1, 2, 3, 4)]
        zone.data_lake.service.faults.clear()
        assert zone.rows("s.t") == EXPECTED

    @pytest.mark.full
    @pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.TIMED_OUT, Fault.BUSY])
    def test_of_any_request_is_recognised(self, zone: LakeZone, fault: Fault) -> None:
        zone.data_lake.service.next(fault, each_once(lambda seen: True), 1000)
        zone.script()
        assert list(zone.files()) == [file_name(number) for number in (1, 2, 3, 4)]

    @pytest.mark.full
    @pytest.mark.clause("LZ-135", "LZ-121")
    def test_and_of_every_attempt_is_made_good_by_the_next_run(self, data_lake: DataLake) -> None:
        """The connection is gone for good at some rename: the process cannot go on."""
        whole = LakeZone(data_lake)
        whole.brief()
        expected = whole.files()
        renames = [s for s in whole.data_lake.writes() if s.is_rename]
        # In the long run at every point.
        for number in range(1, len(renames) + 1, 1 if LONG else 4):
            zone = LakeZone(data_lake)
            cut = from_the(number, lambda seen: seen.is_rename)
            zone.data_lake.service.next(Fault.ANSWER_LOST, cut)
            zone.data_lake.service.next(Fault.REQUEST_LOST, cut.after, 1000)
            with pytest.raises(OSError, match="ServiceRe"):
                zone.brief()
            zone.data_lake.service.faults.clear()
            zone.clock.advance(60)
            zone.brief()
            assert zone.files() == expected, renames[number - 1]


@pytest.mark.full
class TestCrash:
    """The process ends before or after any request that writes; its caller starts again."""

    @pytest.mark.clause("LZ-134", "LZ-135", "LZ-136", "LZ-121", "LZ-113")
    @pytest.mark.parametrize(("built", "stride"), [("beside", 9), ("scratch_pad", 23)])
    def test_no_batch_is_lost_and_none_is_there_twice(
        self, data_lake: DataLake, built: str, stride: int
    ) -> None:
        seen: list[str] = []
        whole = LakeZone(data_lake, built)
        whole.brief(lambda request, _done: seen.append(request))
        expected = whole.files()
        for step in range(1, len(seen) + 1, 1 if LONG else stride):
            zone = LakeZone(data_lake, built)
            with pytest.raises(Crash):
                zone.brief(crash_at(step))
            assert zone.files().items() <= expected.items(), seen[step - 1]
            zone.clock.advance(60)
            zone.brief()
            assert zone.files() == expected, seen[step - 1]


@pytest.mark.clause("LZ-137", "LZ-134")
def test_a_path_with_other_content_stops_the_publisher(zone: LakeZone) -> None:
    path = f"{ROOT}/{ZONE}/s.schema/t/{FIRST}"
    other = zone.data_lake.opened()

    def rival(request: str, done: bool) -> None:
        if request.endswith(FIRST) and "/_0" not in request and not done:
            other.create(path.removeprefix(f"{ROOT}/"), b"other")

    with pytest.raises(NameTaken):
        zone.script(rival)
    zone.clock.advance(60)
    with pytest.raises(NameTaken):
        zone.script()
    assert zone.data_lake.tree.nodes[path].content == b"other"
    assert zone.numbers("s.t") == [1]


@pytest.mark.clause("LZ-135")
def test_a_batch_that_is_there_is_not_written_again(zone: LakeZone) -> None:
    with zone.publisher() as publisher:
        publisher.load("t", A, key="id", batch="one")
        before = zone.store.list(zone.folder("t"))
        again = publisher.load("t", A, key="id", batch="one")
    assert again.outcome is Outcome.ALREADY_PUBLISHED
    assert zone.store.list(zone.folder("t")) == before


def test_an_address_is_enough(data_lake: DataLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_KEY", "a2V5")
    publisher = Publisher("abfss://zone@acme.dfs.core.windows.net/shop")
    assert repr(publisher._store) == "AdlsStore('abfss://zone@acme.dfs.core.windows.net/shop')"


def file_name(number: int) -> str:
    return f"{number:020}.parquet"


def crash_at(count: int) -> Hook:
    """A hook that ends the process at its `count`-th call, from 1."""
    calls = itertools.count(1)

    def hook(request: str, _done: bool) -> None:
        if next(calls) == count:
            raise Crash(request)

    return hook


def ending_at(when: Callable[[str], bool]) -> Hook:
    """A hook that ends the process before the first rename of a kind, when all is built."""

    def hook(request: str, _done: bool) -> None:
        if when(request) and "/_0" not in request:
            raise Crash(request)

    return hook


def each_once(when: Callable[[Seen], bool]) -> Callable[[Seen], bool]:
    """Every other request of those that are meant: the first attempt, and not the second."""
    last: list[tuple[str, str, str]] = []

    def meant(seen: Seen) -> bool:
        this = (str(seen), seen.headers.get("x-ms-rename-source", ""), str(dict(seen.query)))
        if not when(seen) or last == [this]:
            last.clear()
            return False
        last[:] = [this]
        return True

    return meant


class from_the:  # noqa: N801
    """True of the `number`-th request of a kind; `after` is true of every request behind it."""

    def __init__(self, number: int, when: Callable[[Seen], bool]) -> None:
        self._left, self._when, self._over = number, when, False

    def __call__(self, seen: Seen) -> bool:
        if self._over or not self._when(seen):
            return False
        self._left -= 1
        self._over = self._left == 0
        return self._over

    def after(self, _seen: Seen) -> bool:
        return self._over
