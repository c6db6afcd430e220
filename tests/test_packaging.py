"""What an installation asks for, and what is pinned for it."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

from mirrorlake.spark.session import jars, log_store

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
RUNTIME = ("postgresql", "spark", "sql", "excel", "objects", "azure", "server")
"""The extras that `make lock` pins for an installation."""


LEAST = re.compile(r"^([\w-]+)(?:\[\w+\])?>=([\d.]+)")


def pins(file: str) -> dict[str, list[str]]:
    """Each pin of a lock, with its hashes."""
    found: dict[str, list[str]] = {}
    for line in (ROOT / file).read_text().replace(" \\\n", " ").splitlines():
        pin, *hashes = line.split(" --hash=")
        found[pin.strip()] = [one.strip() for one in hashes]
    return found


def names(requirements: list[str]) -> set[str]:
    """Of distributions, in their normal form."""
    named = (re.match(r"[\w.-]+", one) for one in requirements if "mirrorlake" not in one)
    return {re.sub(r"[-_.]+", "-", one[0]).lower() for one in named if one}


def test_the_lock_of_the_runtime_is_a_part_of_that_of_development() -> None:
    assert pins("constraints-runtime.txt").items() <= pins("constraints.txt").items()


def test_each_pin_has_hashes_and_no_address() -> None:
    for pin, hashes in pins("constraints-runtime.txt").items():
        assert hashes, pin
        assert re.fullmatch(r"[\w.-]+==[\w.]+( ; .+)?", pin)


def test_the_older_pair_is_tested_with_the_lowest_versions_that_are_allowed() -> None:
    pinned = dict(pin.split(" ;")[0].split("==") for pin in pins("constraints-pair.txt"))
    asked = [*PROJECT["dependencies"], *(r for one in (*RUNTIME, "demo") for r in EXTRAS[one])]
    lowest = {found[1]: found[2] for one in asked if (found := LEAST.match(one))}
    assert {name: numbers(pinned[name]) for name in lowest} == {
        name: numbers(least) for name, least in lowest.items()
    }
    assert (pinned["pyspark"], pinned["delta-spark"]) in jars.TESTED


def numbers(version: str) -> list[int]:
    """Of a version, without zeros at the end."""
    found = [int(part) for part in version.split(".")]
    while found and not found[-1]:
        found.pop()
    return found


def test_what_is_pinned_is_what_an_installation_needs_and_nothing_of_demo_and_tests() -> None:
    asked = names(PROJECT["dependencies"]) | names([r for one in RUNTIME for r in EXTRAS[one]])
    pinned = names(list(pins("constraints-runtime.txt")))
    assert asked <= pinned
    assert not pinned & (names([*EXTRAS["demo"], *EXTRAS["dev"]]) - asked)


def test_deltalake_comes_with_the_demo_which_alone_imports_it() -> None:
    source = ROOT / "src/mirrorlake"
    imports = re.compile(r"^\s*(?:from|import) deltalake\b", re.MULTILINE)
    importing = {p.parent.name for p in source.rglob("*.py") if imports.search(p.read_text())}
    assert importing == {"demo"}
    assert [name for name, some in EXTRAS.items() if "deltalake" in names(some)] == ["demo"]


def test_make_pins_the_extras_of_an_installation() -> None:
    assert f"RUNTIME := {' '.join(RUNTIME)}\n" in (ROOT / "Makefile").read_text()


def test_the_wheel_contains_the_jar_that_is_checked_when_spark_starts(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    (wheel,) = tmp_path.glob("mirrorlake-*.whl")
    jar = log_store.JAR.relative_to(ROOT / "src").as_posix()
    with zipfile.ZipFile(wheel) as files:
        assert hashlib.sha256(files.read(jar)).hexdigest() == log_store.SHA256
