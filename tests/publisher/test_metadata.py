"""What a publisher says of a table and of itself."""

from __future__ import annotations

import json
from typing import Any

import pytest
from structlog.testing import capture_logs

from mirrorlake.errors import BadMetadata, KeyColumnsChanged, UsageError
from mirrorlake.landing import partner_events
from mirrorlake.landing.metadata import Metadata, OurMetadata, encode
from mirrorlake.publisher import Partner, Publisher
from tests.doubles.memory_store import Effect
from tests.publisher.mirrored_zone import ZONE, Zone

ROW = [{"C1": 1, "C2": "x", "C3": 2.5}]


def strict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    assert len(set(names)) == len(names)
    return dict(pairs)


@pytest.mark.clause("LZ-029", "LZ-030", "LZ-031", "LZ-032", "LZ-053")
@pytest.mark.parametrize("key", [["C1"], ["C1", "C2"], ["C2", "C1"]])
def test_the_key_is_in_strict_json(zone: Zone, publisher: Publisher, key: list[str]) -> None:
    publisher.load("t", ROW, key=key)
    content = zone.store.read(f"{zone.folder('t')}/_metadata.json").decode("utf-8")
    record = json.loads(content, object_pairs_hook=strict, parse_constant=pytest.fail)
    assert record["keyColumns"] == key
    assert not content.startswith("\ufeff")


@pytest.mark.clause("LZ-029")
def test_a_table_without_a_key_has_metadata_too(zone: Zone, publisher: Publisher) -> None:
    publisher.load("t", ROW, key=())
    assert zone.metadata("t")["keyColumns"] == []
    assert zone.rows("t") == ROW


def test_a_new_table_asks_for_its_key(zone: Zone, publisher: Publisher) -> None:
    with pytest.raises(UsageError, match="key"):
        publisher.load("t", ROW)
    assert zone.names("t") == []


def test_the_key_is_given_once(zone: Zone, publisher: Publisher) -> None:
    publisher.load("t", ROW, key="C1")
    publisher.publish("t", [{"C1": 1}], operation="delete")
    assert zone.rows("t") == []


@pytest.mark.clause("LZ-036", "LZ-037")
def test_another_key_needs_another_table(zone: Zone, publisher: Publisher) -> None:
    publisher.load("t", ROW, key="C1")
    before = zone.metadata("t")
    with pytest.raises(KeyColumnsChanged):
        publisher.publish("t", ROW, operation="upsert", key=["C1", "C2"])
    assert zone.metadata("t") == before
    publisher.drop("t")
    publisher.load("t", ROW, key=["C1", "C2"])
    assert zone.metadata("t")["keyColumns"] == ["C1", "C2"]
    assert zone.rows("t") == ROW


@pytest.mark.clause("LZ-035")
def test_a_key_can_be_added(zone: Zone, publisher: Publisher) -> None:
    publisher.load("t", ROW, key=())
    publisher.publish("t", [{"C1": 1, "C2": "y", "C3": 0.0}], operation="upsert", key="C1")
    assert zone.rows("t") == [{"C1": 1, "C2": "y", "C3": 0.0}]


@pytest.mark.clause("LZ-036")
def test_a_key_that_was_changed_by_hand_stops_the_table(zone: Zone, publisher: Publisher) -> None:
    publisher.load("t", ROW, key="C1")
    zone.store.replace(f"{zone.folder('t')}/_metadata.json", b'{"keyColumns": ["C2"]}')
    with pytest.raises(KeyColumnsChanged):
        publisher.publish("t", ROW, operation="upsert")


def test_metadata_that_was_there_gives_the_key(zone: Zone, publisher: Publisher) -> None:
    zone.store.create(f"{zone.folder('t')}/_metadata.json", b'{"keyColumns": ["C1"]}')
    publisher.load("t", ROW)
    assert zone.metadata("t")["keyColumns"] == ["C1"]


@pytest.mark.clause("LZ-056")
def test_metadata_is_written_before_the_first_file(zone: Zone) -> None:
    order: list[str] = []

    def look(effect: Effect) -> None:
        if effect.done and effect.name in {"publish", "replace"}:
            order.append(effect.path.rpartition("/")[2])

    zone.store = zone.store.reopened(look)
    with zone.publisher() as publisher:
        publisher.load("t", ROW, key="C1")
    assert order.index("_metadata.json") < order.index("00000000000000000001.parquet")


@pytest.mark.clause("LZ-056")
def test_a_bulk_load_is_released_by_its_metadata(zone: Zone, publisher: Publisher) -> None:
    publisher.describe("t", key="C1", hold=True)
    publisher.load("t", ROW)
    publisher.load("t", [{"C1": 2, "C2": "y", "C3": 0.0}])
    assert "_metadata.json" not in [f.name for f in zone.store.list(zone.folder("t")).files]
    assert zone.numbers("t") == [1, 2]
    publisher.release("t")
    assert len(zone.rows("t")) == 2


def test_nothing_is_released_that_does_not_exist(publisher: Publisher) -> None:
    with pytest.raises(UsageError, match="release"):
        publisher.release("t")


@pytest.mark.clause("LZ-057")
@pytest.mark.parametrize(("columns", "advised"), [(4, False), (5, True)])
def test_a_long_key_is_advised_against(publisher: Publisher, columns: int, advised: bool) -> None:
    row = {f"k{n}": n for n in range(6)}
    with capture_logs() as logs:
        publisher.load("t", [row], key=[f"k{n}" for n in range(columns)])
    assert ("key_of_many_columns" in [line["event"] for line in logs]) is advised


@pytest.mark.clause("LZ-047", "LZ-048", "LZ-049", "LZ-053")
@pytest.mark.parametrize("by_time", [False, True])
@pytest.mark.parametrize("upsert", [False, True])
def test_detection_and_default_are_said_apart(
    zone: Zone, publisher: Publisher, by_time: bool, upsert: bool
) -> None:
    publisher.describe("t", key="C1", by_time=by_time, upsert_default=upsert)
    record = zone.metadata("t")
    assert record.get("fileDetectionStrategy", "SequentialFileName") == (
        "LastUpdateTimeFileDetection" if by_time else "SequentialFileName"
    )
    assert record.get("isUpsertDefaultRowMarker", False) is upsert


@pytest.mark.clause("LZ-122", "LZ-123")
def test_names_by_time_never_occur_again(zone: Zone, publisher: Publisher) -> None:
    publisher.describe("t", key="C1", by_time=True)
    publisher.load("t", ROW)
    publisher.publish("t", ROW, operation="upsert")
    before = zone.names("t")
    publisher.drop("t")
    publisher.describe("t", key="C1", by_time=True)
    publisher.load("t", ROW)
    names = [*before, *zone.names("t")]
    assert len(set(names)) == 3
    assert before == sorted(before)  # equal times are read in the order of the names (LZ-125)
    assert all(name.endswith(".parquet") and not name.startswith("_") for name in names)


@pytest.mark.clause("LZ-128")
def test_files_are_in_sequence_unless_it_is_asked_otherwise(
    zone: Zone, publisher: Publisher
) -> None:
    publisher.load("t", ROW, key="C1")
    assert zone.names("t") == ["00000000000000000001.parquet"]
    assert "fileDetectionStrategy" not in zone.metadata("t")


def test_how_a_table_is_landed_stays(zone: Zone, publisher: Publisher) -> None:
    publisher.load("t", ROW, key="C1")
    with pytest.raises(UsageError, match="layout"):
        publisher.publish("t", ROW, operation="upsert", layout="v1")


@pytest.mark.clause("LZ-138")
def test_a_captured_table_is_refused(zone: Zone, publisher: Publisher) -> None:
    ours = OurMetadata("g", "orders", {"schema": "", "identity": "16384"})
    path = f"{zone.folder('orders')}/_metadata.json"
    zone.store.create(path, encode(Metadata(("C1",), ours=ours)))
    with pytest.raises(UsageError, match="captured"):
        publisher.publish("orders", ROW, operation="upsert")


def test_a_state_that_cannot_be_read_stops_the_table(zone: Zone, publisher: Publisher) -> None:
    publisher.load("t", ROW, key="C1")
    for content in (b"", b"{}", b'{"format": "2"}', b"\xff", b"[]"):
        zone.store.replace(f"{zone.folder('t')}/_publisher.json", content)
        with pytest.raises(BadMetadata):
            publisher.publish("t", ROW, operation="upsert")


class TestPartnerEvents:
    PATH = f"{ZONE}/_partnerEvents.json"

    @pytest.mark.clause("LZ-060", "LZ-062", "LZ-065")
    def test_a_zone_says_who_fills_it(self, zone: Zone, publisher: Publisher) -> None:
        publisher.load("s.t", ROW, key="C1")
        publisher.load("u", ROW, key="C1")
        assert json.loads(zone.store.read(self.PATH))["partnerName"] == "mirrorlake"
        told = [path for path in zone.store.files.content if path.endswith("_partnerEvents.json")]
        assert told == [self.PATH]  # for the database, and for no table

    @pytest.mark.clause("LZ-065")
    @pytest.mark.parametrize(
        "name", ["Contoso, Inc.", "größe 日本 \U0001f600", 'a "b" \\ c', "x" * 500]
    )
    def test_a_partner_may_have_any_name(self, zone: Zone, name: str) -> None:
        with zone.publisher(partner=Partner(name)) as publisher:
            publisher.load("t", ROW, key="C1")
        assert partner_events.read(zone.store, ZONE).name == name

    @pytest.mark.clause("LZ-061", "LZ-063", "LZ-064")
    def test_the_source_is_described_freely(self, zone: Zone) -> None:
        told = Partner("testPartner", "Søme SQL", "2019", {"testKey": "testValue"})
        with zone.publisher(partner=told) as publisher:
            publisher.load("t", ROW, key="C1")
        assert json.loads(zone.store.read(self.PATH)) == {
            "partnerName": "testPartner",
            "sourceInfo": {
                "sourceType": "Søme SQL",
                "sourceVersion": "2019",
                "additionalInformation": {"testKey": "testValue"},
            },
        }

    @pytest.mark.clause("LZ-066")
    def test_its_name_stays(self, zone: Zone) -> None:
        with zone.publisher(partner=Partner("Contoso")) as publisher:
            publisher.load("t", ROW, key="C1")
        with zone.publisher(partner=Partner("Fabrikam")) as publisher, pytest.raises(UsageError):
            publisher.load("u", ROW, key="C1")
        with zone.publisher(partner=Partner("Contoso", "Oracle")) as publisher:
            publisher.load("u", ROW, key="C1")
        found = json.loads(zone.store.read(self.PATH))
        assert (found["partnerName"], found["sourceInfo"]["sourceType"]) == ("Contoso", "Oracle")

    @pytest.mark.clause("LZ-066")
    @pytest.mark.parametrize("who", [None, Partner("Contoso")], ids=["not told", "told"])
    def test_it_is_the_same_in_every_zone(self, who: Partner | None) -> None:
        names = set()
        for number in range(3):
            zone = Zone()
            with zone.publisher(partner=who) as publisher:
                publisher.load(f"s{number}.t{number}", ROW, key="C1")
            names.add(partner_events.read(zone.store, ZONE).name)
        assert names == {who.name if who else "mirrorlake"}

    def test_a_description_of_another_publisher_is_kept_if_none_is_given(self, zone: Zone) -> None:
        zone.store.create(self.PATH, b'{"partnerName": "Contoso"}')
        with zone.publisher() as publisher:
            publisher.load("t", ROW, key="C1")
        assert zone.store.read(self.PATH) == b'{"partnerName": "Contoso"}'
