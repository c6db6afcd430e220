"""Pytest plugin: which clauses of the specifications the passed tests prove.

Tests carry `@pytest.mark.clause("LZ-077", ...)`. With `--clauses FILE` the run writes a JSON object
from clause to the tests that proved it, and prints per section of each specification how many
clauses are proved, how many only describe the original, and which are neither. A mark with an
unknown id fails the run, always, before any test has run; so does, when the whole suite is asked
for, a clause that `make test` would not prove because only tests marked `full` carry it.

Beside the marks there are two lists in docs/spec: `not-testable.csv` names the clauses that demand
nothing of us, with the reason; `proved-together.csv` those that ask for tests of other clauses, and
are proved as soon as all of these are.
"""

from __future__ import annotations

import csv
import json
import re
import textwrap
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path

import pytest

SPEC = Path(__file__).parent.parent / "docs" / "spec"
DOCUMENTS = {
    "LZ": "landing-zone.md",
    "ST": "streams.md",
    "CF": "change-feed.md",
    "FD": "front-doors.md",
}
_CLAUSE = re.compile(r"(?:\*\*|- \*\*|\| )((?:LZ|ST|CF|FD)-\d{3})(?:\*\*| \|)")
"""At the beginning of a line: of a paragraph, an entry of a list, or a row of a table."""


def known_clauses() -> list[str]:
    with (SPEC / "clauses.csv").open(newline="") as file:
        return [row["id"] for row in csv.DictReader(file)]


def described() -> dict[str, str]:
    """Clauses that only describe the original, with the reason why no test can prove them."""
    with (SPEC / "not-testable.csv").open(newline="") as file:
        return {row["id"]: row["reason"] for row in csv.DictReader(file)}


def together() -> dict[str, list[str]]:
    """Clauses that ask for tests of others, with these others."""
    with (SPEC / "proved-together.csv").open(newline="") as file:
        return {row["id"]: row["clauses"].split() for row in csv.DictReader(file)}


def sections() -> dict[str, dict[str, list[str]]]:
    """Document to section title to the clauses that stand in it."""
    found: dict[str, dict[str, list[str]]] = {}
    for name in DOCUMENTS.values():
        titles: dict[str, list[str]] = {}
        title = ""
        for line in (SPEC / name).read_text().splitlines():
            if line.startswith("## "):
                title = line.removeprefix("## ")
            elif match := _CLAUSE.match(line):
                titles.setdefault(title, []).append(match[1])
        found[name] = titles
    return found


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--clauses", metavar="FILE", help="write the proved clauses to FILE")


@pytest.hookimpl(tryfirst=True)  # before any test is deselected
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    known = set(known_clauses())
    wrong = [
        f"{item.nodeid} marks {clause}, which no document has"
        for item in items
        for clause in sorted(_clauses(item) - known)
    ]
    if _is_whole(config):
        wrong += _only_in_full(items)
    if not wrong:
        return
    if not hasattr(config, "workerinput"):
        raise pytest.UsageError(*wrong)
    # An error would be told as a crash of this process: the one that gathers the reports raises it.
    config.workeroutput["wrong_clauses"] = wrong
    items.clear()


def _is_whole(config: pytest.Config) -> bool:
    """Whether the tests that were collected are all that there are."""
    asked, every = (
        {config.rootpath / arg for arg in args}
        for args in (config.args, config.getini("testpaths"))
    )
    return asked == every and not config.getoption("ignore")


def _only_in_full(items: list[pytest.Item]) -> list[str]:
    """What to say of clauses that are proved by tests of `make test-full` alone."""
    full: dict[str, str] = {}
    quick: set[str] = set()
    for item in items:
        if item.get_closest_marker("long"):
            continue
        if item.get_closest_marker("full"):
            full |= dict.fromkeys(_clauses(item), item.nodeid)
        else:
            quick |= _clauses(item)
    return [
        f"{clause} is proved in make test-full only, by {full[clause]}"
        for clause in sorted(full.keys() - quick)
    ]


def pytest_configure(config: pytest.Config) -> None:
    # With several processes only the one that gathers their reports keeps the record.
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Record(config), "clause-record")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item):
    outcome = yield
    outcome.get_result().user_properties.append(("clauses", sorted(_clauses(item))))


class _Record:
    def __init__(self, config: pytest.Config) -> None:
        self._file = config.getoption("--clauses")
        self._proved: dict[str, set[str]] = defaultdict(set)
        self._failed: dict[str, set[str]] = defaultdict(set)
        self._wrong: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test that fails before or after its call proves nothing, either."""
        for clause in dict(report.user_properties).get("clauses", ()):
            if report.failed:
                self._failed[clause].add(report.nodeid)
            elif report.when == "call" and report.passed:
                self._proved[clause].add(report.nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node) -> None:
        """A process of several is done; all of them have seen the same tests."""
        self._wrong = getattr(node, "workeroutput", {}).get("wrong_clauses") or self._wrong

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._wrong:
            session.exitstatus = pytest.ExitCode.USAGE_ERROR

    def pytest_terminal_summary(self, terminalreporter) -> None:
        for line in self._wrong:
            terminalreporter.write_line(f"ERROR: {line}", red=True)
        for clause, tests in sorted(self._failed.items()):
            terminalreporter.write_line(f"{clause} failed in {', '.join(sorted(tests))}", red=True)
        if not self._file:
            return
        self._prove_together()
        path = Path(self._file)
        path.parent.mkdir(parents=True, exist_ok=True)
        proved = {clause: sorted(tests) for clause, tests in sorted(self._proved.items())}
        path.write_text(json.dumps(proved, indent=1) + "\n")
        for line in report(proved.keys()):
            terminalreporter.write_line(line)

    def _prove_together(self) -> None:
        """Clauses that stand for others are proved by the tests of these."""
        for clause, others in together().items():
            if all(other in self._proved for other in others):
                self._proved[clause].update(*(self._proved[other] for other in others))


def report(proved: Collection[str]) -> list[str]:
    """How each section stands, with the ids of the clauses that are neither proved nor described;
    and at the end those that are only described, each with its reason."""
    told = described()
    lines = []
    for document, titles in sections().items():
        lines.append(f"-- {document}")
        for title, clauses in titles.items():
            count = sum(clause in proved for clause in clauses)
            silent = sum(clause in told and clause not in proved for clause in clauses)
            extra = f" + {silent} described only" if silent else ""
            lines.append(f"{count:4d} / {len(clauses):<4d} {title}{extra}")
            open_ = [c for c in clauses if c not in proved and c not in told]
            lines += [f"            {line}" for line in textwrap.wrap(" ".join(open_), 86)]
    lines.append("-- described only")
    return [*lines, *(f"{clause}  {reason}" for clause, reason in sorted(told.items()))]


def _clauses(item: pytest.Item) -> set[str]:
    return {clause for mark in item.iter_markers("clause") for clause in mark.args}
