"""A root with two mirrored tables and cuts, made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Self

from mirrorlake import Project
from mirrorlake.app.changes import cut
from mirrorlake.landing.cuts import Cut, Cuts
from mirrorlake.storage.local import LocalStore
from tests.feed.handmade_feed import INSERT, UPDATE, FeedTable


class Shop:
    """Two mirrored tables, files of which land and are applied as the test says."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tables = {
            name: FeedTable(root / f"Tables/s/{name}", **{"mirrorlake.generation": "g"})
            for name in ("a", "b")
        }
        for name in self.tables:
            folder = root / f"Files/LandingZone/s.schema/{name}"
            folder.mkdir(parents=True)
            (folder / "_metadata.json").write_text('{"keyColumns": ["id"]}')
        self.cuts = Cuts(LocalStore(root), "Files/LandingZone")
        self.number = 0

    def apply(self, name: str, first: int, last: int, *changes: Any, position: str = "") -> int:
        """Apply some files in one commit; returns the version."""
        table = self.tables[name]
        batch = {
            "mirrorlake": 1,
            "files": [first, last],
            "positions": [f"0/{first:X}:1", f"{position or f'0/{last:X}'}:1"],
            "rows": {"insert": 0, "update": 0, "delete": 0},
        }
        table.change(*changes)
        version = table.log.snapshot().version
        path = table.log.commit_file(version)
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        for action in actions:
            if info := action.get("commitInfo"):
                info["userMetadata"] = json.dumps(batch)
        actions.append({"txn": {"appId": "mirrorlake/g", "version": last}})
        path.write_text("\n".join(map(json.dumps, actions)))
        table.log.forget()
        return version

    def cut(self, position: str, excluded: dict[str, str] | None = None, **files: int) -> None:
        self.number += 1
        tables = {f"s.{name}": file for name, file in files.items()}
        self.cuts.write(Cut(self.number, "stream", position, None, tables, excluded or {}))

    @property
    def project(self) -> Project:
        return Project.of_root(self.root)

    def found(self, at: str | None = None) -> tuple[str, dict[str, int]]:
        found = cut.find(self.project, at)
        return found.position, {name: one.version for name, one in found.tables.items()}

    @classmethod
    def with_three_cuts(cls, root: Path) -> Self:
        """Cut 0/1: file 1 of both; 0/2: file 2 of a; 0/3, which is not applied: file 3 of a, file 2
        of b."""
        shop = cls(root)
        shop.apply("a", 1, 1, (INSERT, (1, "a")))
        shop.apply("b", 1, 1, (INSERT, (1, "x")))
        shop.apply("a", 2, 2, (UPDATE, (1, "b")))
        shop.cut("0/1", a=1, b=1)
        shop.cut("0/2", a=2)
        shop.cut("0/3", a=3, b=2)
        return shop
