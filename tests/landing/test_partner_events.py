"""`_partnerEvents.json`: who fills the zone, and nothing that matters."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.landing import partner_events
from mirrorlake.landing.partner_events import PartnerEvents
from tests.doubles.clock import SteppedClock
from tests.doubles.memory_store import MemoryStore
from tests.landing.zone import ZONE

EXAMPLE = (
    b'{"partnerName":"testPartner","sourceInfo":{"sourceType":"SQL","sourceVersion":"2019",'
    b'"additionalInformation":{"testKey":"testValue"}}}'
)


class TestReading:
    @pytest.mark.clause("LZ-318", "LZ-063")
    def test_the_example_of_the_specification(self) -> None:
        store = MemoryStore(SteppedClock())
        store.replace(f"{ZONE}/_partnerEvents.json", EXAMPLE)
        found = partner_events.read(store, ZONE)
        assert found == PartnerEvents("testPartner", "SQL", "2019", {"testKey": "testValue"})
        assert found.facts() == {
            "partner": "testPartner",
            "source_type": "SQL",
            "source_version": "2019",
            "additional_information": {"testKey": "testValue"},
            "problem": None,
        }

    def test_the_file_is_optional(self) -> None:
        assert partner_events.read(MemoryStore(SteppedClock()), ZONE) == PartnerEvents()
        assert not PartnerEvents().is_present

    @pytest.mark.clause("LZ-064")
    @given(st.text(st.characters(codec="utf-8")))
    def test_the_type_of_the_source_is_any_text(self, kind: str) -> None:
        content = json.dumps({"sourceInfo": {"sourceType": kind}}).encode()
        assert partner_events.decode(content) == PartnerEvents(source_type=kind)

    def test_members_are_found_in_any_case(self) -> None:
        content = b'{"PartnerName": "p", "sourceinfo": {"SOURCETYPE": "Oracle"}}'
        assert partner_events.decode(content) == PartnerEvents("p", "Oracle")


class TestFaults:
    @pytest.mark.clause("LZ-067")
    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"{",
            b"[]",
            b"\xff",
            b'{"partnerName": 1}',
            b'{"sourceInfo": "SQL"}',
            b'{"sourceInfo": {"additionalInformation": []}}',
        ],
    )
    def test_an_invalid_file_is_a_problem_but_not_an_error(self, content: bytes) -> None:
        assert partner_events.decode(content).problem

    def test_a_huge_file_is_not_read(self) -> None:
        store = MemoryStore(SteppedClock())
        store.replace(f"{ZONE}/_partnerEvents.json", b" " * (partner_events.LIMIT + 1))
        assert "bytes" in partner_events.read(store, ZONE).problem

    def test_a_file_that_cannot_be_opened_is_a_problem(self) -> None:
        store = MemoryStore(SteppedClock())
        store.replace(f"{ZONE}/_partnerEvents.json", EXAMPLE)

        def refuse(_path: str) -> bytes:
            raise PermissionError(13, "Permission denied")

        store.read = refuse  # type: ignore[method-assign]
        assert partner_events.read(store, ZONE).problem == "it cannot be read: Permission denied"

    @given(st.binary(max_size=60))
    def test_no_content_raises_an_error(self, content: bytes) -> None:
        assert partner_events.decode(content) == partner_events.decode(content)
