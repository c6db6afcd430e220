"""The page on writing events runs as it stands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mirrorlake import config
from mirrorlake.app.mirror import Mirror
from tests.conftest import Database
from tests.docs.blocks import blocks

PAGE = "how-to/write-events.md"


@pytest.mark.postgres
def test_the_project_of_the_page_writes_events_as_it_shows_them(
    database: Database, tmp_path: Path
) -> None:
    database.execute("create table orders (id bigint primary key, note text)")
    database.execute("insert into orders values (1, null)")
    file = tmp_path / "mirrorlake.yaml"
    project, several = blocks(PAGE, "yaml")
    file.write_text(project.replace("name: shop", f"name: {database.name}"))
    mirror = Mirror(config.load(file, {"SHOP_URL": database.url}))
    mirror.capture_once()
    database.execute("update orders set note = 'paid'")
    mirror.capture_once()
    (path,) = (tmp_path / "events").rglob("*_postgres-cdc-wal_*")
    assert [*path.relative_to(tmp_path).parts[:2]] == ["events", "public_orders"]
    written = json.loads(path.read_text())
    (shown,) = blocks(PAGE, "json")
    event = json.loads(shown)
    assert list(written) == list(event)
    assert list(written["source_metadata"]) == list(event["source_metadata"])
    assert written["payload"] == event["payload"]
    same = ("object", "read_method")
    assert [written[name] for name in same] == [event[name] for name in same]
    file.write_text(project.partition("destination:")[0] + several)
    both = config.load(file, {"SHOP_URL": database.url})
    assert both.lands
    assert [one.described for one in both.destinations] == [f"{tmp_path}/events", "s3://bucket/crm"]
