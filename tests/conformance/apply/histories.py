"""Random histories, applied to many tables at once, beside the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from mirrorlake.mirror.engine import Applied
from tests.conformance.mirrored import Feeds, Mirrored
from tests.delta.statistics_check import check_bounds
from tests.histories import Landing, counted


def apply_together(
    tables: Sequence[Mirrored], histories: Sequence[Sequence[Landing]], *, compacting: bool = False
) -> None:
    """Apply a history to each table, the same batch of all in one call.

    compacting: between the batches files are compacted, where there is a need.
    The rows at the end, and the feed of each version, must be those of the model; what the log says
    of files must bound their rows.
    """
    models = [table.shape.table() for table in tables]
    feeds: list[Feeds] = [{} for _ in tables]
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
