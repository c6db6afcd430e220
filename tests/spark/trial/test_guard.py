"""Whether the direct way is open: versions, jars and a trial that is remembered."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from mirrorlake.app.mirror import Mirror
from mirrorlake.apply import direct
from mirrorlake.apply.engine import Engine
from mirrorlake.config import Project
from mirrorlake.delta.log.table_log import TableSnapshot
from mirrorlake.mirror.engine import Conflicted
from mirrorlake.mirror.explain import as_fact
from mirrorlake.mirror.steps import ApplyFiles
from mirrorlake.mirror.table.progress import Progress
from mirrorlake.spark.committer import SparkCommitter
from mirrorlake.spark.session import class_path, jars, workers
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.spark.settings import SparkSettings
from mirrorlake.spark.trial import features, guard
from mirrorlake.spark.trial import record as trials
from mirrorlake.spark.trial import run as trial
from mirrorlake.storage.local import LocalStore
from mirrorlake.storage.urls import StorageLocation, open_store
from tests.app.zones import Zone
from tests.objects import S3Server
from tests.profiles import some

pytestmark = pytest.mark.spark

SPARK, DELTA = jars.pair()
JARS = class_path.recorded(jars.configuration(SparkSettings()))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where nothing is remembered yet."""
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    return tmp_path


class Jvm:
    """A JVM in which every name leads to the version of Delta."""

    def __getattr__(self, _name: str) -> Jvm:
        return self

    def __call__(self) -> str:
        return DELTA


@pytest.fixture
def started() -> Spark:
    """What a local Spark of the installed versions says of itself."""
    return spark_on("local[2]")


def spark_on(master: str, found: str = "") -> Spark:
    context = SimpleNamespace(master=master, getConf=lambda: {"spark.jars": found})
    session = SimpleNamespace(sparkContext=context, version=SPARK, _jvm=Jvm())
    return Spark(session, is_ours=False)  # type: ignore[arg-type]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The answers of the trials to come; those that were given are taken away."""
    found: list[str] = []
    monkeypatch.setattr(trial, "fails", lambda _spark, _tables=None: found.pop(0))
    return found


@pytest.mark.full
def test_ten_rows_come_through_the_insides_of_the_tested_versions(spark: Spark) -> None:
    assert trial.fails(spark) == ""


@pytest.mark.full
@pytest.mark.parametrize(
    ("expected", "row", "said"),
    some(
        [
            ("EXPECTED", (0, "other"), "the self-test of direct read other rows than it wrote"),
            (
                "FEED",
                ("insert", 0, "other"),
                "the self-test of direct read another change feed than it wrote",
            ),
        ],
    ),
)
def test_a_trial_that_meets_other_insides_says_so(
    spark: Spark, monkeypatch: pytest.MonkeyPatch, expected: str, row: object, said: str
) -> None:
    monkeypatch.setitem(getattr(trial, expected), row, 1)
    assert trial.fails(spark) == said


@pytest.mark.full
@pytest.mark.parametrize(
    ("expected", "said"),
    [
        ("ROWS", "rows from a checkpoint"),
        ("FEED", "changes of partitions"),
    ],
)
def test_a_trial_that_meets_other_features_says_so(
    spark: Spark, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, expected: str, said: str
) -> None:
    monkeypatch.setattr(features, expected, Counter())
    told = f"the self-test of direct read other {said} than it wrote"
    assert features.fails(spark, LocalStore(tmp_path / "root")) == told


@pytest.mark.full
def test_a_trial_whose_truncation_leaves_rows_says_so(
    spark: Spark, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(features, "TRUNCATED", 0)
    told = "the self-test of direct read other changes of partitions than it wrote"
    assert features.fails(spark, LocalStore(tmp_path / "root")) == told


@pytest.mark.full
def test_a_trial_whose_features_are_not_written_says_how_it_ended(
    spark: Spark, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    refused = Conflicted("of another inside")
    monkeypatch.setattr(SparkCommitter, "compact", lambda _self, _commit: refused)
    told = "the self-test of direct ended as Conflicted with partitions"
    assert features.fails(spark, LocalStore(tmp_path / "root")) == told


@pytest.mark.full
def test_a_trial_without_a_deletion_vector_says_so(
    spark: Spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The second batch writes all rows of the first one anew: rows and feed are the same.
    monkeypatch.setattr(direct, "files_to_join", tuple)
    assert trial.fails(spark) == "the self-test of direct wrote no deletion vector"


def forgets(truly: Any) -> Any:
    """An engine that takes no notice of what a table has recorded."""

    def fitting(self: Engine, step: ApplyFiles, snapshot: TableSnapshot, progress: Progress) -> Any:
        return truly(self, step, snapshot, replace(progress, recorded=step.first - 1))

    return fitting


@pytest.mark.full
def test_a_trial_that_is_written_twice_says_so(
    spark: Spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "_open_on", forgets(Engine._open_on))
    assert trial.fails(spark) == "the self-test of direct applied a batch twice"


def test_a_trial_that_went_well_is_not_repeated(started: Spark, answers: list[str]) -> None:
    answers += ["", "never asked"]
    assert not trials.went_well()
    assert [guard.closed(started), guard.closed(started)] == ["", ""]
    assert trials.went_well()
    assert answers == ["never asked"]


def test_what_is_remembered_can_be_lost(started: Spark, home: Path, answers: list[str]) -> None:
    answers += ["", ""]
    guard.closed(started)
    for path in home.rglob("direct-*"):
        path.unlink()
    assert guard.closed(started) == ""
    assert answers == []


def test_a_trial_that_failed_closes_the_way_with_a_warning_and_is_repeated(
    started: Spark, answers: list[str]
) -> None:
    answers += ["it went wrong", ""]
    with structlog.testing.capture_logs() as logs:
        assert guard.closed(started) == "it went wrong"
    (told,) = logs
    assert (told["event"], told["log_level"]) == (guard.CLOSED, "warning")
    assert told["reason"] == "it went wrong"
    assert guard.closed(started) == ""


def test_a_plan_says_what_the_last_trial_has_found(
    started: Spark, answers: list[str], tmp_path: Path
) -> None:
    zone = Zone(tmp_path, None)  # type: ignore[arg-type]
    zone.table("orders", "id")
    zone.land("orders", 1, {"id": [1]})
    answers += ["it went wrong", ""]
    told = []
    for _start in range(2):
        guard.closed(started)
        (plan,) = Mirror(Project.of_root(zone.root)).plan()
        told.append(as_fact(plan.steps[-1]))
    assert [(one["strategy"], one["reason"]) for one in told] == [
        ("merge", "it went wrong"),
        ("direct", "no feature of this table requires Delta's MERGE"),
    ]


def test_a_trial_that_went_well_counts_where_the_note_of_one_that_failed_is_left(
    home: Path,
) -> None:
    trials.remember("")
    (well,) = home.rglob("direct-*")
    well.with_name(f"{well.name}.failed").write_text("it went wrong")
    assert trials.failure() == ""


def test_a_home_that_cannot_be_written_costs_a_trial_each_time(
    started: Spark, home: Path, answers: list[str]
) -> None:
    (home / ".ivy2.5.2").write_text("no folder")
    answers += ["", ""]
    assert [guard.closed(started), guard.closed(started)] == ["", ""]
    assert answers == []


def test_a_pair_that_was_not_tested_closes_the_way(
    started: Spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jars, "TESTED", {})
    assert "are not a tested pair" in guard.closed(started)


@pytest.mark.parametrize("reason", ["", "it went wrong"])
def test_a_newer_patch_is_decided_by_the_trial(
    started: Spark, answers: list[str], monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    answers.append(reason)
    major, minor, patch = SPARK.split(".")
    newer = f"{major}.{minor}.{int(patch) + 1}"
    monkeypatch.setattr(jars, "pair", lambda: (newer, DELTA))
    monkeypatch.setattr(started.session, "version", newer)
    assert guard.closed(started) == reason
    assert answers == []


def test_a_newer_patch_is_tried_on_objects_too_where_tables_lie_there(
    started: Spark, answers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = StorageLocation("s3://bucket/shop")
    answers.append("")
    assert guard.closed(started, tables) == ""  # our own tests have tried the tested pair there
    monkeypatch.setattr(jars, "is_tested", lambda: False)
    answers.append("it went wrong there")
    assert guard.closed(started, tables) == "it went wrong there"
    assert trials.failure(trials.ON_OBJECTS) == "it went wrong there"
    assert (trials.failure(), guard.closed(started)) == ("", "")
    answers.append("")
    assert [guard.closed(started, tables), guard.closed(started, tables)] == ["", ""]
    assert trials.went_well(trials.ON_OBJECTS)
    assert answers == []


@pytest.mark.full
def test_ten_rows_and_all_features_come_through_objects_and_nothing_is_left(
    spark: Spark, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.described(monkeypatch)
    tables = StorageLocation(f"{s3.new_bucket()}/shop", s3.options)
    assert trial.fails(spark, tables) == ""
    assert any("/_delta_log/" in request for request in s3.requests)
    left = open_store(tables.url, tables.options).tree("") or {}
    names = {file.name for listing in left.values() for file in listing.files}
    assert names <= {"_staged_commits"}  # a folder to Hadoop
    monkeypatch.setattr(features, "ROWS", Counter())
    assert "read other rows from a checkpoint" in trial.fails(spark, tables)


def test_a_session_with_other_jars_closes_the_way(
    started: Spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = next(pair for pair in jars.TESTED if pair != (SPARK, DELTA))
    monkeypatch.setattr(jars, "pair", lambda: other)
    assert f"the session runs Spark {SPARK} with Delta {DELTA}" in guard.closed(started)


@pytest.mark.parametrize(("code", "said"), [(0, ""), (1, "it went wrong")])
def test_on_a_cluster_the_trial_has_a_process_of_its_own(
    monkeypatch: pytest.MonkeyPatch, code: int, said: str
) -> None:
    def run(command: list[str], **_options: Any) -> SimpleNamespace:
        assert command[1:] == ["-m", "mirrorlake.spark.trial.run", "a.jar,b.jar"]
        return SimpleNamespace(returncode=code, stdout=f"{said}\n")

    monkeypatch.setattr(subprocess, "run", run)
    assert guard.closed(spark_on("spark://somewhere:7077", "a.jar,b.jar")) == said
    assert trials.went_well() is not bool(said)


@pytest.mark.full
def test_there_it_runs_with_the_jars_of_the_session_and_fetches_none(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = ",".join(JARS)
    elsewhere = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} -Duser.home={home}"
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", elsewhere)  # where no jar is, and where it would go
    assert guard.closed(spark_on("spark://somewhere:7077", found)) == ""
    assert not list(home.glob(".ivy2*/jars"))


def test_a_library_of_another_release_is_tried_anew(
    started: Spark, answers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers += ["", ""]
    guard.closed(started)
    here = workers.versions()
    monkeypatch.setattr(workers, "versions", lambda: here | {"pyarrow": "0.1"})
    assert not trials.went_well()
    assert guard.closed(started) == ""
    assert answers == []
