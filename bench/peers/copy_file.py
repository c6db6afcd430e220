"""`COPY` to a file, by psql: what PostgreSQL itself can give, without types, Parquet or a table."""

from __future__ import annotations

import subprocess
from pathlib import Path

from bench import payments
from bench.rounds import timed
from bench.server import program

NAME = "COPY to a file"


def copy(url: str, path: Path) -> float:
    """Write all rows as CSV. Returns the seconds."""
    command = rf"\copy {payments.TABLE} to '{path}' with (format csv, null '\N')"
    with timed() as watch:
        subprocess.run(
            [str(program("psql")), "--no-psqlrc", "--quiet", "--dbname", url, "--command", command],
            check=True,
            env={"PGOPTIONS": "-c timezone=UTC", "LC_ALL": "C"},
        )
    return watch.seconds
