"""The SARIF log has the structure that version 2.1.0 asks for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

import pytest

from mirrorlake.lint import Profile, Result
from mirrorlake.lint.sampling import Reading
from mirrorlake.lint.sarif import log
from tests.lint.zones import STRICT, V1, V2, Zone, clean

# Of the schema of SARIF 2.1.0: required and known properties of each object that we write.
REQUIRED = {
    "log": {"version", "runs"},
    "run": {"tool"},
    "tool": {"driver"},
    "toolComponent": {"name"},
    "reportingDescriptor": {"id"},
    "result": {"message"},
    "invocation": {"executionSuccessful"},
    "notification": {"message"},
    "multiformatMessageString": {"text"},
}
KNOWN = {
    "log": {"$schema", "version", "runs", "inlineExternalProperties", "properties"},
    "run": {
        "tool", "invocations", "conversion", "language", "versionControlProvenance",
        "originalUriBaseIds", "artifacts", "logicalLocations", "graphs", "results",
        "automationDetails", "runAggregates", "baselineGuid", "redactionTokens",
        "defaultEncoding", "defaultSourceLanguage", "newlineSequences", "columnKind",
        "properties",
    },
    "reportingDescriptor": {
        "id", "deprecatedIds", "guid", "name", "shortDescription", "fullDescription",
        "messageStrings", "defaultConfiguration", "helpUri", "help", "relationships", "properties",
    },
    "result": {
        "ruleId", "ruleIndex", "rule", "kind", "level", "message", "analysisTarget", "locations",
        "guid", "fingerprints", "partialFingerprints", "rank", "properties",
    },
    "location": {"id", "physicalLocation", "logicalLocations", "message", "properties"},
    "physicalLocation": {"address", "artifactLocation", "region", "contextRegion", "properties"},
    "artifactLocation": {"uri", "uriBaseId", "index", "description", "properties"},
    "region": {"startLine", "startColumn", "endLine", "endColumn", "properties"},
}  # fmt: skip
LEVELS = {"none", "note", "warning", "error"}


def shaped(kind: str, found: dict[str, Any]) -> dict[str, Any]:
    """An object of the log, of which the properties are checked."""
    assert REQUIRED.get(kind, set()) <= set(found), kind
    assert set(found) <= KNOWN.get(kind, set(found)), kind
    return found


def check(found: dict[str, Any]) -> dict[str, Any]:
    """The only run of a log, all of it checked."""
    assert shaped("log", found)["version"] == "2.1.0"
    (run,) = found["runs"]
    driver = shaped("toolComponent", shaped("tool", shaped("run", run)["tool"])["driver"])
    assert run["columnKind"] in {"utf16CodeUnits", "unicodeCodePoints"}
    for base in run["originalUriBaseIds"].values():
        assert base["uri"].endswith("/")
    for rule in driver["rules"]:
        shaped("reportingDescriptor", rule)
        assert rule["defaultConfiguration"]["level"] in LEVELS
        for part in ("shortDescription", "fullDescription", "help"):
            shaped("multiformatMessageString", rule[part])
    ids = [rule["id"] for rule in driver["rules"]]
    assert len(set(ids)) == len(ids)
    for result in run["results"]:
        shaped("result", result)
        assert result["level"] in LEVELS
        assert ids[result["ruleIndex"]] == result["ruleId"]
        assert result["message"]["text"]
        for location in result["locations"]:
            _location(run, shaped("location", location))
    for invocation in run["invocations"]:
        for notification in shaped("invocation", invocation)["toolExecutionNotifications"]:
            assert shaped("notification", notification)["level"] in LEVELS
    return run


def _location(run: dict[str, Any], location: dict[str, Any]) -> None:
    physical = shaped("physicalLocation", location["physicalLocation"])
    artifact = shaped("artifactLocation", physical["artifactLocation"])
    assert not urlsplit(artifact["uri"]).scheme
    assert artifact["uriBaseId"] in run["originalUriBaseIds"]
    if "region" in physical:
        region = shaped("region", physical["region"])
        assert region["startLine"] >= 1
        assert region["startColumn"] >= 1


def logged(zone: Zone, result: Result) -> dict[str, Any]:
    return check(json.loads(json.dumps(log(result, zone.root, "1.2.3"))))


@pytest.mark.parametrize("profile", [V1, V2, STRICT], ids=["v1", "v2", "strict"])
def test_a_clean_run_is_valid(tmp_path: Path, profile: Profile) -> None:
    zone = clean(tmp_path)
    logged(zone, zone.lint(profile))


def test_a_finding_names_rule_level_file_and_place(tmp_path: Path) -> None:
    zone = clean(tmp_path)
    zone.put("orders/_metadata.json", '{"keyColumns": ["id"],\n}')
    (result,) = logged(zone, zone.lint())["results"]
    assert (result["ruleId"], result["level"]) == ("LZ-053/metadata-not-strict", "warning")
    region = result["locations"][0]["physicalLocation"]["region"]
    assert region == {"startLine": 1, "startColumn": 22}


def test_the_file_of_a_finding_can_be_opened(tmp_path: Path) -> None:
    zone = clean(tmp_path / "a b")
    zone.describe("größe #1", keyColumns=["id"])
    zone.put(f"größe #1/{1:020d}.parquet", b"PAR1")
    run = logged(zone, zone.lint())
    (result,) = run["results"]
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    whole = urljoin(run["originalUriBaseIds"]["ROOT"]["uri"], uri)
    assert Path(unquote(urlsplit(whole).path)).read_bytes() == b"PAR1"


def test_row_and_column_are_in_the_message(tmp_path: Path) -> None:
    zone = clean(tmp_path)
    zone.write("notes", 3, "id,name,__rowMarker__", "7,Eva,0", "x,Finn,0")
    (result,) = logged(zone, zone.lint())["results"]
    assert "table notes, row 2, column id" in result["message"]["text"]
    assert result["locations"][0]["logicalLocations"][0]["fullyQualifiedName"] == "notes.id"


def test_what_was_not_read_is_a_notification(tmp_path: Path) -> None:
    zone = clean(tmp_path)
    run = logged(zone, zone.lint(reading=Reading(budget=0, opened=1, least=1)))
    (invocation,) = run["invocations"]
    assert "Not fully read" in invocation["toolExecutionNotifications"][0]["message"]["text"]
