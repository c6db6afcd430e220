"""Profiles and streams of tests, and doubles of what control is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from mirrorlake.control.control import Control
from mirrorlake.control.names import ResourceKind, ResourceName
from mirrorlake.control.reports import Validation
from mirrorlake.model.clock import WallClock

PARENT = "projects/p/locations/l"


SECRET = "s3cret-of-shop"


POSTGRES: dict[str, Any] = {
    "displayName": "shop",
    "labels": {"team": "data"},
    "postgresqlProfile": {
        "hostname": "db",
        "username": "u",
        "password": SECRET,
        "database": "shop",
    },
    "staticServiceIpConnectivity": {},
}


STREAM: dict[str, Any] = {
    "displayName": "shop",
    "sourceConfig": {
        "sourceConnectionProfile": f"{PARENT}/connectionProfiles/source",
        "postgresqlSourceConfig": {"replicationSlot": "slot", "publication": "pub"},
    },
    "destinationConfig": {
        "destinationConnectionProfile": f"{PARENT}/connectionProfiles/tables",
        "bigqueryDestinationConfig": {"merge": {}},
    },
    "backfillAll": {},
}


class Scripted:
    """Says what a test lets it say."""

    def __init__(self) -> None:
        self.found: Sequence[Validation] = ()
        self.asked = 0

    def profile(self, profile: Any, secrets: Mapping[str, str], /) -> Sequence[Validation]:
        self.asked += 1
        return self.found

    def stream(self, name: Any, stream: Any, /) -> Sequence[Validation]:
        self.asked += 1
        return self.found


Opening = Callable[..., Control]


class Later(WallClock):
    """The time in a year."""

    def now(self) -> datetime:
        return super().now() + timedelta(days=365)


def profile(identifier: str) -> ResourceName:
    return ResourceName(PARENT, ResourceKind.PROFILE, identifier)


SHOP = ResourceName(PARENT, ResourceKind.STREAM, "shop")
