"""The public surface: what is promised, and no more."""

from __future__ import annotations

import re
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
