"""Paths at which there cannot be what a command needs are refused, each with one sentence."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from mirrorlake.storage.local import LocalStore
from tests.cli.conftest import Run

A_FILE = "a file is there, and not a folder"


@pytest.fixture(autouse=True)
def file(tmp_path: Path) -> Path:
    file = tmp_path / "file"
    file.write_text("some text")
    return file


def write_project(folder: Path, root: str, *more: str) -> None:
    source = '{type: postgresql, url: "postgresql://u@127.0.0.1:1/db", tables: ["public.*"]}'
    lines = ["name: shop", f"root: {root}", f"source: {source}", *more]
    (folder / "mirrorlake.yaml").write_text("\n".join(lines))


ALWAYS = [
    "check",
    "run --once",
    "capture --once",
    "apply --once",
    "status",
    "plan",
    "discover",
    "maintain",
    "repair",
    "reset --all --yes",
    "detach --yes",
    "backfill public.t",
    "verify",
    "cut",
    "feed public.t --from 0",
    "trace public.t 1",
    "sql",
    "read public.t --csv rows",
    "convert ./events",
]


@pytest.mark.parametrize("root", ["./file", "./file/below/it"])
@pytest.mark.parametrize("command", ALWAYS)
def test_a_root_that_is_a_file_is_refused(
    run: Run, tmp_path: Path, command: str, root: str
) -> None:
    write_project(tmp_path, root)
    done = run(*command.split(), *(["show tables"] if command == "sql" else []))
    assert (done.code, done.out) == (2, "")
    assert A_FILE in done.error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "mirrorlake.yaml"]


@pytest.mark.parametrize("command", ["check", "run --once", "capture --once"])
def test_a_destination_that_is_a_file_is_refused(run: Run, tmp_path: Path, command: str) -> None:
    write_project(tmp_path, "./root", "destination: {type: events, url: ./file}")
    done = run(*command.split())
    assert (done.code, A_FILE in done.error) == (2, True)
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize("path", ["file", "file/below", "a" * 300, "link"])
@pytest.mark.parametrize(
    "command", ["status --root", "lint", "lint --root", "convert --root shop", "serve --folder"]
)
def test_a_folder_that_cannot_be_is_refused(
    run: Run, tmp_path: Path, command: str, path: str
) -> None:
    (tmp_path / "link").symlink_to("link")
    (tmp_path / "shop").mkdir()
    done = run(*command.split(), path)
    assert (done.code, done.out) == (2, "")
    assert A_FILE in done.error or "there can be no such folder: " in done.error


def test_a_folder_that_became_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "shop/Files").mkdir(parents=True)
    (tmp_path / "shop/Files/Mirrorlake").touch()
    with pytest.raises(NotADirectoryError, match="Mirrorlake"):
        LocalStore(tmp_path / "shop").create("Files/Mirrorlake/leases/a", b"")
    with pytest.raises(NotADirectoryError):
        LocalStore(tmp_path / "shop").make_folder("Files/Mirrorlake")


def test_convert_says_that_a_target_names_no_place(run: Run, tmp_path: Path) -> None:
    """Also while there is no table that would be written."""
    (tmp_path / "shop").mkdir()
    for target, said in [
        ("", "no target was given"),
        ("gs://", "the URL names no bucket"),
        ("s3:///folder", "the URL names no bucket"),
        ("ftp://there", "ftp:// is not a supported storage"),
    ]:
        done = run("convert", target, "--root", "shop")
        assert (done.code, done.out) == (2, "")
        assert said in done.error


def test_an_empty_path_is_not_the_current_folder(run: Run, tmp_path: Path) -> None:
    table = tmp_path / "shop/Tables/sales/orders"
    deltalake.write_deltalake(
        table, pa.table({"id": [1]}), configuration={"delta.enableChangeDataFeed": "true"}
    )
    for command in (
        ["status", "--root", ""],
        ["lint", ""],
        ["feed", str(table), "--as-landing-zone", ""],
        ["publish", "--root", "", "--table", "a.b", "file"],
    ):
        done = run(*command)
        assert (done.code, done.out) == (2, "")
        assert " given" in done.error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "shop"]


@pytest.mark.parametrize("path", ["file/rows", "nowhere/rows", "shop"])
@pytest.mark.parametrize(
    "command",
    [
        "read sales.orders --root shop --csv",
        "read sales.orders --root shop --arrow",
        "feed sales.orders --root shop --from 0 --arrow",
        "feed sales.orders --root shop --from 0 --parquet",
    ],
)
def test_a_file_that_cannot_be_written_is_named(
    run: Run, tmp_path: Path, command: str, path: str
) -> None:
    deltalake.write_deltalake(
        tmp_path / "shop/Tables/sales/orders",
        pa.table({"id": [1]}),
        configuration={"delta.enableChangeDataFeed": "true"},
    )
    done = run(*command.split(), path)
    assert (done.code, done.out) == (2, "")
    assert "the file cannot be written: " in done.error
    assert f"({path})" in done.error


@pytest.mark.parametrize("path", ["file/mirrorlake.yaml", "nowhere/mirrorlake.yaml"])
def test_init_names_a_file_that_it_cannot_write(run: Run, path: str) -> None:
    done = run("init", "${SOURCE}", "--config", path)
    assert (done.code, f"({path})" in done.error) == (2, True)


@pytest.mark.parametrize("table", ["./file", "file/below"])
def test_a_file_is_no_table(run: Run, tmp_path: Path, table: str) -> None:
    (tmp_path / "shop").mkdir()
    for command in (["feed", table, "--from", "0"], ["trace", table, "1"]):
        done = run(*command, "--root", "shop")
        assert (done.code, f"there is no table {table}" in done.error) == (2, True)
