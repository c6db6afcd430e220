"""The plugin that tells which clauses are proved."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.clauses import SPEC, described, known_clauses, report, sections, together
from tests.profiles import some

ROOT = Path(__file__).parent.parent


def run(
    folder: Path, *clauses: str, options: Sequence[str], marked: str = "", fails: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run two tests, one of which is marked, with the plugin and nothing else of ours."""
    (folder / "test_marked.py").write_text(
        "import pytest\n"
        f"@pytest.mark.clause(*{clauses!r})\n{marked}def test_one(): assert {not fails}\n"
        "def test_two(): print('two has run')\n"
    )
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n clause\n full\ntestpaths = .\n")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-s", "-p", "tests.clauses", *options],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("processes", some(["0", "2"]))
def test_an_unknown_clause_fails_the_run_in_one_sentence(tmp_path: Path, processes: str) -> None:
    done = run(tmp_path, "LZ-999", options=["-n", processes])
    said = done.stdout + done.stderr
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, said
    assert "test_one marks LZ-999, which no document has" in said
    assert "Traceback" not in said
    assert "two has run" not in said


@pytest.mark.parametrize("processes", some(["0", "2"]))
def test_a_proved_clause_is_recorded(tmp_path: Path, processes: str) -> None:
    done = run(tmp_path, "LZ-077", options=["-n", processes, "--clauses", "proved.json"])
    assert done.returncode == 0, done.stdout + done.stderr
    proved = json.loads((tmp_path / "proved.json").read_text())
    assert proved == {"LZ-077": ["test_marked.py::test_one"]}


@pytest.mark.full
@pytest.mark.clause("CF-218")
@pytest.mark.parametrize("processes", some(["0", "2"]))
def test_a_test_that_fails_names_its_clauses(tmp_path: Path, processes: str) -> None:
    done = run(tmp_path, "CF-101", options=["-n", processes], fails=True)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "CF-101 failed in test_marked.py::test_one" in done.stdout


@pytest.mark.clause("CF-218")
def test_every_observation_of_delta_has_a_test_on_spark() -> None:
    spec = (SPEC / "change-feed.md").read_text()
    observed = set(re.findall(r"\*\*(CF-\d{3})\*\* .*\[field\]", spec))
    files = (ROOT / "tests/spark").rglob("test_*.py")
    tested = {clause for file in files for clause in re.findall(r"CF-\d{3}", file.read_text())}
    assert len(observed) > 50
    assert observed - tested - set(described()) == {"CF-218"}  # this one


@pytest.mark.full
@pytest.mark.parametrize("processes", some(["0", "2"]))
def test_a_clause_that_only_a_test_of_the_full_run_proves_fails_every_whole_run(
    tmp_path: Path, processes: str
) -> None:
    options = ["-n", processes, "-m", "not full"]
    done = run(tmp_path, "LZ-077", options=options, marked="@pytest.mark.full\n")
    said = done.stdout + done.stderr
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, said
    assert "LZ-077 is proved in make test-full only, by test_marked.py::test_one" in said
    assert "two has run" not in said
    part = run(tmp_path, "LZ-077", options=["test_marked.py"], marked="@pytest.mark.full\n")
    assert part.returncode == 0, part.stdout + part.stderr


def test_a_clause_that_asks_for_others_is_proved_with_the_last_of_them(tmp_path: Path) -> None:
    needed = together()["LZ-324"]
    for clauses, is_proved in ((needed, True), (needed[1:], False)):
        run(tmp_path, *clauses, options=["--clauses", "proved.json", "-n", "0"])
        proved = json.loads((tmp_path / "proved.json").read_text())
        assert ("LZ-324" in proved) == is_proved


def test_the_report_tells_what_is_proved_described_and_open() -> None:
    lines = report({"LZ-001", "LZ-003"})
    (section,) = [line for line in lines if "1. Landing zone and discovery" in line]
    assert " ".join(section.split()).startswith("2 / 28 1. Landing")
    assert section.endswith("+ 2 described only")
    following = lines[lines.index(section) + 1].split()
    assert following[:3] == ["LZ-004", "LZ-005", "LZ-006"]
    assert "LZ-028" not in following
    assert any(line.startswith("LZ-028  measured times") for line in lines)


def test_every_clause_of_the_lists_is_in_a_document() -> None:
    known = set(known_clauses())
    assert {c for titles in sections().values() for ids in titles.values() for c in ids} == known
    assert set(described()) <= known
    assert known.issuperset([*together(), *(c for others in together().values() for c in others)])
    assert not set(described()) & set(together())
    assert all(reason.strip() for reason in described().values())
