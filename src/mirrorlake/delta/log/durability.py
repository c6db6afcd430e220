"""Makes commits of other writers and their files durable: not every writer flushes its files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from mirrorlake.delta import deletion_vectors
from mirrorlake.delta.log.files import FOLDER
from mirrorlake.delta.log.table_log import Action, TableLog
from mirrorlake.delta.lookup.key_lookup import path_of
from mirrorlake.storage.local import flush_folder


def flush_files(table: Path, actions: Iterable[Action]) -> None:
    """Flush the data files, change files and deletion vectors that actions add, and the partition
    folders with their names."""
    files = sorted(set(_files(table, actions)))
    for path in files:
        # A file that a vacuum has removed since is no longer part of the table.
        with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
            os.fsync(file.fileno())
    for folder in sorted({parent for path in files for parent in path.parents}):
        if table in folder.parents and folder.exists():
            flush_folder(folder)


def flush_commit(table: Path, version: int) -> None:
    """Flush a commit, and the folders with the names of its files."""
    _flush_commits(table, [version])


def flush_commits_since(table: Path, version: int) -> None:
    """As `flush_commit`, for every commit after a version: later commits depend on all of them."""
    _flush_commits(table, [found for found in TableLog(table).versions() if found > version])


def _flush_commits(table: Path, versions: Sequence[int]) -> None:
    log = TableLog(table)
    for version in versions:
        with log.commit_file(version).open("rb") as file:
            os.fsync(file.fileno())
    for folder in (table / FOLDER, table / "_change_data", table):
        if folder.exists():
            flush_folder(folder)


def _files(table: Path, actions: Iterable[Action]) -> Iterator[Path]:
    for action in actions:
        if new := action.get("add") or action.get("cdc"):
            yield path_of(table, new)
            vector = new.get("deletionVector")
            if vector and vector["storageType"] != "i":
                yield deletion_vectors.path_of(table, vector)
