"""A plan as plain data and in sentences, as `mirrorlake plan` prints it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mirrorlake.mirror.steps import (
    AddColumns,
    AlterColumns,
    ApplyFiles,
    CleanUp,
    Compact,
    CreateTable,
    Discard,
    DropTable,
    SetKey,
    Step,
    TablePlan,
)
from mirrorlake.mirror.strategy import NOTHING_REQUIRED, Way


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
        case SetKey():
            facts = {"step": "set_key", "key": list(step.key)}
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
    """The plan in sentences, one per step, error or wait."""
    lines = []
    for table in plan:
        lines += [_sentence(step) for step in table.steps]
        if table.error:
            lines.append(f"{table.table}: stops: {table.error}")
        elif table.waiting:
            lines.append(f"{table.table}: waits: {table.waiting}")
    return lines


def _way(step: ApplyFiles) -> str:
    """How a batch goes, and why."""
    choice = step.estimate.choice
    if choice is None:
        return ""
    added = ", as a plain append" if choice.appends else ""
    large = ", in the background because it is large" if choice.large else ""
    because = "" if choice.reason == NOTHING_REQUIRED else f", because {choice.reason}"
    return f"{added}{large}; {_WRITERS[choice.way]}{because} (strategy {choice.way})"


_WRITERS = {
    Way.DIRECT: "mirrorlake writes only the changed rows",
    Way.MERGE: "Delta's MERGE writes them, which takes longer",
}


def _sentence(step: Step) -> str:
    match step:
        case CreateTable(replace=False):
            told = f"create {step.path} with {len(step.schema)} columns"
        case CreateTable():
            told = f"replace {step.path}, because its folder was recreated"
        case AddColumns():
            told = "add " + ", ".join(f"{c.name} {c.type}" for c in step.columns)
        case AlterColumns():
            told = f"rewrite {', '.join(step.columns)} in the rows before file {step.number}"
        case SetKey():
            told = f"set its key to {', '.join(step.key)}"
        case ApplyFiles():
            about = "" if step.estimate.is_exact else "about "
            told = f"apply {step} ({about}{step.estimate.rows:,} rows) in one commit{_way(step)}"
        case CleanUp():
            told = f"move {len(step.files)} applied files to the cleanup folder"
        case Discard():
            told = (
                f"delete {len(step.files)} files that were applied before the folder was recreated"
            )
        case Compact():
            told = f"compact {step.files} (about {step.rows:,} rows)"
        case _:
            told = f"drop {step.path}, because its folder was deleted"
    return f"{step.table}: {told}"
