"""Where the first commit of a table may be made."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirrorlake.delta import sql
from mirrorlake.delta.log.files import FOLDER
from mirrorlake.delta.log.first_commit import MARKER, begin, end, has_commit, is_begun, is_free
from mirrorlake.delta.tables import delta_tables
from mirrorlake.storage.local import LocalStore

PATH = "Tables/t"
COMMIT = f"{FOLDER}/{0:020d}.json"
OURS = f"{FOLDER}/{MARKER}"


@pytest.mark.parametrize(
    ("names", "free"),
    [
        ([], True),
        ([f"{FOLDER}/"], True),
        ([f"{FOLDER}/_staged_commits/"], True),
        ([OURS, "part-0.parquet", "_mirrorlake/keys/x"], True),
        ([OURS, f"{FOLDER}/_staged_commits/", "part-0.parquet"], True),
        ([OURS, f"{FOLDER}/.{0:020d}.json.4a31.tmp", "part-0.parquet"], True),
        ([OURS, f"{FOLDER}/{0:020d}.crc", "part-0.parquet"], True),
        ([OURS, COMMIT], False),
        ([COMMIT], False),
        ([f"{FOLDER}/{7:020d}.checkpoint.parquet"], False),
        (["theirs.parquet"], False),
        ([f"{FOLDER}/", "theirs.parquet"], False),
        ([f"{FOLDER}/_staged_commits/", "theirs.parquet"], False),
        ([f"{FOLDER}/.{0:020d}.json.4a31.tmp", "theirs.parquet"], False),
        ([".hidden"], False),
    ],
)
def test_only_nothing_and_what_an_attempt_left_make_room(
    store: LocalStore, names: list[str], *, free: bool
) -> None:
    for name in names:
        path = Path(store.location(PATH), name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(exist_ok=True) if name.endswith("/") else path.touch()
    assert is_free(store, PATH) is free


def test_a_log_that_is_a_link_makes_no_room(store: LocalStore, tmp_path: Path) -> None:
    location = Path(store.location(PATH))
    location.mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (location / FOLDER).symlink_to(tmp_path / "elsewhere")
    assert not is_free(store, PATH)


def test_a_marker_stands_until_the_commit_is_durable(store: LocalStore) -> None:
    location = store.location(PATH)
    assert not is_begun(location)
    begin(store, PATH)
    begin(store, PATH)
    assert is_begun(location)
    assert is_free(store, PATH)
    end(store, PATH)
    end(store, PATH)
    assert not is_begun(location)


def test_a_table_without_a_version_is_none(store: LocalStore) -> None:
    begin(store, PATH)
    root = Path(store.location("Tables")).parent
    assert list(delta_tables(store)) == []
    assert list(sql.tables(root)) == []
    result = sql.run(root, "select 1 as t")
    assert result is not None
    assert result.fetchall() == [(1,)]
    Path(store.location(f"{PATH}/{COMMIT}")).touch()
    assert list(delta_tables(store)) == [PATH]
    assert [name for _schema, name, _path in sql.tables(root)] == ["t"]


def test_a_log_that_cannot_be_listed_counts_as_one_with_a_version(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(store, PATH)

    def refuse(_path: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.scandir", refuse)
    assert has_commit(store.location(PATH))
    assert not is_free(store, PATH)
