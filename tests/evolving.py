"""Lives of a mirrored table: batches, new columns, compactions, replays and restarts, in any order.

A life is drawn step by step, because what a publisher may land depends on the rows that are there.
Each step is applied at once, and rows and feed are compared with the model after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from mirrorlake.mirror.engine import AlreadyApplied, Applied, Conflicted, Counts, MirrorEngine
from mirrorlake.mirror.steps import AlterColumns
from mirrorlake.model.table import Column
from mirrorlake.model.types import DataType
from tests.conformance.mirrored import Mirrored
from tests.delta.statistics_check import check_bounds
from tests.histories import KEYLESS, SHAPES, VALUES, Landing, Shape, counted, landings_of
from tests.reference import Row, Table, plain

NEW = sorted({c.type for shape in SHAPES.values() for c in shape.schema}, key=str)


@dataclass
class Life:
    """A table beside its model. batches: how many were applied."""

    table: Mirrored
    model: Table
    new_engine: Callable[[], MirrorEngine]
    feeds: dict[int, Counter[tuple[str, Row]]] = field(default_factory=dict)
    batches: int = 0
    alters: bool = True  # its engine can

    def land(self, landing: Landing) -> None:
        """Apply a batch; it must do what it does to the model, and nothing when it comes again."""
        feed = self.model.truncate() if landing.truncate else Counter()
        feed += self.model.apply(landing.changes)
        step = self.table.step_of(landing)
        outcome = self.table.run(step)
        assert isinstance(outcome, Applied), outcome
        self.batches += 1
        self.check_counts(outcome.counts, feed)
        if feed:
            self.feeds[outcome.version] = feed
        assert self.table.run(step) == AlreadyApplied(step.last)
        # A plan that was made before reaches farther: it holds a part of what is recorded.
        late = self.table.run(replace(step, last=step.last + 1))
        assert isinstance(late, Conflicted), late

    def grow(self, kind: DataType) -> None:
        """A column comes, and is NULL in the rows that are there."""
        name = f"new{len(self.table.shape.schema)}"
        self.table.add_columns(Column(name, kind))
        self.model.rows = [(*row, None) for row in self.model.rows]
        # To a reader of the feed the rows of before have it too.
        self.feeds = {
            version: Counter({(how, (*row, None)): n for (how, row), n in feed.items()})
            for version, feed in self.feeds.items()
        }

    def alter(self, data: st.DataObject) -> None:
        """Columns get what others had, or one value in all rows; once, however often it is done."""
        columns = list(enumerate(self.table.shape.schema))
        free = [(n, c) for n, c in columns if c.name not in self.table.shape.key]
        copied, filled = dict[int, int](), dict[int, Any]()
        for n, column in free:
            others = [m for m, other in free if other.type == column.type and m != n]
            match data.draw(st.sampled_from(["", "copy", "fill"])):
                case "copy" if others:
                    copied[n] = data.draw(st.sampled_from(others))
                case "fill":
                    filled[n] = data.draw(st.sampled_from(VALUES[column.type.name]))
        names = self.table.shape.schema.names
        step = AlterColumns(
            self.table.table,
            self.table.path,
            self.table.recorded + 1,
            {names[n]: names[m] for n, m in copied.items()},
            one_row(self.table.shape, filled),
            {},
        )
        before = self.model.rows
        self.model.rows = [
            tuple(filled.get(n, row[copied.get(n, n)]) for n in range(len(row))) for row in before
        ]
        pairs = [(plain(a), plain(b)) for a, b in zip(before, self.model.rows, strict=True)]
        feed = Counter[tuple[str, Row]]()
        for old, new in pairs:
            if old != new:
                feed += Counter({("update_preimage", old): 1, ("update_postimage", new): 1})
        self.table.engine.alter_columns(step, lambda: None)
        version = self.table.engine.progress(self.table.path).version
        if feed:
            self.feeds[version] = feed
        self.table.engine.alter_columns(step, lambda: None)
        assert self.table.engine.progress(self.table.path).version == version

    def restart(self) -> None:
        self.table.engine = self.new_engine()

    def check_counts(self, counts: Counts, feed: Counter[tuple[str, Row]]) -> None:
        """What a batch says that it did is what the feed of the model says."""
        kinds = Counter(kind for kind, _row in feed.elements())
        assert counts.insert == kinds["insert"]
        assert counts.update == kinds["update_postimage"]
        assert counts.delete == kinds["delete"]

    def check(self) -> None:
        """Rows, feed and statistics are those of the model."""
        assert counted(self.table.rows()) == counted(self.model.rows)
        assert self.table.reader.feed(self.table.path) == self.feeds
        check_bounds(self.table.store.location(self.table.path))


def one_row(shape: Shape, values: Mapping[int, Any]) -> pa.RecordBatch | None:
    """The values of some columns of a table; None for none."""
    fields = list(shape.arrow([]).schema)
    columns = {fields[n].name: pa.array([value], fields[n].type) for n, value in values.items()}
    return pa.RecordBatch.from_pydict(columns) if columns else None


def live(
    data: st.DataObject, new_life: Callable[[Shape], Life], *, batches: int, rows: int = 6
) -> Life:
    """Draw and live a life of at most so many batches."""
    life = new_life(data.draw(st.sampled_from([*SHAPES.values(), KEYLESS])))
    for _ in range(data.draw(st.integers(1, batches))):
        event = data.draw(st.sampled_from(["", "", "grow", "compact", "restart", "alter"]))
        if event == "alter" and life.alters:
            life.alter(data)
        elif event == "grow":
            life.grow(data.draw(st.sampled_from(NEW)))
        elif event == "compact":
            life.table.compact()
        elif event == "restart":
            life.restart()
        life.land(data.draw(landings_of(life.table.shape, life.model, rows=rows)))
    life.check()
    return life


def live_many(new_life: Callable[[Shape], Life], end: Callable[[], None], *, batches: int) -> int:
    """Live lives, others each time, until they have at least so many batches.

    end: is called after each life. Returns how many batches they had.
    """
    applied = 0

    @settings(
        max_examples=5,
        derandomize=False,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(data=st.data())
    def lives(data: st.DataObject) -> None:
        nonlocal applied
        applied += live(data, new_life, batches=40).batches
        end()

    while applied < batches:
        lives()
    return applied
