"""Masks, lists and names: what clients send, read."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.control import listing, masks
from mirrorlake.control.names import ResourceKind, ResourceName, new_name
from mirrorlake.errors import InvalidRequest

KEYS = st.sampled_from(["a", "b", "cD", "labels"])
DOCUMENTS = st.recursive(
    st.integers() | st.text(max_size=3),
    lambda inner: st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(KEYS, DOCUMENTS, max_size=4)
PATHS = st.lists(KEYS, min_size=1, max_size=3).map(tuple)


def at(document: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        document = document.get(name) if isinstance(document, dict) else None
    return document


@pytest.mark.clause("ST-346")
@given(OBJECTS, OBJECTS, PATHS)
def test_only_the_fields_of_the_mask_are_overwritten(
    current: dict[str, Any], sent: dict[str, Any], path: tuple[str, ...]
) -> None:
    result = masks.overlaid(current, sent, [path], ())
    assert at(result, path) == at(sent, path)
    for name in current.keys() - {path[0]}:
        assert result[name] == current[name]
    assert result.keys() - {path[0]} == current.keys() - {path[0]}


@pytest.mark.clause("ST-346")
@given(OBJECTS, OBJECTS)
def test_without_a_mask_all_fields_are_overwritten(
    current: dict[str, Any], sent: dict[str, Any]
) -> None:
    result = masks.overlaid(current, sent, [], ("a",))
    assert {k: v for k, v in result.items() if k != "a"} == {
        k: v for k, v in sent.items() if k != "a"
    }
    assert result.get("a") == current.get("a")


def test_masks_are_read_in_both_spellings() -> None:
    assert masks.parse_mask("display_name, mysqlProfile.port,") == [
        ("displayName",),
        ("mysqlProfile", "port"),
    ]
    assert masks.parse_mask("*") == []
    with pytest.raises(InvalidRequest):
        masks.parse_mask("a..b")
    with pytest.raises(InvalidRequest):
        masks.overlaid({}, {}, [("name",)], ("name",))


@pytest.mark.clause("ST-342")
def test_pages_hold_50_by_default_and_at_most_1000() -> None:
    assert [listing.page_size(asked) for asked in (0, 7, 1_000, 5_000)] == [50, 7, 1_000, 1_000]
    with pytest.raises(InvalidRequest):
        listing.page_size(-1)


@given(st.integers(0, 999_999), st.text("abc0123456789", min_size=1))
def test_a_token_belongs_to_its_list(offset: int, query: str) -> None:
    token = listing.page_token(offset, query)
    assert listing.offset_of(token, query) == offset
    for wrong in (token[:-1], "x" + token, "🙂"):
        with pytest.raises(InvalidRequest):
            listing.offset_of(wrong, query)
    with pytest.raises(InvalidRequest):
        listing.offset_of(token, query + "z")


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("", True),
        ("state=RUNNING", True),
        ('state = "PAUSED"', False),
        ('labels.team="da ta" AND state=RUNNING', True),
        ("labels.team:*", True),
        ("labels.none:*", False),
        ("NOT state=RUNNING", False),
        ("-labels.none:*", True),
        ("display_name:SHO", True),
        ("createTime>2025-01-01", True),
        ("createTime < 2025-01-01", False),
        ("satisfied=true", True),
        ("source_config.source_profile:db", True),
        ("sourceConfig.sourceProfile:db", True),
        ("labels.team_a=x", True),
    ],
)
def test_filters(text: str, holds: bool) -> None:
    document = {
        "name": "n",
        "displayName": "shop",
        "state": "RUNNING",
        "labels": {"team": "da ta", "team_a": "x"},
        "sourceConfig": {"sourceProfile": "db"},
        "createTime": "2026-01-01T00:00:00Z",
        "satisfied": True,
    }
    assert all(one.holds(document) for one in listing.parse_filter(text)) is holds


@given(st.text(max_size=40))
def test_any_filter_and_order_is_read_or_refused(text: str) -> None:
    for read in (listing.parse_filter, listing.parse_order):
        with suppress(InvalidRequest):
            read(text)


def test_lists_are_ordered_by_what_is_asked_and_then_by_name() -> None:
    found = [{"name": n, "displayName": d} for n, d in (("c", "x"), ("a", "y"), ("b", "x"))]
    ordered = listing.ordered(found, listing.parse_order("displayName desc"))
    assert [one["name"] for one in ordered] == ["a", "b", "c"]


@pytest.mark.clause("ST-339")
@pytest.mark.parametrize(
    "text",
    [
        "projects/p/locations/l/streams/s",
        "projects/p/locations/l/streams/s/objects/0f",
        "projects/p/locations/l/connectionProfiles/c",
        "projects/p/locations/l/operations/o-1",
    ],
)
def test_names_are_read_and_printed(text: str) -> None:
    assert str(ResourceName.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "streams/s",
        "projects/p/locations/l/streams/",
        "projects/../locations/l/streams/s",
        "projects/p/locations/l/objects/o",
        "projects/p/locations/l/connectionProfiles/c/objects/o",
        "projects/p/locations/l/streams/s\x00",
        "projects/p/locations/l/streams/..",
        "projects/p/locations/l/nothing/s",
    ],
)
def test_other_names_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        ResourceName.parse(text)


@pytest.mark.parametrize("identifier", ["", "A", "a_b", "-a", "a-", "1a", "../x", "a" * 64, "a\n"])
def test_identifiers_that_are_no_names_are_refused(identifier: str) -> None:
    with pytest.raises(InvalidRequest):
        new_name("projects/p/locations/l", ResourceKind.STREAM, identifier)
