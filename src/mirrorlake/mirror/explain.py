"""A plan as plain data and as text, as printed by `mirrorlake plan`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mirrorlake.delta.schema import FeedMode
from mirrorlake.mirror.steps import (
    AddColumns,
    AlterColumns,
    ApplyFiles,
    CleanUp,
    Compact,
    CreateTable,
    Discard,
    DropTable,
    RenameColumns,
    SetFeed,
    SetKey,
    Step,
    TablePlan,
)
from mirrorlake.mirror.strategy import NOTHING_REQUIRED, StrategyName


def as_fact(step: Step) -> dict[str, Any]:
    """A step as plain data, for `plan --json`."""
    facts: dict[str, Any]
    match step:
        case CreateTable():
            facts = {
                "step": "recreate" if step.replace else "create",
                "path": step.path,
                "columns": {column.name: str(column.type) for column in step.schema},
                "key": list(step.key),
            }
        case RenameColumns():
            facts = {"step": "rename_columns", "names": dict(step.names)}
        case AddColumns():
            columns = {column.name: str(column.type) for column in step.columns}
            facts = {"step": "add_columns", "columns": columns}
        case AlterColumns():
            types = {name: str(kind) for name, kind in step.types.items()}
            filled = [] if step.filled is None else step.filled.schema.names
            facts = {
                "step": "alter_columns",
                "copied": dict(step.copied),
                "filled": filled,
                "types": types,
            }
            facts |= {"widened": sorted(step.widened)} if step.widened else {}
            facts |= {"dropped": list(step.dropped)} if step.dropped else {}
            facts |= {} if step.key is None else {"key": list(step.key)}
        case SetKey():
            facts = {"step": "set_key", "key": list(step.key)}
        case SetFeed():
            facts = {"step": "set_feed", "feed": str(step.feed)}
        case ApplyFiles():
            facts = {
                "step": "apply",
                "first": step.first,
                "last": step.last,
                "rows": step.estimate.rows,
                "rows_exact": step.estimate.is_exact,
                "truncate": step.truncated,
            }
            facts |= {"names": list(step.names)} if step.names else {}
            facts |= step.estimate.choice.as_fact() if step.estimate.choice else {}
        case CleanUp():
            facts = {"step": "clean_up", "files": [str(file.name) for file in step.files]}
        case Discard():
            facts = {"step": "discard", "files": [str(file.name) for file in step.files]}
        case Compact():
            facts = {"step": "compact", "files": step.files, "rows": step.rows}
        case DropTable():
            facts = {"step": "drop", "path": step.path}
    return {"step": facts.pop("step"), "table": str(step.table)} | facts


def explain(plan: Sequence[TablePlan]) -> list[str]:
    """The plan as text, one line per step, error or wait."""
    lines = []
    for table in plan:
        lines += [_step_text(step) for step in table.steps]
        if table.error:
            lines.append(f"{table.table}: stops: {table.error}")
        elif table.waiting:
            lines.append(f"{table.table}: waits: {table.waiting}")
    return lines


def _strategy_text(step: ApplyFiles) -> str:
    """The strategy of a batch with its reason, as text."""
    choice = step.estimate.choice
    if choice is None:
        return ""
    added = ", as a plain append" if choice.appends else ""
    large = ", in the background because it is large" if choice.large else ""
    because = "" if choice.reason == NOTHING_REQUIRED else f", because {choice.reason}"
    return f"{added}{large}; {_WRITERS[choice.strategy]}{because} (strategy {choice.strategy})"


_WRITERS = {
    StrategyName.DIRECT: "mirrorlake writes only the changed rows",
    StrategyName.MERGE: "Delta's MERGE writes them, which takes longer",
}


_FEEDS = {
    FeedMode.IMAGES: "record its changes, updates with the row before and after",
    FeedMode.REPLACE: "record its changes, updates as a delete and an insert",
    FeedMode.OFF: "stop recording its changes",
}


def _step_text(step: Step) -> str:
    match step:
        case CreateTable(replace=False):
            text = f"create {step.path} with {len(step.schema)} columns"
        case CreateTable():
            text = f"replace {step.path}, because its folder was recreated"
        case RenameColumns():
            names = ", ".join(f"{former} to {new}" for former, new in step.names.items())
            text = f"rename {names} by column mapping before file {step.number}"
        case AddColumns():
            text = "add " + ", ".join(f"{c.name} {c.type}" for c in step.columns)
        case AlterColumns():
            key = None if step.key is None else f"set its key to {', '.join(step.key) or 'none'}"
            altered = f"rewrite {', '.join(step.columns)} in the rows" if step.columns else None
            text = " and ".join(filter(None, [key, altered])) + f" before file {step.number}"
        case SetKey():
            text = f"set its key to {', '.join(step.key)}"
        case SetFeed():
            text = _FEEDS[step.feed]
        case ApplyFiles():
            rows = f"{'' if step.estimate.is_exact else 'about '}{step.estimate.rows:,} rows"
            text = f"apply {step} ({rows}) in one commit{_strategy_text(step)}"
        case CleanUp():
            text = f"move {len(step.files)} applied files to the cleanup folder"
        case Discard():
            text = (
                f"delete {len(step.files)} files that were applied before the folder was recreated"
            )
        case Compact():
            text = f"compact {step.files} (about {step.rows:,} rows)"
        case _:
            text = f"drop {step.path}, because its folder was deleted"
    return f"{step.table}: {text}"
