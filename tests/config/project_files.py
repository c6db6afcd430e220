"""Project files of tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirrorlake.config import load
from mirrorlake.errors import ConfigError

SECRET = "hush-hush"


def write(folder: Path, text: str) -> Path:
    path = folder / "mirrorlake.yaml"
    path.write_text(text)
    return path


def refused(folder: Path, text: str, **environment: str) -> ConfigError:
    with pytest.raises(ConfigError) as error:
        load(write(folder, text), environment)
    return error.value
