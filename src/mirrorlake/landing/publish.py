"""Publication of data files under growing numbers (section 7 of the specification)."""

from __future__ import annotations

from mirrorlake.errors import NameTaken
from mirrorlake.landing.scan import CLEANUP_FOLDERS, Landed, data_files
from mirrorlake.model.landed import FileName
from mirrorlake.storage.store import Store

STAGED = "_stage-"
"""Files of an interrupted run begin with this and are removed at the next start."""


def staged_path(folder: str, token: str) -> str:
    """Where a file is written before it is published (LZ-131)."""
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

    The name exists with the same content: the staged file is dropped, nothing is rewritten
    (LZ-135). It exists with other content: raises NameTaken, nothing is overwritten (LZ-137).
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
        store.flush(folder)  # whoever gave the name may not have lived to flush it
        store.delete(staged)


def remove_staged(store: Store, folder: str) -> None:
    """Remove what an interrupted run left unpublished."""
    for file in store.list(folder).files:
        if file.name.startswith(STAGED):
            store.delete(f"{folder}/{file.name}")


def _same(store: Store, one: str, other: str) -> bool:
    with store.open(one) as a, store.open(other) as b:
        while True:
            left, right = a.read(1 << 20), b.read(1 << 20)
            if left != right:
                return False
            if not left:
                return True
