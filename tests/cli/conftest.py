"""Commands as a shell would run them, without the cost of a new process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from mirrorlake.cli.main import app
from mirrorlake.errors import MirrorlakeError
from tests.conftest import Database

PROJECT = """
name: {name}
root: ./root
source: {{type: postgresql, url: "${{SOURCE}}", tables: ["public.*"]}}
spark: {{master: "local[2]", driver_memory: 1g}}
"""

COMMANDS = get_command(app)


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    error: str

    def facts(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Done]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    # To make all commands anew for each run takes longer than many of them run.
    monkeypatch.setattr("typer.testing._get_command", lambda _app: COMMANDS)

    def run(*arguments: str, answer: str | None = None) -> Done:
        result = CliRunner().invoke(app, list(arguments), input=answer)
        failure = result.exception
        if isinstance(failure, MirrorlakeError):  # what the program itself turns into an exit code
            return Done(failure.exit_code, result.stdout, f"{result.stderr}{failure}")
        if failure is not None and not isinstance(failure, SystemExit):
            raise failure
        return Done(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def shop(run: Run, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Database:
    """A project file in the folder, for a database with a few tables."""
    database.execute(
        "create table orders (id bigint primary key, status text)",
        "insert into orders select g, 'open' from generate_series(1, 10) g",
        "create table log (line text)",
    )
    monkeypatch.setenv("SOURCE", database.url)
    (tmp_path / "mirrorlake.yaml").write_text(PROJECT.format(name=database.name))
    return database
