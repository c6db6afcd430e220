"""The cache of files of tables: bounded, shared, and never in the way of who works."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import pytest

from mirrorlake.delta import file_cache as module
from mirrorlake.delta.file_cache import Cache, mark_used
from mirrorlake.errors import StorageUnavailable


def content(size: int) -> Callable[[BinaryIO], None]:
    def fetch(file: BinaryIO) -> None:
        file.write(b"x" * size)

    return fetch


def put(cache: Cache, table: str, name: str, size: int, used: int) -> None:
    """A file of a table that was needed last at this time."""
    with cache.table(table) as folder:
        cache.write(folder / name, content(size))
        os.utime(folder / name, (used, used))


def kept(root: Path) -> set[str]:
    return {path.name for path in (root / "tables").rglob("*") if path.is_file()}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_the_least_recently_used_file_is_removed_first(root: Path) -> None:
    cache = Cache(root, 300)
    for used, name in enumerate(["b", "a", "d", "c", "e"]):
        put(cache, "t", name, 100, used)
    cache.trim()
    assert kept(root) == {"d", "c", "e"}


def test_a_used_file_is_kept(root: Path) -> None:
    cache = Cache(root, 300)
    for used, name in enumerate(["a", "b", "c"]):
        put(cache, "t", name, 100, used)
    with cache.table("t") as folder:
        assert mark_used(folder / "a", 100)
        assert not mark_used(folder / "a", 99)
        assert not mark_used(folder / "none", None)
    put(cache, "t", "d", 100, 10)
    assert kept(root) == {"a", "c", "d"}


def test_a_table_in_use_keeps_its_files(root: Path) -> None:
    cache, other = Cache(root, 300), Cache(root, 300)
    with cache.table("busy") as folder:
        cache.write(folder / "a", content(250))
        put(other, "idle", "b", 100, 1)
        assert kept(root) == {"a"}  # the bound is kept by what is free to go
        assert (folder / "a").read_bytes() == b"x" * 250
        os.utime(folder / "a", (0, 0))
    put(other, "idle", "c", 100, 2)
    assert kept(root) == {"c"}


def test_a_table_used_by_another_process_keeps_its_files(root: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from mirrorlake.delta.file_cache import Cache\n"
        "cache = Cache(Path(sys.argv[1]), 100)\n"
        "with cache.table('busy') as folder:\n"
        "    cache.write(folder / 'a', lambda file: file.write(b'x' * 100))\n"
        "    print('here', flush=True); sys.stdin.read()\n"
        "    sys.exit((folder / 'a').stat().st_size != 100)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == b"here\n"
        put(Cache(root, 100), "idle", "b", 100, 2**31)
        assert kept(root) == {"a"}
        process.stdin.close()
        assert process.wait() == 0
    put(Cache(root, 100), "idle", "c", 100, 2**31)  # a lock ends with whoever had it
    assert kept(root) == {"c"}


def test_an_index_is_removed_with_its_data_file(root: Path) -> None:
    cache = Cache(root, 250)
    put(cache, "t", "a.parquet", 100, 1)
    put(cache, "t", "_mirrorlake/keys/a.parquet.keys", 100, 1)
    put(cache, "t", "b.parquet", 100, 2)
    assert kept(root) == {"b.parquet"}


def test_a_file_appears_atomically(root: Path) -> None:
    cache = Cache(root)

    def fail(file: BinaryIO) -> None:
        file.write(b"half")
        assert kept(root) == set()
        raise OSError("the network is gone")

    with cache.table("t") as folder, pytest.raises(OSError, match="network"):
        cache.write(folder / "a", fail)
    assert kept(root) == set()
    assert list((root / "aside").iterdir()) == []


def test_several_may_fetch_the_same_file_at_once(root: Path) -> None:
    caches = [Cache(root, 1_000) for _ in range(4)]

    def work(number: int) -> None:
        cache = caches[number % 4]
        for round_ in range(10):
            with cache.table(f"t{round_ % 3}") as folder:
                for name in ("a", "b", "c"):
                    if not mark_used(folder / name, 100):
                        cache.write(folder / name, content(100))
                for name in ("a", "b", "c"):
                    assert (folder / name).stat().st_size == 100

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    caches[0].trim()
    assert len(kept(root)) <= 10


def test_the_limit_is_half_of_the_free_space(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(root)
    for used, name in enumerate(["a", "b", "c"]):
        put(cache, "t", name, 100, used)
    left = module.shutil._ntuple_diskusage(1_000, 900, 100)  # type: ignore[attr-defined]
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _path: left)
    cache.add_bytes(module.MAX_BYTES)
    cache.trim()
    assert kept(root) == {"b", "c"}


def opened(root: Path) -> None:
    root.chmod(0o777)


def linked(root: Path) -> None:
    root.rename(root.with_name("real"))
    root.symlink_to("real")


@pytest.mark.parametrize("spoil", [opened, linked])
def test_a_folder_that_other_users_can_write_to_is_refused(
    root: Path, spoil: Callable[[Path], None]
) -> None:
    root.mkdir(mode=0o700)
    spoil(root)
    with pytest.raises(StorageUnavailable, match="other users have access"), Cache(root).table("t"):
        pass
