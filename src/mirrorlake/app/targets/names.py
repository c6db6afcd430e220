"""Which tables the targets of a project file mean: their names may be without quotes there."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from mirrorlake.app.stores import store_of
from mirrorlake.config import Project
from mirrorlake.delta.tables import delta_tables
from mirrorlake.feed.targets.settings import TargetSettings
from mirrorlake.model.table import TableId
from mirrorlake.root import table_at


def named_targets(project: Project) -> list[TargetSettings]:
    """The targets of a project, of the tables that there are."""
    if not any(map(is_unclear, project.targets)):
        return list(project.targets)
    known = {table_at(path) for path in delta_tables(store_of(project))}
    return [meant(one, known) for one in project.targets]


def is_unclear(one: TargetSettings) -> bool:
    """Whether several tables could have the name without its quotes."""
    return one.table.plain.count(".") > 1


def meant(one: TargetSettings, known: Collection[TableId]) -> TargetSettings:
    """A target of the only one of the tables that is written so without quotes; as it is where it
    names one of them, or several are written so. Its own name follows that of the table."""
    found = [] if one.table in known else [t for t in known if t.plain == one.table.plain]
    if len(found) != 1:
        return one
    table, target = found[0], one.target
    if target.schema == one.table.schema and target.name.startswith(f"{one.table.name}_"):
        target = TableId(table.schema, table.name + target.name.removeprefix(one.table.name))
    return replace(one, table=table, target=target)
