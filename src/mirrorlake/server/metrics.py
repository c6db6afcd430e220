"""Metrics for Prometheus: per stream and per object, absent where unknown (ST-302, ST-306)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from mirrorlake.app.running.batches import ServiceBatches
from mirrorlake.app.status.table_status import TableStatus
from mirrorlake.app.streams.service import Service
from mirrorlake.app.streams.supervisor import Work
from mirrorlake.capture.events.state import BatchTimes, WrittenEvents
from mirrorlake.control.states import StreamState

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
STATE = "mirrorlake_stream_state"
_STREAM, _OBJECT = ("stream",), ("stream", "object")


def exposition(service: Service) -> tuple[bytes, str]:
    """The metrics as text, and its content type."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_StreamCollector(service))
    return generate_latest(registry), CONTENT_TYPE


def names() -> list[str]:
    """Of all metrics, as Prometheus stores them."""
    families = [*_events([]), *_times([]), *_freshness([]), *_latencies(None, []), *_logs([])]
    totals = [f"{one.name}{'_total' if one.type == 'counter' else ''}" for one in families]
    return [STATE, *totals]


class _StreamCollector(Collector):
    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        states = GaugeMetricFamily(STATE, "1 for the state of a stream", labels=("stream", "state"))
        found = self._service.control.supervision.supervised()
        for stream in found:
            if not stream.is_deleted:
                for state in StreamState:
                    states.add_metric([str(stream.name), state.name], state is stream.state)
        yield states
        works = [work for work in self._service.supervisor.works() if work.status is not None]
        yield from _events(works)
        yield from _times(works)
        yield from _freshness(works)
        yield from _latencies(self._service.supervisor.batches, works)
        yield from _logs(works)


def _events(works: list[Work]) -> Iterator[Metric]:
    """What each object did, and its sum for the stream."""
    for kind, words, of_table, of_events in _COUNTED:
        of_stream = CounterMetricFamily(f"mirrorlake_stream_{kind}_count", words, labels=_STREAM)
        of_object = CounterMetricFamily(f"mirrorlake_object_{kind}_count", words, labels=_OBJECT)
        for work in works:
            name, tables = str(work.name), work.status.tables if work.status else []
            if _writes_events(work):
                counts = {table: of_events(one) for table, one in work.said.written.items()}
            else:
                counts = {table.table: of_table(table) for table in tables}
            for table, count in counts.items():
                of_object.add_metric([name, table], count)
            dead = work.status.dead_events if work.status and kind == "unsupported_event" else 0
            of_stream.add_metric([name], sum(counts.values()) + dead)
        yield from (of_stream, of_object)


def _writes_events(work: Work) -> bool:
    return work.project is not None and not work.project.lands


def _event_times(works: Iterable[Work]) -> Iterator[tuple[list[str], BatchTimes]]:
    """The labels of the objects of streams to event files, and the times of their last batches."""
    for work in filter(_writes_events, works):
        for table, written in work.said.written.items():
            if written.last is not None:
                yield [str(work.name), table], written.last


def _missed(table: TableStatus) -> int:
    """Updates and deletes that the source has counted but not logged."""
    found = table.append_only
    return found.updates + found.deletes if found else 0


_COUNTED: tuple[tuple[str, str, Callable[[TableStatus], int], Callable[[WrittenEvents], int]], ...]
_COUNTED = (
    (
        "event",
        "Events applied, or written as event files",
        lambda table: table.total.rows,
        lambda written: written.events,
    ),
    (
        "bytes",
        "Bytes applied, or written as event files",
        lambda table: table.total.bytes,
        lambda written: written.bytes,
    ),
    (
        "unsupported_event",
        "Changes that could not be captured or applied",
        _missed,
        lambda written: written.unsupported,
    ),
)
"""Name, words, and how it is counted: of a table, and of event files of a table."""


def _times(works: list[Work]) -> Iterator[Metric]:
    age = GaugeMetricFamily(
        "mirrorlake_object_last_event_age_seconds",
        "Age of the last change that is applied or written, by the clock of the source",
        labels=_OBJECT,
    )
    lag = GaugeMetricFamily(
        "mirrorlake_object_lag_seconds",
        "Age of the oldest change that is landed and not applied, 0 when there is none",
        labels=_OBJECT,
    )
    failed = GaugeMetricFamily(
        "mirrorlake_stream_failed_objects", "Objects that stand still", labels=_STREAM
    )
    differing = GaugeMetricFamily(
        "mirrorlake_stream_differing_objects",
        "Objects that are known to differ from their source",
        labels=_STREAM,
    )
    now = datetime.now(UTC)
    for work in works:
        tables = work.status.tables if work.status else []
        differing.add_metric([str(work.name)], sum(table.differs for table in tables))
        failed.add_metric([str(work.name)], sum(table.error is not None for table in tables))
        for table in tables:
            labels = [str(work.name), table.table]
            if table.source_time is not None:
                age.add_metric(labels, max((now - table.source_time).total_seconds(), 0.0))
            if table.lag_seconds is not None:
                lag.add_metric(labels, table.lag_seconds)
    for labels, last in _event_times(works):
        age.add_metric(labels, max(now.timestamp() - last.committed / 1000, 0.0))
    yield from (age, lag, failed, differing)


def _freshness(works: list[Work]) -> Iterator[Metric]:
    words = "From the commit of the oldest change that waits to its landing or reading, 0 for none"
    of_stream = GaugeMetricFamily("mirrorlake_stream_freshness_seconds", words, labels=_STREAM)
    of_object = GaugeMetricFamily("mirrorlake_object_freshness_seconds", words, labels=_OBJECT)
    for work in works:
        known = {
            table.table: table.freshness_seconds
            for table in (work.status.tables if work.status else [])
            if table.freshness_seconds is not None
        }
        if _writes_events(work):
            known = _of_events(work)
        if known:
            of_stream.add_metric([str(work.name)], max(known.values()))
        for table, seconds in known.items():
            of_object.add_metric([str(work.name), table], seconds)
    yield from (of_stream, of_object)


def _of_events(work: Work) -> dict[str, float]:
    """Freshness of objects that become event files; what a capture that ended had read is read
    again."""
    if not work.capture.is_running:
        return {}
    return dict.fromkeys(work.said.delivered, 0.0) | dict(work.said.waiting)


def _latencies(service: ServiceBatches | None, works: list[Work]) -> Iterator[Metric]:
    for kind, words, histograms in (
        (
            "system",
            "From landing to the commit of the table, or from reading to the event files",
            service.system() if service else {},
        ),
        (
            "total",
            "From the source's commit to the table's, or to the event files",
            service.total() if service else {},
        ),
    ):
        of_stream = HistogramMetricFamily(
            f"mirrorlake_stream_{kind}_latency_seconds",
            f"{words}, of the last change of each batch",
            labels=_STREAM,
        )
        for name, (buckets, total) in histograms.items():
            of_stream.add_metric([name], buckets, total)
        for work in filter(_writes_events, works):
            histogram = getattr(work.said.latencies, kind)
            if any(histogram.counts):
                of_stream.add_metric([str(work.name)], histogram.cumulative(), histogram.sum)
        of_object = GaugeMetricFamily(
            f"mirrorlake_object_{kind}_latency_seconds",
            f"{words}, of the last change of the last batch",
            labels=_OBJECT,
        )
        for one in service.last() if service else ():
            seconds = one.system if kind == "system" else one.total
            if seconds is not None:
                of_object.add_metric([one.mirror, one.table], seconds)
        for labels, last in _event_times(works):
            since = last.read if kind == "system" else last.committed
            of_object.add_metric(labels, max(last.written - since, 0) / 1000)
        yield from (of_stream, of_object)


def _logs(works: list[Work]) -> Iterator[Metric]:
    retained = GaugeMetricFamily(
        "mirrorlake_stream_slot_lag_bytes",
        "Log that the source keeps for the replication slot of a stream",
        labels=_STREAM,
    )
    for work in works:
        if work.capture.is_running and work.capture.reports.retained_bytes is not None:
            retained.add_metric([str(work.name)], work.capture.reports.retained_bytes)
    yield retained
