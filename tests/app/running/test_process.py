"""A process of our own takes no more than it needs."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
import pyarrow as pa
from mirrorlake.app.running.process import skip_pandas
{before}
skip_pandas()
assert pa.array([1, None]).null_count == 1
assert ("pandas" in sys.modules) == {there}
import pandas as pd
frame = pa.table({{"id": [1, 2]}}).to_pandas()
assert frame.equals(pd.DataFrame({{"id": [1, 2]}}))
assert pa.Table.from_pandas(frame, preserve_index=False).num_rows == 2
"""


def test_arrow_does_without_pandas_and_makes_frames_when_they_are_asked_for() -> None:
    script = SCRIPT.format(before="", there=False)
    subprocess.run([sys.executable, "-c", script], check=True)


def test_capture_does_without_duckdb_and_spark() -> None:
    """DuckDB takes 30 MiB, of which each of many capture processes would have its own."""
    script = """
import sys
import mirrorlake.app.running.capturing, mirrorlake.app.running.capture_process
assert not {"duckdb", "pyspark"} & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_pandas_that_is_there_already_stays() -> None:
    script = SCRIPT.format(before="import pandas", there=True)
    subprocess.run([sys.executable, "-c", script], check=True)
