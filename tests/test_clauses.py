"""The plugin that tells which clauses are proved."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(folder: Path, clause: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run two tests, one of which is marked, with the plugin and nothing else of ours."""
    (folder / "test_marked.py").write_text(
        "import pytest\n"
        f"@pytest.mark.clause({clause!r})\ndef test_one(): pass\n"
        "def test_two(): print('two has run')\n"
    )
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = clause\n")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-s", "-p", "tests.clauses", *options],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("processes", ["0", "2"])
def test_an_unknown_clause_fails_the_run_in_one_sentence(tmp_path: Path, processes: str) -> None:
    done = run(tmp_path, "LZ-999", "-n", processes)
    said = done.stdout + done.stderr
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, said
    assert "test_one marks LZ-999, which no document has" in said
    assert "Traceback" not in said
    assert "two has run" not in said


@pytest.mark.parametrize("processes", ["0", "2"])
def test_a_proved_clause_is_recorded(tmp_path: Path, processes: str) -> None:
    done = run(tmp_path, "LZ-077", "-n", processes, "--clauses", "proved.json")
    assert done.returncode == 0, done.stdout + done.stderr
    proved = json.loads((tmp_path / "proved.json").read_text())
    assert proved == {"LZ-077": ["test_marked.py::test_one"]}
