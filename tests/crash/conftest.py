"""Projects that are killed and started again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Database
from tests.crash.project import Project, new_project


@pytest.fixture
def project(database: Database, tmp_path: Path) -> Project:
    """A database with rows, and a project that has not run."""
    return new_project(tmp_path, database)
