"""The code of a page, to be run as a reader would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.docs.generate import DOCS

SAID = re.compile(r"^\s*print\(.*?(?:\)\s+# (?P<beside>.+)|\)\n# (?P<below>.+))$", re.MULTILINE)
"""A line that prints, and the comment that says what."""


def blocks(page: str, language: str) -> list[str]:
    """The blocks of a page in one language, without their indentation."""
    found = re.findall(
        rf"^( *)```{language}\n(.*?)^ *```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL
    )
    return [re.sub(rf"^{indent}", "", code, flags=re.MULTILINE) for indent, code in found]


def said(code: str) -> list[str]:
    """What the comments of a block say that it prints."""
    return [match["beside"] or match["below"] for match in SAID.finditer(code)]


def shell(folder: Path, commands: str) -> str:
    """Run commands in a folder, in which `mirrorlake` is the program of this tree."""
    program = folder / "bin" / "mirrorlake"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m mirrorlake.cli.main "$@"\n')
    program.chmod(0o755)
    done = subprocess.run(
        ["sh", "-e", "-c", commands],
        cwd=folder,
        env=os.environ | {"PATH": f"{program.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
