"""A call that is refused leaves a landing zone as it was."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.errors import LeaseLost, TableError, UsageError
from mirrorlake.publisher import Outcome, Publisher, TextFormat
from tests.publisher.mirrored_zone import Zone

A, B = [{"id": 1, "v": "a"}], [{"id": 2, "v": "b"}]
BAD = [{"op": "zap", "id": 1}]


@pytest.mark.parametrize(
    "refused",
    [
        pytest.param(lambda p: p.load("s.t", A), id="no key"),
        pytest.param(lambda p: p.load("s.t", A, key="x"), id="another key"),
        pytest.param(lambda p: p.load("s.t", [{"id": None}], key="id"), id="no type"),
        pytest.param(lambda p: p.publish("s.t", BAD, key="id", marker_column="op"), id="marker"),
        pytest.param(lambda p: p.load("s.t", _failing(), key="id", batch="one"), id="rows"),
        pytest.param(lambda p: p.describe("s.t"), id="description"),
        pytest.param(lambda p: p.load("s.t", A, text=TextFormat(), key="x"), id="text"),
    ],
)
def test_a_first_load_that_is_refused_leaves_nothing_behind(
    tmp_path: Path, refused: Callable[[Publisher], object]
) -> None:
    root = tmp_path / "zone"
    with Publisher(root) as publisher:
        with pytest.raises((UsageError, TableError, ZeroDivisionError)):
            refused(publisher)
        assert not root.exists()
        assert publisher.load("s.t", A, key="id").files[0].number == 1
    assert (root / "Files/LandingZone/_partnerEvents.json").exists()


def _failing() -> Iterator[dict[str, Any]]:
    yield A[0]
    raise ZeroDivisionError


def test_a_refused_load_leaves_what_others_have_made(tmp_path: Path) -> None:
    root, folder = tmp_path / "zone", tmp_path / "zone/Files/LandingZone/t"
    folder.mkdir(parents=True)
    (folder / "_metadata.json").write_text('{"keyColumns": ["id"]}')
    before = sorted(root.rglob("*"))
    with Publisher(root) as publisher:
        with pytest.raises(ZeroDivisionError):
            publisher.load("t", _failing())
        assert sorted(root.rglob("*")) == before


def test_a_refused_load_keeps_what_was_described_before(zone: Zone, publisher: Publisher) -> None:
    publisher.describe("t", key="id", by_time=True)
    with pytest.raises(ZeroDivisionError):
        publisher.load("t", _failing())
    assert publisher.load("t", A).files
    assert json.loads(zone.store.read(f"{zone.folder('t')}/_metadata.json"))["keyColumns"] == ["id"]


def test_a_refused_load_beside_a_new_owner_takes_nothing_from_it(zone: Zone) -> None:
    late = zone.publisher()

    def rows() -> Iterator[dict[str, Any]]:
        yield A[0]
        zone.clock.sleep(60)
        with zone.publisher() as owner:
            owner.load("t", B, key="id", batch="theirs")
        raise ZeroDivisionError

    with pytest.raises(LeaseLost):
        late.load("t", rows(), key="id")
    assert zone.rows("t") == B
    with zone.publisher() as owner:
        assert owner.load("t", B, batch="theirs").outcome is Outcome.ALREADY_PUBLISHED
