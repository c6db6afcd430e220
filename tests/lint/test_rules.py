"""Every rule finds what breaks it, and nothing else is said."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from mirrorlake.landing.text.format import (
    COLUMN_SEPARATORS,
    ESCAPES,
    QUOTES,
    ROW_SEPARATORS,
    TYPE_NAMES,
)
from mirrorlake.landing.text.members import PROPERTY_MEMBERS
from mirrorlake.lint import Severity
from mirrorlake.lint.catalog import BY_KEY
from tests.clauses import SPEC
from tests.lint.broken import CASES, Case
from tests.lint.zones import STRICT, V1, V2, clean, clean_v1, keys


def _of_publishers() -> set[str]:
    """The clauses that say what a publisher writes."""
    with (SPEC / "clauses.csv").open(newline="") as file:
        return {row["id"] for row in csv.DictReader(file) if "P" in row["side"]}


def _cases() -> list[object]:
    published = _of_publishers()
    return [
        pytest.param(
            case,
            marks=[pytest.mark.clause(case.rule[:6])] if case.rule[:6] in published else [],
            id=f"{case.rule}-{case.profile.version}{'-strict' * case.profile.strict}",
        )
        for case in CASES
    ]


@pytest.mark.full
@pytest.mark.parametrize("case", _cases())
def test_a_broken_zone_gives_its_finding_and_no_other(tmp_path: Path, case: Case) -> None:
    zone = clean_v1(tmp_path) if case.profile is V1 else clean(tmp_path)
    case.build(zone)
    result = zone.lint(case.profile)
    assert keys(result) == {case.rule, *case.notes}
    severity = BY_KEY[case.rule].weight(case.profile)
    others = {f.severity for f in result.findings if f.rule.key != case.rule}
    assert {f.severity for f in result.findings if f.rule.key == case.rule} == {severity}
    assert others <= {Severity.NOTE, Severity.WARNING}
    assert result.is_good == (severity is not Severity.ERROR)
    assert not result.unreadable


@pytest.mark.parametrize("key", BY_KEY)
def test_every_rule_has_a_zone_that_breaks_it(key: str) -> None:
    assert key in {case.rule for case in CASES}


@pytest.mark.parametrize("key", BY_KEY)
def test_a_rule_is_complete_and_its_clauses_exist(key: str) -> None:
    rule = BY_KEY[key]
    with (SPEC / "clauses.csv").open(newline="") as file:
        known = {row["id"] for row in csv.DictReader(file)}
    assert {rule.id, *rule.also} <= known
    assert all((rule.title, rule.expected, rule.why, rule.mend, rule.example))
    assert rule.severity or rule.strict


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("LZ-162/RowSeparator-unknown", map(json.dumps, ROW_SEPARATORS)),
        ("LZ-163/ColumnSeparator-unknown", map(json.dumps, COLUMN_SEPARATORS)),
        ("LZ-164/QuoteCharacter-unknown", map(json.dumps, QUOTES)),
        ("LZ-165/EscapeCharacter-unknown", map(json.dumps, ESCAPES)),
        ("LZ-171/unknown-property", PROPERTY_MEMBERS),
        ("LZ-188/type-unknown", TYPE_NAMES.values()),
    ],
)
def test_a_rule_names_the_values_that_the_engine_takes(key: str, values: Iterable[str]) -> None:
    assert BY_KEY[key].expected == ", ".join(values)


@pytest.mark.parametrize("profile", [V2, STRICT], ids=["usual", "strict"])
def test_a_clean_zone_of_the_v2_page_gives_no_finding(tmp_path: Path, profile: object) -> None:
    result = clean(tmp_path).lint(profile)
    assert (keys(result), result.tables, result.files) == (set(), 3, 5)


def test_a_clean_zone_of_the_v1_page_gives_no_finding(tmp_path: Path) -> None:
    result = clean_v1(tmp_path).lint(V1)
    assert (keys(result), result.tables, result.files) == (set(), 1, 2)


def test_the_pages_of_v1_and_v2_do_not_suit_each_other(tmp_path: Path) -> None:
    assert "LZ-070/marker-not-first" in keys(clean(tmp_path / "new").lint(V1))
    assert "LZ-071/marker-not-last" in keys(clean_v1(tmp_path / "old").lint(V2))
