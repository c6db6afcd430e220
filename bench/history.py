"""What was found before: `bench/history.jsonl`, one comparison in a line, the oldest first.

Seconds do not travel between machines, so each line says on which it was found, and what had run
before it. The first line of a
name is what later ones are measured by, where an aim is said as a part of it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.catalog import CATALOG
from bench.result import Result

FILE = Path(__file__).parent / "history.jsonl"


def first(name: str, file: Path = FILE) -> dict[str, Any] | None:
    """The oldest line of a comparison."""
    lines = file.read_text().splitlines() if file.exists() else []
    return next((found for line in lines if (found := json.loads(line))["name"] == name), None)


def keep(results: Sequence[Result], rounds: int, machine: str, file: Path = FILE) -> None:
    """Append what was found on a machine, which is described as its owner likes."""
    date = datetime.now(UTC).date().isoformat()
    with file.open("a") as lines:
        for result in results:
            entry = CATALOG[result.name]
            how = {"what": entry.what, "warm": entry.warm, "rounds": entry.rounds_of(rounds)}
            facts = {"date": date, "machine": machine, **how, **result.facts()}
            lines.write(json.dumps(facts) + "\n")
