"""What must have become of a scenario: what it says itself, and what holds of every one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pyarrow as pa

from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.mirror.engine import AlreadyApplied, Applied, Failed, Outcome
from mirrorlake.model.change import ROW_POSITION
from mirrorlake.model.landed import FileName
from tests.conformance.apply.player import OTHER_GENERATION
from tests.conformance.apply.scenario import (
    MODELLED,
    Compacts,
    Lands,
    Made,
    Played,
    Refused,
    Scenario,
)
from tests.conformance.mirrored import GENERATION, Feeds, Mirrored
from tests.histories import counted
from tests.reference import Change, Row, Table, plain, without_equal
from tests.sim.engine import backfilled


def check(played: Played) -> None:
    """Outcomes, rows and feed are as expected; another engine reads the same progress, and no
    engine applies the last batch again."""
    if played.error is not None:
        raise played.error
    scenario, table, progress = played.scenario, played.table, played.progress
    _check_outcomes(played)
    model = _modelled(played)
    rows = scenario.rows
    if model is not None:
        assert played.feed == model[1]
        rows = model[0] if rows is MODELLED else rows
    assert counted(played.rows) == counted(rows)
    anew = any(isinstance(act, Made) and act.anew for act in scenario.acts)
    assert progress.generation == (OTHER_GENERATION if anew else GENERATION)
    assert (progress.recorded, progress.schema) == (table.recorded, table.shape.schema)
    assert (progress.key, progress.required) == (table.shape.key, scenario.required)
    assert (progress.detection, progress.restored) == (scenario.detection, None)
    assert progress.unsupported == ""
    if played.step is not None:
        assert len(played.again) >= 2
        assert all(outcome == AlreadyApplied(played.step.last) for outcome in played.again)
    if scenario.version is not None:
        assert progress.version == scenario.version
    if scenario.mapping is not None:
        assert mapping_of(table) == scenario.mapping
    if scenario.then is not None:
        scenario.then(played)


def mapping_of(table: Mirrored) -> str:
    """How Delta finds the columns of a table in its files, as the log says."""
    properties = TableLog(table.store.location(table.path)).snapshot().properties
    return properties.get("delta.columnMapping.mode", "none")


def _check_outcomes(played: Played) -> None:
    recorded = 0
    acts = [act for act in played.scenario.acts if isinstance(act, Lands | Compacts)]
    for act, outcome in zip(acts, played.outcomes, strict=True):
        if isinstance(act, Compacts):
            assert outcome is None if act.outcome is None else isinstance(outcome, act.outcome)
            continue
        if isinstance(act.outcome, Refused):
            _check_refusal(played.table, act, act.outcome, outcome, recorded)
            continue
        assert isinstance(outcome, act.outcome), outcome
        if isinstance(outcome, Applied):
            recorded += len(act.files) + act.truncated
            if act.counts is not None:
                assert outcome.counts == act.counts
            if act.feed is not None:
                expected = [(kind, plain(row)) for kind, rows in act.feed.items() for row in rows]
                assert played.feed.get(outcome.version, Counter()) == Counter(expected)


def _check_refusal(
    table: Mirrored, act: Lands, expected: Refused, outcome: Outcome | None, recorded: int
) -> None:
    assert isinstance(outcome, Failed), outcome
    error = outcome.error
    assert type(error) is expected.error
    assert (error.table, error.row) == (str(table.table), expected.row)
    assert error.column == expected.column
    if expected.file is not None:
        assert error.file == f"{FileName(recorded + act.truncated + expected.file)}"


def _model(scenario: Scenario) -> Table:
    model, names = scenario.shape.table(), scenario.shape.schema.names
    model.metadata = tuple(names.index(name) for name in names if name == ROW_POSITION)
    model.soft = len(names) - 1 if scenario.soft else None
    return model


def _modelled(played: Played) -> tuple[list[Row], Feeds] | None:
    """The rows that the model has, and its feed by version; None where a scenario is about more
    than changes that are applied."""
    if not all(isinstance(act, Lands) for act in played.scenario.acts):
        return None
    model, feeds = _model(played.scenario), Feeds()
    for act, outcome in zip(played.scenario.acts, played.outcomes, strict=True):
        is_applied = isinstance(act, Lands) and isinstance(outcome, Applied)
        if not is_applied or act.step.get("whole_rows"):
            return None
        feed = Counter[tuple[str, Row]]()
        if act.truncated:
            position, _last = act.step.get("positions", (None, None))
            feed = model.truncate(dict.fromkeys(model.metadata, position))
        files = list(act.files.values() if isinstance(act.files, Mapping) else act.files)
        if any(isinstance(file, bytes | pa.Table) for file in files):
            return None
        changes = [Change(*change) for file in files for change in file]
        chunk = act.step.get("backfill")
        names = played.scenario.shape.schema.names
        feed += backfilled(model, names, chunk.keys, changes) if chunk else model.apply(changes)
        if act.step.get("suppress_unchanged"):
            feed = without_equal(feed)
        if feed:
            feeds[outcome.version] = feed
    return model.rows, feeds
