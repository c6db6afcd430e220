"""The contract of `mirror/engine.py` as a suite that every engine passes.

A subclass supplies the fixtures `new_engine`, which makes an engine on the tables of `store`, and
`reader`, which reads them by other means.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from mirrorlake.mirror.engine import Applied, MirrorEngine
from mirrorlake.model import types
from mirrorlake.storage.local import LocalStore
from tests.conformance.apply_by_time import ByTimeContract
from tests.conformance.apply_columns import ColumnContract
from tests.conformance.apply_commits import CommitContract
from tests.conformance.apply_demands import DemandContract
from tests.conformance.apply_examples import ExampleContract
from tests.conformance.apply_files import CompactionContract
from tests.conformance.apply_rows import RowContract
from tests.conformance.apply_tables import TableContract
from tests.conformance.mirrored import Mirrored, Reader
from tests.delta.statistics_check import check_bounds
from tests.histories import Landing, Shape, counted
from tests.reference import Row

Feed = Counter[tuple[str, Row]]
ORDERS = Shape.of(["id"], id=types.LONG, name=types.STRING, note=types.STRING)


class ApplyContract(
    RowContract,
    ColumnContract,
    CommitContract,
    TableContract,
    CompactionContract,
    DemandContract,
    ExampleContract,
    ByTimeContract,
):
    """Every engine passes these."""

    @pytest.fixture
    def engine(self, new_engine: Callable[[], MirrorEngine]) -> MirrorEngine:
        return new_engine()

    @pytest.fixture
    def make(
        self, engine: MirrorEngine, store: LocalStore, reader: Reader
    ) -> Callable[..., Mirrored]:
        """Makes a table of a shape, at a path."""

        def make(shape: Shape, path: str = "Tables/orders") -> Mirrored:
            return Mirrored(engine, store, reader, shape, path).create()

        return make

    @pytest.fixture
    def orders(self, make: Callable[..., Mirrored]) -> Mirrored:
        """A table with the columns id, name and note, and the key id."""
        return make(ORDERS)


def play(
    tables: Sequence[Mirrored], histories: Sequence[Sequence[Landing]], *, compacting: bool = False
) -> None:
    """Apply a history to each table, the same batch of all in one call.

    compacting: between the batches files are compacted, where there is a need.
    The rows at the end, and the feed of each version, must be those of the model; what the log says
    of files must bound their rows.
    """
    models = [table.shape.table() for table in tables]
    feeds: list[dict[int, Feed]] = [{} for _ in tables]
    for number in range(max(map(len, histories))):
        busy = [index for index, history in enumerate(histories) if number < len(history)]
        steps = [tables[index].step_of(histories[index][number]) for index in busy]
        for index, outcome in zip(busy, tables[0].engine.apply(steps, lambda: None), strict=True):
            assert isinstance(outcome, Applied), outcome
            landing = histories[index][number]
            feed = models[index].truncate() if landing.truncate else Counter()
            feed += models[index].apply(landing.changes)
            tables[index].recorded += landing.truncate + len(landing.files)
            if feed:
                feeds[index][outcome.version] = feed
            if compacting:
                tables[index].compact()
    for table, model, feed in zip(tables, models, feeds, strict=True):
        assert counted(table.rows()) == counted(model.rows)
        assert table.reader.feed(table.path) == feed
        check_bounds(table.store.location(table.path))
