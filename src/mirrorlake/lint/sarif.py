"""Findings as SARIF 2.1.0, the format of code review tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

from mirrorlake.lint.catalog import RULES, Profile, Rule, Severity
from mirrorlake.lint.finding import Finding, FindingLocation
from mirrorlake.lint.linter import Result

VERSION = "2.1.0"
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
BASE = "ROOT"
"""The name of the root of the paths in the log."""


def log(result: Result, root: Path | str, release: str) -> dict[str, Any]:
    """The log of one run.

    root: the folder or URL that contains the paths of the findings; release: our version.
    Unreadable files are notifications of the tool, because they are not errors of a publisher.
    """
    profile = result.report.profile
    rules = [rule for rule in RULES if rule.weight(profile) is not None]
    locations = {rule.key: at for at, rule in enumerate(rules)}
    return {
        "$schema": SCHEMA,
        "version": VERSION,
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "mirrorlake lint",
                        "semanticVersion": release,
                        "rules": [_rule(rule, profile) for rule in rules],
                    }
                },
                "originalUriBaseIds": {BASE: {"uri": _uri(root) + "/"}},
                "columnKind": "unicodeCodePoints",
                "invocations": [_invocation(result)],
                "results": [_result(finding, locations) for finding in result.findings],
            }
        ],
    }


def _uri(root: Path | str) -> str:
    if isinstance(root, Path):
        return root.as_uri().rstrip("/")
    scheme, _, rest = root.partition("://")
    return f"{scheme}://{quote(rest.rstrip('/'))}"


def _rule(rule: Rule, profile: Profile) -> dict[str, Any]:
    severity = rule.weight(profile)
    assert severity is not None
    return {
        "id": rule.key,
        "name": rule.name,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.why, "markdown": rule.why},
        "help": {"text": rule.mend, "markdown": f"{rule.mend}\n\n```text\n{rule.example}\n```"},
        "defaultConfiguration": {"level": _LEVELS[severity]},
        "properties": {"tags": [rule.id, *rule.also]},
    }


def _result(finding: Finding, locations: dict[str, int]) -> dict[str, Any]:
    location = finding.location
    named = (("table", location.table), ("row", location.row), ("column", location.column))
    where = ", ".join(f"{name} {fact}" for name, fact in named if fact is not None)
    message = f"{finding.rule.title}: {finding.found}; expected {finding.expected}"
    return {
        "ruleId": finding.rule.key,
        "ruleIndex": locations[finding.rule.key],
        "level": _LEVELS[finding.severity],
        "message": {"text": f"{message} ({where})." if where else f"{message}."},
        "locations": [_location(location)],
    }


def _location(location: FindingLocation) -> dict[str, Any]:
    physical: dict[str, Any] = {
        "artifactLocation": {"uri": quote(location.path), "uriBaseId": BASE},
    }
    if location.line is not None:
        physical["region"] = {"startLine": location.line, "startColumn": location.character or 1}
    found: dict[str, Any] = {"physicalLocation": physical}
    if location.column is not None:
        name = f"{location.table}.{location.column}" if location.table else location.column
        found["logicalLocations"] = [{"fullyQualifiedName": name, "kind": "member"}]
    return found


def _invocation(result: Result) -> dict[str, Any]:
    errors = [f"{path} could not be read: {why}" for path, why in result.unreadable]
    notes = [*errors, *([unread] if (unread := result.unread.summary()) else [])]
    return {
        "executionSuccessful": not result.unreadable,
        "toolExecutionNotifications": [
            {"level": "error" if note in errors else "note", "message": {"text": note}}
            for note in notes
        ],
    }


_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "note"}
