"""The place in which a stream has begun to write stays what it is."""

from __future__ import annotations

from typing import Any

import pytest

from mirrorlake.control.control import Control
from mirrorlake.control.requests import Asked
from mirrorlake.control.states import StreamMove
from mirrorlake.errors import IllegalMove, InvalidRequest
from tests.control.resources import PARENT, SHOP, STREAM, profile

BUCKET = {"gcsProfile": {"bucket": "shop", "rootPath": "/a"}}
AVRO: dict[str, Any] = {
    "destinationConnectionProfile": f"{PARENT}/connectionProfiles/bucket",
    "gcsDestinationConfig": {"path": "/events", "avroFileFormat": {}},
}
FOLDER = {"fileSystemProfile": {"rootPath": "a"}}
ZONE: dict[str, Any] = {
    "destinationConnectionProfile": f"{PARENT}/connectionProfiles/folder",
    "fileSystemDestinationConfig": {"path": "zone", "landingZone": {}},
}


def with_stream(control: Control, destination: Any, *, begun: bool = True) -> None:
    control.profiles.create(PARENT, "bucket", BUCKET, Asked())
    control.profiles.create(PARENT, "folder", FOLDER, Asked())
    stream = {**STREAM, "destinationConfig": destination}
    control.streams.create(PARENT, "shop", stream, Asked())
    if begun:
        control.streams.update(SHOP, {"state": "RUNNING"}, "state", Asked())
        control.supervision.observe(SHOP, StreamMove.VALID)


def changed(control: Control, destination: Any) -> None:
    sent = {"destinationConfig": destination}
    control.streams.update(SHOP, sent, "destinationConfig", Asked(force=True))


@pytest.mark.parametrize(
    ("before", "after", "field"),
    [
        (AVRO, {**AVRO, "gcsDestinationConfig": {"path": "/other"}}, "path"),
        (ZONE, {**ZONE, "fileSystemDestinationConfig": {"path": "other"}}, "path"),
        (
            ZONE,
            {**ZONE, "fileSystemDestinationConfig": {"path": "zone", "avroFileFormat": {}}},
            "destinationConfig.fileSystemDestinationConfig.landingZone",
        ),
        (AVRO, ZONE, "destinationConnectionProfile"),
    ],
)
def test_a_stream_that_has_begun_does_not_move(
    ready: Control, before: Any, after: Any, field: str
) -> None:
    with_stream(ready, before)
    with pytest.raises(InvalidRequest, match="of a stream that has begun") as refused:
        changed(ready, after)
    assert refused.value.where.endswith(field)


def test_the_source_of_a_stream_that_has_begun_does_not_become_a_destination(
    ready: Control,
) -> None:
    with_stream(ready, AVRO)
    sent, mask = {"gcsProfile": {"bucket": "b"}}, "postgresqlProfile,gcsProfile"
    with pytest.raises(IllegalMove, match=r"the kind cannot be changed.* begun to read from it"):
        ready.profiles.update(profile("source"), sent, mask, Asked(force=True))


def test_a_stream_that_has_begun_does_not_move_after_a_start_that_failed(ready: Control) -> None:
    with_stream(ready, AVRO)
    ready.streams.update(SHOP, {"state": "PAUSED"}, "state", Asked())
    ready.supervision.observe(SHOP, StreamMove.DRAINED)
    ready.streams.update(SHOP, {"state": "RUNNING"}, "state", Asked())
    ready.supervision.observe(SHOP, StreamMove.INVALID)
    ready.streams.update(SHOP, {"displayName": "x"}, "displayName", Asked())
    assert ready.get(SHOP)["state"] == "NOT_STARTED"
    with pytest.raises(InvalidRequest, match="path of a stream that has begun"):
        changed(ready, {**AVRO, "gcsDestinationConfig": {"path": "/other"}})
    sent = {"gcsProfile": {"bucket": "shop2"}}
    with pytest.raises(IllegalMove, match="has begun"):
        ready.profiles.update(profile("bucket"), sent, "gcsProfile.bucket", Asked(force=True))


def test_a_stream_whose_first_start_failed_moves(ready: Control) -> None:
    with_stream(ready, AVRO, begun=False)
    ready.streams.update(SHOP, {"state": "RUNNING"}, "state", Asked())
    ready.supervision.observe(SHOP, StreamMove.INVALID)
    changed(ready, ZONE)
    assert "firstRunTime" not in ready.get(SHOP)


def test_a_stream_moves_before_it_begins_and_its_files_change_at_any_time(ready: Control) -> None:
    with_stream(ready, AVRO, begun=False)
    changed(ready, ZONE)
    changed(ready, AVRO)
    ready.streams.update(SHOP, {"state": "RUNNING"}, "state", Asked())
    changed(ready, {**AVRO, "gcsDestinationConfig": {"path": "events/", "jsonFileFormat": {}}})
    assert "jsonFileFormat" in ready.get(SHOP)["destinationConfig"]["gcsDestinationConfig"]


@pytest.mark.parametrize(
    ("destination", "name", "kind", "field", "other"),
    [
        (AVRO, "bucket", "gcsProfile", "bucket", "shop2"),
        (AVRO, "bucket", "gcsProfile", "rootPath", "/b"),
        (ZONE, "folder", "fileSystemProfile", "rootPath", "b"),
    ],
)
def test_a_profile_does_not_move_what_a_stream_has_begun(
    ready: Control, destination: Any, name: str, kind: str, field: str, other: str
) -> None:
    with_stream(ready, destination)

    def move() -> None:
        sent = {kind: {field: other}}
        ready.profiles.update(profile(name), sent, f"{kind}.{field}", Asked(force=True))

    with pytest.raises(IllegalMove, match="streams/shop has begun to write there"):
        move()
    ready.profiles.update(profile(name), {"displayName": "x"}, "displayName", Asked())
    ready.streams.delete(SHOP, Asked())
    ready.supervision.removed(SHOP)
    move()
    assert ready.get(profile(name))[kind][field] == other
