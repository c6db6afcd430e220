"""The program sets how long freed memory is kept, in time for Arrow."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

LOOK = """
import sys
import mirrorlake.cli
assert "pyarrow" not in sys.modules
import os
print(os.environ["MIMALLOC_PURGE_DELAY"])
"""


@pytest.mark.parametrize(("before", "after"), [(None, "10000"), ("0", "0")])
def test_freed_memory_is_kept_unless_the_environment_says_otherwise(
    before: str | None, after: str
) -> None:
    environment = {name: value for name, value in os.environ.items() if "MIMALLOC" not in name}
    if before is not None:
        environment["MIMALLOC_PURGE_DELAY"] = before
    done = subprocess.run(
        [sys.executable, "-c", LOOK], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == after
