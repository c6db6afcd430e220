"""What the page on installing names is there, and works."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docs.blocks import blocks, shell
from tests.docs.generate import DOCS

DEPLOY = DOCS.parent / "deploy"


def test_bash_completes_commands_as_the_page_says(tmp_path: Path) -> None:
    (show,) = blocks("how-to/install.md", "sh")
    ask = """
. ./mirrorlake.bash
COMP_WORDS=(mirrorlake sta) COMP_CWORD=1
_mirrorlake_completion mirrorlake
echo "${COMPREPLY[@]}"
"""
    (tmp_path / "ask.bash").write_text(ask)
    assert shell(tmp_path, f"{show}\nbash ask.bash").split() == ["status"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = (DEPLOY / "mirrorlake.service").read_text()
    (tmp_path / "mirrorlake").touch(0o755)
    there = unit.replace("/opt/mirrorlake/bin/mirrorlake", str(tmp_path / "mirrorlake"))
    (tmp_path / "mirrorlake.service").write_text(there)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / "mirrorlake.service")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (
        done.returncode,
        [line for line in done.stderr.splitlines() if "mirrorlake" in line],
    ) == (
        0,
        [],
    )


def test_the_unit_and_the_image_run_what_there_is() -> None:
    unit = (DEPLOY / "mirrorlake.service").read_text()
    assert re.search(r"^ExecStart=\S+/mirrorlake run --config \S+$", unit, re.MULTILINE)
    image = (DEPLOY / "Containerfile").read_text()
    for words in re.findall(r"^COPY (?!--from)(.+) \S+$", image, re.MULTILINE):
        for name in words.split():
            assert (DOCS.parent / name).exists(), name
    assert "python -m mirrorlake.spark.session.fetch" in image
