"""Handmade tables with a change feed, whose commits have times, positions and properties."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from mirrorlake.delta.write.rewrite import rewrite
from mirrorlake.delta.write.table_metadata import metadata
from mirrorlake.model import types
from mirrorlake.model.change import Marker
from mirrorlake.model.table import Schema
from tests.delta.handmade import HandmadeTable
from tests.delta.write.test_rewrite import net_of
from tests.histories import Landing, Shape
from tests.reference import Change

SHAPE = Shape.of(["id"], id=types.LONG, name=types.STRING)
INSERT, UPDATE, DELETE = Marker.INSERT, Marker.UPDATE, Marker.DELETE
START = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
"""The time of version 0; each version is a minute later than the one before."""


class FeedTable(HandmadeTable):
    """Version 0 makes the table, with these properties, and has the time START."""

    def __init__(self, path: Path, schema: Schema = SHAPE.schema, **properties: str) -> None:
        key = {"mirrorlake.keyColumns": '["id"]'}
        super().__init__(path, schema, properties=key | properties)

    def commit(self, actions: Any, **said: Any) -> int:
        version = self.log.snapshot().version + 1
        said = {"timestamp": milliseconds(time_of(version)), **said}
        return super().commit(actions, **said)

    def change(
        self,
        *changes: tuple[Marker, tuple[Any, ...]],
        position: str | None = None,
        source_time: datetime | None = None,
    ) -> int:
        """Commit changes as a batch of a mirror; returns the version."""
        file = tuple(Change(marker, row) for marker, row in changes)
        shape = Shape(self.schema.schema, ("id",))
        done = rewrite(self.path, self.files, self.schema, net_of(shape, Landing((file,))), 1)
        batch: dict[str, Any] = {
            "mirrorlake": 1,
            "files": [1, 1],
            "positions": [position, position] if position else None,
            "rows": {"insert": 0, "update": 0, "delete": 0},
        }
        if source_time is not None:
            batch["source_time"] = source_time.isoformat()
        return self.commit(done.actions, userMetadata=json.dumps(batch))

    def describe(self, schema: Schema) -> int:
        """Commit other columns; returns the version."""
        known = self.log.snapshot().metadata
        new = {**known, "schemaString": metadata(schema)["schemaString"]}
        return self.commit([{"metaData": new}])

    def record(self, is_on: bool) -> int:
        """Switch the feed on or off."""
        known = self.log.snapshot().metadata
        told = {**known["configuration"], "delta.enableChangeDataFeed": str(is_on).lower()}
        return self.commit([{"metaData": {**known, "configuration": told}}])


def time_of(version: int) -> datetime:
    return START + timedelta(minutes=version)


def milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
