"""Compacts the files of a target, in commits of their own that change no rows (CF-095).

Builds add small files, and leave deleted rows in large ones. Which files are due, and how many in
one step, is decided as for mirrored tables. Files with and without NULLs in a column by which rows
are found stay apart: a history has the open rows and the ended ones in different files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from mirrorlake.delta.write.compact import compact
from mirrorlake.feed.targets.target import TargetState, TargetTable
from mirrorlake.mirror.compaction import small_files


def compact_step(target: TargetTable, sought: Sequence[str]) -> bool:
    """Do one step of compaction. Returns whether files were compacted: False if none are due, or
    another writer committed first. Raises Unavailable."""
    state = target.state()
    files = files_due(state, sought)
    if not files:
        return False
    assert state.schema is not None
    with target.workspace() as table:
        table.fetch(files)
        actions = compact(table.folder, files, state.schema, sought)
        table.upload(actions)
    return target.rearrange(state, actions)


def files_due(state: TargetState, sought: Sequence[str]) -> Sequence[Mapping[str, Any]]:
    """The files to compact in one step; empty if none are due."""
    if state.schema is None or not small_files.choose(state.files):
        return ()
    physical = [state.schema.physical[state.schema.schema.names.index(name)] for name in sought]
    apart: dict[tuple[bool, ...], list[Mapping[str, Any]]] = {}
    for add in state.files:
        nulls = json.loads(add.get("stats") or "{}").get("nullCount", {})
        has_null = tuple(bool(nulls.get(name)) for name in physical)
        apart.setdefault(has_null, []).append(add)
    chosen = (small_files.choose(files) for files in apart.values())
    return max(chosen, key=len, default=())
