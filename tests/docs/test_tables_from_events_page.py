"""The page on tables from events runs as it stands."""

from __future__ import annotations

import json
from pathlib import Path

from mirrorlake import config
from mirrorlake.app.mirror import Mirror
from tests.apply.events.bucket import event
from tests.apply.events.drawn_files import rows_of
from tests.docs.blocks import blocks

PAGE = "how-to/tables-from-events.md"


def test_the_project_of_the_page_makes_tables_of_event_files(tmp_path: Path) -> None:
    file = tmp_path / "mirrorlake.yaml"
    project, cluster, typed = blocks(PAGE, "yaml")
    file.write_text(project + cluster)
    assert config.load(file, {}).spark.is_cluster
    file.write_text(f"name: shop\nroot: ./lake\n{typed}")
    told = config.load(file, {}).events
    assert told is not None
    assert {name: str(kind) for name, kind in told.types["shop.orders"].items()} == {
        "id": "LONG",
        "price": "DECIMAL(38,9)",
    }
    file.write_text(project)
    (tmp_path / "events").mkdir()
    lines = [event(2, {"id": 1, "note": "paid"}, "UPDATE"), event(1, {"id": 1, "note": None})]
    (tmp_path / "events" / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    mirror = Mirror(config.load(file, {}))
    assert [finding.check for finding in mirror.preflight()] == ["reachable"]
    report = mirror.apply_once()
    assert {str(name): one.inserts for name, one in report.tables.items()} == {"public.orders": 1}
    assert [row["note"] for row in rows_of(tmp_path / "lake/Tables/public/orders")] == ["paid"]
    status = mirror.status()
    assert [(one.table, one.inserts, one.version) for one in status.tables] == [
        ("public.orders", 1, 0)
    ]
