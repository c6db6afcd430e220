"""The tables of figures in README and docs/performance.md, as they were last kept in the history.

`make docs` writes them between the comments `<!-- figures: NAME -->` and `<!-- end of figures -->`.
What was never kept has no line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import history
from bench.catalog import CATALOG, DELTA_RS, MERGE, MERGE_OWN_LAYOUT

Line = Mapping[str, Any]
"""As it is kept."""

BLOCK = re.compile(r"(<!-- figures: (\w+) -->\n).*?(<!-- end of figures -->)", re.DOTALL)
APPLY = [name for name in CATALOG if name.startswith("apply")]
_AGED = ("freshness", "fresh-10k", "many", "many+busy")


def filled(text: str, file: Path = history.FILE) -> str:
    """A page with its tables."""
    found = last(file)
    return BLOCK.sub(lambda block: f"{block[1]}{TABLES[block[2]](found)}{block[3]}", text)


def last(file: Path = history.FILE) -> dict[str, list[Line]]:
    """Name of a comparison to its last lines, one for each peer, of the last day that has any."""
    found: dict[str, dict[str, Line]] = {}
    for line in map(json.loads, file.read_text().splitlines()):
        if "what" not in line:
            continue  # of a release that did not say
        lines = found.setdefault(line["name"], {})
        if any(one["date"] != line["date"] for one in lines.values()):
            lines.clear()
        lines[line["peer"] or ""] = line
    return {name: list(lines.values()) for name, lines in found.items()}


def _apply(found: Mapping[str, Sequence[Line]], peers: Mapping[str, Sequence[str]]) -> str:
    """Of changes into a table. peers: title of a column to the sides of which it shows the first
    that there is."""
    rows = [["Changes", "mirrorlake", *peers, "Rounds", "Warm"]]
    measured = ""
    for name in APPLY:
        lines = {line["peer"]: line for line in found.get(name, ())}
        if not lines:
            continue
        ours = next(iter(lines.values()))
        cells = [
            _ratio(next((lines[p] for p in some if p in lines), {})) for some in peers.values()
        ]
        told = seconds(ours["ours_seconds"])
        rows.append([ours["what"], told, *cells, ours["rounds"], ours["warm"]])
        measured = f"Medians, {ours['date']}, {ours['machine']}, local disk."
    return f"{measured}\n\n{_markdown(rows)}"


def _readme(found: Mapping[str, Sequence[Line]]) -> str:
    columns = {
        "`MERGE` of Delta on Spark": [MERGE_OWN_LAYOUT, MERGE],
        "`MERGE` of delta-rs": [DELTA_RS],
    }
    (fresh,) = found["freshness"]
    ages = f"p50 {seconds(fresh['p50_seconds'])}, p99 {seconds(fresh['p99_seconds'])}"
    how = f"{fresh['what']}; rounds: {fresh['rounds']}; warm: {fresh['warm']}"
    return f"{_apply(found, columns)}\nFreshness ({how}): {ages}.\n"


def _page(found: Mapping[str, Sequence[Line]]) -> str:
    columns = {
        "`MERGE` of Delta on Spark": [MERGE],
        "on a table that Spark wrote": [MERGE_OWN_LAYOUT],
        "`MERGE` of delta-rs": [DELTA_RS],
    }
    return _apply(found, columns)


def _others(found: Mapping[str, Sequence[Line]]) -> str:
    rows = [["What", "mirrorlake", "Compared with", "Rounds", "Warm", "Measured"]]
    for name in CATALOG:
        for lines in _grouped(found.get(name, ())) if name not in APPLY else ():
            line = lines[0]
            what = line["what"] if name != "scale" else f"{_kind(line)} {line['what']}"
            if note := CATALOG[name].note:
                what = f"{what} ({note})"
            peers = "; ".join(map(_peer, (one for one in lines if one["peer"] is not None)))
            rows.append([what, _result(line), peers, line["rounds"], line["warm"], line["date"]])
    return _markdown(rows)


TABLES: Mapping[str, Callable[[Mapping[str, Sequence[Line]]], str]] = {
    "readme": _readme,
    "apply": _page,
    "others": _others,
}


def _grouped(lines: Sequence[Line]) -> Iterator[list[Line]]:
    """Lines of one side of ours together."""
    groups: dict[Any, list[Line]] = {}
    for line in lines:
        groups.setdefault(line["ours_seconds"], []).append(line)
    yield from groups.values()


def _kind(line: Line) -> str:
    return str(line["peer"]).removeprefix("small table, ")


def _result(line: Line) -> str:
    """What is told of our side."""
    name = line["name"]
    if name in _AGED:
        return ", ".join([_ages(line), *_costs(line)])
    if name == "backfill":
        return f"{seconds(line['ours_seconds'])}; the changes are readable after {_ages(line)}"
    if name.startswith("soak"):
        first, end = line["first_p50_seconds"], line["last_p50_seconds"]
        return f"p50 {seconds(first)} at the beginning, {seconds(end)} at the end"
    if name == "scan on objects":
        return f"{line['requests']:g} requests"
    if name == "serve-idle":
        return (
            f"{line['service_percent']:g} % of a core, captures {line['captures_percent']:g} %, "
            f"{line['service_mebibytes']} MiB and {line['captures_mebibytes']} MiB"
        )
    told = seconds(line["ours_seconds"])
    memory = {
        "memory": f", {line.get('ours_mebibytes')} MiB at most",
        "text": f", {line.get('ours_mebibytes')} MiB at most in a process",
        "text-8": f", {line.get('ours_mebibytes')} MiB at most in a process",
        "files": f", driver {line.get('driver')} MiB, heap of its JVM {line.get('heap')} MiB, "
        f"Python workers {line.get('workers')} MiB",
    }
    return told + memory.get(name, "")


def _ages(line: Line) -> str:
    return ", ".join(f"{one} {seconds(line[f'{one}_seconds'])}" for one in ("p50", "p99", "max"))


def _peer(line: Line) -> str:
    """What is told of the other side."""
    told = f"{line['peer']}: {_ratio(line)}"
    if objects := line.get("peer_seconds_of_objects"):
        times = objects / line["ours_seconds"]
        told += f"; of objects that are there: {seconds(objects)}, {_times(times)} as long"
    return told if line["equal"] is not None else f"{told} (not compared)"


def _costs(line: Line) -> list[str]:
    if "cpu_seconds_per_million_changes" not in line:
        return []
    peak = line["peak_mebibytes"]
    return [
        f"{line['cpu_seconds_per_million_changes']} CPU seconds per million changes",
        f"driver with JVM {peak['driver'] + peak['jvm']} MiB, capture {peak['capture']} MiB",
    ]


def _ratio(line: Line) -> str:
    if not line:
        return "-"
    times = 1 / line["ratio"] if line["name"] == "scale" else line["ratio"]
    by = f"mirrorlake takes {_times(times)}" if line["name"] == "scale" else _times(times)
    return f"{seconds(line['peer_seconds'])}, {by} as long"


def _times(value: float) -> str:
    return f"{value:.1f} times" if value < 9.95 else f"{value:.0f} times"


def seconds(value: float) -> str:
    """Seconds as the tables tell them."""
    if value < 0.095:
        return f"{value * 1e3:.2g} ms"
    return f"{value:.2f} s" if value < 0.995 else f"{value:.1f} s"


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    head, *others = rows
    lines = [head, ["---"] * len(head), *others]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
