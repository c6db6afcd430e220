"""Makes what a commit of others names durable: not every writer flushes what it writes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from mirrorlake.lake import vectors
from mirrorlake.lake.log import Action
from mirrorlake.lake.logfiles import FOLDER
from mirrorlake.lake.probe import path_of
from mirrorlake.storage.local import flush_folder


def flush(table: Path, actions: Iterable[Action]) -> None:
    """Flush the data files, change files and deletion vectors that a commit adds, and their names
    in the folders of partitions."""
    files = sorted(set(_files(table, actions)))
    for path in files:
        with path.open("rb") as file:
            os.fsync(file.fileno())
    for folder in sorted({parent for path in files for parent in path.parents}):
        if table in folder.parents:
            flush_folder(folder)


def settle(table: Path, version: int) -> None:
    """Flush a commit, and the names of all that it may have brought."""
    commit = table / FOLDER / f"{version:020d}.json"
    with commit.open("rb") as file:
        os.fsync(file.fileno())
    for folder in (commit.parent, table / "_change_data", table):
        if folder.exists():
            flush_folder(folder)


def _files(table: Path, actions: Iterable[Action]) -> Iterator[Path]:
    for action in actions:
        if new := action.get("add") or action.get("cdc"):
            yield path_of(table, new)
            vector = new.get("deletionVector")
            if vector and vector["storageType"] != "i":
                yield vectors.path_of(table, vector)
