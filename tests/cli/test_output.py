"""What commands print."""

from __future__ import annotations

import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import BinaryIO

import pytest

from mirrorlake.cli.output import print_table, show


@pytest.mark.parametrize("columns", [80, 60, 20])
def test_a_number_is_never_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    counts = ["100,000,000", "123,456,789", "12,345,678"]
    text = "a text that is folded over as many lines as it takes"
    print_table(
        ["table", "rows", "inserts", "updates", "sum", "verified"],
        [["warehouse.order_items", *counts, Decimal("98765432109876.54321"), text]],
    )
    shown = capsys.readouterr().out
    for number in (*counts, "98765432109876.54321"):
        assert number in shown
    assert "…" not in shown


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (
            80,
            "table          version  position      lag\npublic.orders       17  0/4BFD4D8:17    ?",
        ),
        (30, "table          version  lag\npublic.orders       17    ?"),
        (20, "table          lag\npublic.orders    ?"),
        (10, "table     public.orders\nversion   17\nposition  0/4BFD4D8:17\nlag       ?"),
    ],
)
def test_a_narrow_terminal_shows_fewer_columns_or_one_block_per_row(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    columns: int,
    shown: str,
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    row = ["public.orders", 17, "0/4BFD4D8:17", "?"]
    header = ["table", "version", "position", "lag"]
    print_table(header, [row], optional=["position", "version"])
    assert capsys.readouterr().out == f"{shown}\n"


@pytest.mark.parametrize("indent", ["", "    "])
def test_a_sentence_is_folded_between_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, indent: str
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    sentence = "Run `mirrorlake reset --all` to load all tables again. " * 3
    show(sentence, indent)
    assert capsys.readouterr().out == f"{sentence}\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    show(sentence, indent)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) < 60
    assert all(line.startswith(indent) for line in lines[1:])
    assert " ".join(map(str.strip, lines)) == sentence.strip()


def test_brackets_are_no_style(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["reason"], [["[/x] is not [bold]known[/bold]"]])
    assert "[/x] is not [bold]known[/bold]" in capsys.readouterr().out


@pytest.mark.full
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [["--help"], ["status", "--json", "--root", "nowhere"]])
def test_output_that_does_not_fit_on_the_disk_is_one_error(
    tmp_path: Path, arguments: list[str], unbuffered: str
) -> None:
    with Path("/dev/full").open("wb") as full:
        done = _program(tmp_path, arguments, full, PYTHONUNBUFFERED=unbuffered)
    assert done.returncode == 3
    (line,) = " ".join(done.stderr.split()).split("mirrorlake: ")[1:]
    assert line.endswith(
        ": no space left on device. Free space on the disk, and start again what has ended. "
        "Nothing is lost."
    )
    assert unbuffered or line.startswith("the output cannot be written: ")


@pytest.mark.parametrize(("unbuffered", "code"), [("", 2), ("1", 1)])
def test_an_output_that_nobody_reads_is_no_traceback(
    tmp_path: Path, unbuffered: str, code: int
) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    arguments = ["status", "--json", "--root", "nowhere"]
    with os.fdopen(theirs, "wb") as broken:
        done = _program(tmp_path, arguments, broken, PYTHONUNBUFFERED=unbuffered)
    assert (done.returncode, done.stderr) == (code, "")


def test_a_program_without_output_works(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "mirrorlake.cli.main", "status", "--root", "nowhere"]
    done = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *program],
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert done.stderr.startswith("mirrorlake: ")


def _program(
    folder: Path, arguments: list[str], output: BinaryIO, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mirrorlake.cli.main", *arguments],
        stdout=output,
        stderr=subprocess.PIPE,
        cwd=folder,
        env=os.environ | environment,
        text=True,
        check=False,
        timeout=60,
    )
