"""Publication of data files under increasing numbers (section 7 of the specification)."""

from __future__ import annotations

from mirrorlake.errors import NameTaken
from mirrorlake.landing.scan import CLEANUP_FOLDERS, Landed, data_files
from mirrorlake.model.landed import FileName
from mirrorlake.storage.store import Store

STAGED = "_stage-"
"""Prefix of files of an interrupted run, which are deleted at the next start."""


def staged_path(folder: str, token: str) -> str:
    """The path of a file before it is published (LZ-131)."""
    return f"{folder}/{STAGED}{token}.parquet"


def newest_file(store: Store, folder: str) -> Landed | None:
    """The data file with the highest number, in the folder or its cleanup folders (LZ-140)."""
    found = [
        files[-1]
        for location in (folder, *(f"{folder}/{name}" for name in CLEANUP_FOLDERS))
        if (files := data_files(location, store.list(location)))
    ]
    return max(found, key=lambda file: file.number, default=None)


def publish(store: Store, folder: str, staged: str, number: int, *, table: str) -> None:
    """Give a staged file its number.

    If the name exists with the same content, the staged file is deleted, and nothing is rewritten
    (LZ-135). If it exists with other content, raises NameTaken, and nothing is overwritten
    (LZ-137).
    """
    final = f"{folder}/{FileName(number)}"
    try:
        store.publish(staged, final)
    except FileExistsError:
        if not _same(store, staged, final):
            raise NameTaken(
                "a file with this number and other content is already published",
                table=table,
                file=str(FileName(number)),
                hint="If two writers publish to this table, stop one of them. If the file was "
                "put there by hand, delete it.",
            ) from None
        store.flush(folder)  # its creator may have been killed before the flush
        store.delete(staged)


def remove_staged(store: Store, folder: str) -> None:
    """Delete the staged files that an interrupted run did not publish."""
    for file in store.list(folder).files:
        if file.name.startswith(STAGED):
            store.delete(f"{folder}/{file.name}")


def _same(store: Store, left_path: str, right_path: str) -> bool:
    with store.open(left_path) as a, store.open(right_path) as b:
        while True:
            left, right = a.read(1 << 20), b.read(1 << 20)
            if left != right:
                return False
            if not left:
                return True
