"""Projects that are killed and started again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Database
from tests.crash.project import SCHEMA, Project


@pytest.fixture
def project(database: Database, tmp_path: Path) -> Project:
    """A database with rows, and a project that has not run."""
    database.execute(SCHEMA)
    project = Project(tmp_path, database)
    project.write()
    return project
