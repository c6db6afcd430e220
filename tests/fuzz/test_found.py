"""What damaged input once did: each file here ended a process, or was read as what it is not.

The name of a file tells what is wrong with it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.apart import Apart
from tests.fuzz.inputs import NUMBERED
from tests.fuzz.readers import KEYED, METADATA, both

FOUND = sorted(Path(__file__).with_name("found").iterdir())


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.name)
def test_it_is_refused_by_engine_and_linter(apart: Apart, path: Path) -> None:
    landed = {METADATA: KEYED, f"{NUMBERED}{path.suffix}": path.read_bytes()}
    outcomes, errors = apart.run(both, landed)
    assert errors
    assert "rows" not in outcomes.values()
