"""The public surface: what is promised, and no more."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import mirrorlake

README = Path(__file__).parent.parent / "README.md"


@pytest.mark.parametrize("name", mirrorlake.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(mirrorlake, name).__name__ == name


def test_the_names_are_those_of_the_reference() -> None:
    page = (README.parent / "docs/reference/python.md").read_text()
    assert re.findall(r"^\| `(\w+)`", page, re.MULTILINE) == mirrorlake.__all__


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError):
        mirrorlake.Something  # noqa: B018


@pytest.mark.full
@pytest.mark.parametrize(
    ("lacking", "extra", "action"),
    [
        ("pyspark", "spark", "Mirror(Project.of_root(Path('.'))).engine()"),
        (
            "psycopg",
            "postgresql",
            "Mirror(Project('shop', Path('none'), PostgresSettings('postgresql://h/d'))).check()",
        ),
    ],
)
def test_an_extra_that_is_not_installed_is_named_in_a_sentence(
    lacking: str, extra: str, action: str
) -> None:
    program = f"""
import sys
from pathlib import Path
sys.modules[{lacking!r}] = None
from mirrorlake import Mirror, Project, Unavailable
from mirrorlake.sources.postgresql.settings import PostgresSettings
try:
    {action}
except Unavailable as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout.startswith(f"{lacking} ")
    assert f'pip install "mirrorlake[{extra}]"' in done.stdout
    assert len(done.stdout.splitlines()) == 1
