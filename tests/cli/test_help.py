"""Help that teaches: quick, complete, with examples."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.app.zones import Zone
from tests.cli.conftest import Run

COMMANDS = [
    "demo", "init", "check", "discover", "plan", "run", "capture", "apply", "status", "sql", "feed",
    "read", "reset", "detach", "publish", "lint",
    "maintain",
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_an_example(run: Run, command: str) -> None:
    assert f"mirrorlake {command}" in run(command, "--help").out


def test_help_lists_commands_and_exit_codes(run: Run) -> None:
    text = run("--help").out
    assert all(command in text for command in COMMANDS)
    assert "Exit codes" in text


def test_help_loads_nothing_heavy() -> None:
    heavy = "pyarrow pandas numpy duckdb pyspark psycopg pydantic deltalake"
    code = (
        "import sys; sys.argv = ['mirrorlake', '--help']\n"
        "from mirrorlake.cli.main import run\n"
        "try: run()\nexcept SystemExit: pass\n"
        f"found = [m for m in '{heavy}'.split() if m in sys.modules]\n"
        "sys.exit(f'{found} loaded' if found else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_wrong_use_ends_with_code_two(run: Run) -> None:
    assert run("check", "--nonsense").code == 2


@pytest.mark.full
@pytest.mark.parametrize(
    ("module", "extra", "command"),
    [
        ("psycopg", "postgresql", "check"),
        ("psycopg", "postgresql", "capture --once"),
        ("py4j", "spark", "apply --once --root ."),
        ("pyspark", "spark", "apply --once --root ."),
        ("duckdb", "sql", "sql --root . select"),
        ("deltalake", "demo", "demo"),
    ],
)
def test_a_missing_package_is_reported_in_one_sentence(
    tmp_path: Path, module: str, extra: str, command: str
) -> None:
    (tmp_path / "mirrorlake.yaml").write_text(
        "{name: a, root: ., source: {type: postgresql, url: 'postgresql://127.0.0.1:1/x'}}"
    )
    zone = Zone(tmp_path)  # with nothing to apply, `apply --once` does not load PySpark
    zone.table("orders", "id")
    pq.write_table(pa.table({"id": [1]}), zone.folder("orders") / f"{1:020d}.parquet")
    code = (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] == '{module}':\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        f"sys.argv = ['mirrorlake', *'{command}'.split()]\n"
        "from mirrorlake.cli.main import run\n"
        "run()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 3, done.stderr
    (message,) = done.stderr.splitlines()
    assert f"{module} is not installed" in message
    assert f'pip install "mirrorlake[{extra}]"' in message


def test_the_program_is_a_module_too() -> None:
    command = [sys.executable, "-m", "mirrorlake", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.startswith("mirrorlake ")
