"""Tables in timestamp mode, in simulated time, under one seed.

A publisher lands files under any names: at equal times, late, again under a name that was applied.
The mirror that reads them ends at any effect and at any named point, loses answers, is overtaken by
a rival, and its tables forget their old commits. After every step the batches that came to be must
be those that the rules of LZ-124 to LZ-127 ask for, and the tables must hold them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

from mirrorlake.app.loop.apply_loop import ApplyLoop
from mirrorlake.errors import LeaseHeld, LeaseLost
from mirrorlake.mirror.batch_limits import BatchLimits
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.mirror.steps import ApplyFiles
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.storage.lease import TERM
from tests.doubles.clock import SteppedClock
from tests.doubles.memory_store import Crash, Effect, File, Files, MemoryStore
from tests.landing.files import encoded
from tests.reference import Change, Row, Table, plain
from tests.sim.engine import Lake, LakeTable, ModelledEngine, replayed

ZONE = "Files/LandingZone/s.schema"
INSERT, UPSERT = 0, 4
STEPS = 40


@dataclass
class Publisher:
    """Lands files of one table. written: the rows of each content it ever wrote, by etag; removed:
    the names of files that it took away."""

    files: Files
    random: Random
    table: str
    upserts: bool
    written: dict[str, list[Row]] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    count: int = 0

    @property
    def folder(self) -> str:
        return f"{ZONE}/{self.table}"

    @property
    def key(self) -> tuple[int, ...]:
        return (0,) if self.upserts else ()

    def begin(self) -> None:
        metadata = {
            "keyColumns": ["k"] if self.upserts else [],
            "fileDetectionStrategy": "LastUpdateTimeFileDetection",
            "isUpsertDefaultRowMarker": self.upserts,
        }
        self.files.put(f"{self.folder}/_metadata.json", json.dumps(metadata).encode())

    def action(self) -> str:
        """Land a file, most of the time under a new name and now."""
        kind = self.random.choice(["new"] * 6 + ["late", "again", "gone", "hidden"])
        self.count += 1
        name = f"{self.random.getrandbits(32):08x}-ä{self.count}.parquet"
        landed = list(self.landed(self.files.content))
        if kind == "hidden":
            self._put(f"{self.folder}/_{name}")
            self._put(f"{self.folder}/{name}.temp")
        elif kind == "gone" and landed:
            path = self.random.choice(landed)
            self.removed.add(path.rpartition("/")[2])
            del self.files.content[path]
        elif kind == "again":
            self.rewrite([*landed, *self.landed(self.files.content, aside=True)])
        else:
            self._put(f"{self.folder}/{name}", late=kind == "late")
        return f"{self.table}: {kind} {name}"

    def rewrite(self, paths: Sequence[str]) -> None:
        """Write one of these files again, in the table folder."""
        if paths:
            name = self.random.choice(paths).rpartition("/")[2]
            self._put(f"{self.folder}/{name}")

    def landed(self, content: dict[str, File], *, aside: bool = False) -> dict[str, File]:
        """The data files that are in the table folder, or in its cleanup folder."""
        index = f"{self.folder}/_FilesReadyToDelete/" if aside else f"{self.folder}/"
        return {
            path: file
            for path, file in content.items()
            if path.startswith(index)
            and "/" not in (name := path.removeprefix(index))
            and not name.startswith("_")
            and name.endswith(".parquet")
        }

    def _put(self, path: str, *, late: bool = False) -> None:
        rows: list[Row] = [
            (self.random.randint(0, 4), f"{self.count}/{n}")
            for n in range(self.random.randint(0, 3))
        ]
        columns = {"k": [k for k, _v in rows], "v": [v for _k, v in rows]}
        if not rows:
            columns = {"k": [0], "v": [""]}
            rows = [(0, "")]
        self.files.put(path, encoded(columns))
        file = self.files.content[path]
        if late:
            time = file.modified - self.random.choice([1.0, 100.0])
            self.files.content[path] = File(file.content, time, file.etag)
        self.written[file.etag] = rows

    def changes(self, file: File) -> list[Change]:
        return [Change(UPSERT if self.upserts else INSERT, row) for row in self.written[file.etag]]


@dataclass
class DisturbedEngine(ModelledEngine):
    """before_read: called when the files of a batch were listed, and none was read."""

    before_read: Callable[[ApplyFiles], None] = lambda _step: None

    def _changes(self, step: ApplyFiles) -> list[Change]:
        self.before_read(step)
        return super()._changes(step)


class SimulationByTime:
    """One run. `trace` says what happened, for a person who looks at a failing seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.clock = SteppedClock()
        self.files = Files(self.clock)
        self.lake = Lake()
        self.trace: list[str] = []
        self.publishers = [
            Publisher(self.files, self.random, "events", upserts=False),
            Publisher(self.files, self.random, "orders", upserts=True),
        ]
        self.models = {p.table: Table(p.key) for p in self.publishers}
        self.limit = self.random.choice([1, 2, 100])
        self.crashes = 0
        self._seen = {p.table: 0 for p in self.publishers}
        self._loop: ApplyLoop | None = None
        self._processes = 0
        self._quiet = False
        self._is_disturbed = False  # at most one thing happens in a step that nobody foresaw

    def run(self) -> None:
        for publisher in self.publishers:
            publisher.begin()
        for _ in range(STEPS):
            action = self.random.choice([self._publish, self._publish, self._apply, self._wait])
            action()
        self.make_durable()
        self._check_all()

    def table(self, publisher: Publisher) -> LakeTable:
        return self.lake.tables[f"Tables/s/{publisher.table}"]

    # -- what happens ---------------------------------------------------------------------------

    def _publish(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            self.trace.append(self.random.choice(self.publishers).action())

    def _wait(self) -> None:
        self.clock.advance(self.random.choice([0.1, 5.0, 5.0, 3e5]))

    def _apply(self) -> None:
        before = dict(self.files.content)
        self._is_disturbed = False
        try:
            if self._loop is None:
                loop = self.new_loop()
                loop.open()
                self._loop = loop
            self._loop.cycle(None)
            if not self._loop.report.errors:
                self._forget()
        except Crash as crash:
            self.crashes += 1
            self.trace.append(f"died: {crash}")
            self._loop = None
            self.clock.advance(TERM.total_seconds() + 1)
        except LeaseHeld:
            self.clock.advance(TERM.total_seconds() + 1)
        except LeaseLost:
            self._loop = None
        self._check_batches(before)

    def _forget(self) -> None:
        """The log of a table lets go of commits that are old: of all but the last."""
        for table in self.lake.tables.values():
            if self.random.random() < 0.3:
                table.forgotten = max(len(table.named) - 1, 0)

    def new_loop(self, *, rivals: bool = True) -> ApplyLoop:
        store = self._store()
        engine = DisturbedEngine(
            self.lake,
            store,
            self.random,
            self._reached(),
            between=self._rival if rivals else lambda: None,
            before_read=self._disturb,
        )
        self._processes += 1
        return ApplyLoop(
            store,
            engine,
            MirrorSettings(limits=BatchLimits(files=self.limit), cleanup_seconds=1.0),
            self.clock,
            reached=self._reached(),
            holder=f"process {self._processes}",
            new_generation=lambda: str(UUID(int=self.random.getrandbits(128))),
        )

    def _rival(self) -> None:
        if self._quiet or self._is_disturbed or self.random.random() < 0.9:
            return
        self.clock.advance(TERM.total_seconds() + 1)
        self._is_disturbed = True
        rival = self.new_loop(rivals=False)
        rival.open()
        self.trace.append("a second mirror takes over")
        rival.cycle(None)

    def _disturb(self, step: ApplyFiles) -> None:
        """A file is written again after it was listed, so that what is read is not what was."""
        if not (self._quiet or self._is_disturbed) and self.random.random() < 0.1:
            self._is_disturbed = True
            (publisher,) = [p for p in self.publishers if p.table == step.table.name]
            publisher.rewrite([file.path for file in step.files])
            self.trace.append(f"{step.table}: a file changes under the hands")

    def _store(self) -> MemoryStore:
        left = self.random.randint(1, self.random.choice([10, 100, 1_000]))

        def hook(effect: Effect) -> None:
            nonlocal left
            left -= 1
            if left == 0 and not self._quiet:
                raise Crash(str(effect))

        return MemoryStore(self.clock, hook, files=self.files)

    def _reached(self) -> Callable[[CrashPoint], None]:
        share = self.random.choice([0.0, 0.02, 0.1])

        def reached(point: CrashPoint) -> None:
            if not self._quiet and self.random.random() < share:
                raise Crash(str(point))

        return reached

    def make_durable(self) -> None:
        """No more trouble: everything that is landed arrives."""
        self._quiet = True
        self.clock.advance(TERM.total_seconds() + 1)
        before = dict(self.files.content)
        loop = self.new_loop(rivals=False)
        loop.open()
        report = loop.once()
        loop.close()
        assert not report.errors, (report.errors, self.told())
        self._check_batches(before)

    # -- what must hold -------------------------------------------------------------------------

    def _check_batches(self, before: dict[str, File]) -> None:
        """The batches since the last look are, one after another, what was landed and not applied
        in the order of (time, path), and what their files held is what is applied."""
        for publisher in self.publishers:
            if f"Tables/s/{publisher.table}" not in self.lake.tables:
                continue
            table = self.table(publisher)
            for batch in table.named[self._seen[publisher.table] :]:
                applied = {name for old in table.named[: batch.number - 1] for name in old.names}
                waiting = [
                    (file.modified, path)
                    for path, file in publisher.landed(before).items()
                    if path.rpartition("/")[2] not in applied
                ]
                expected = [path for _time, path in sorted(waiting)][: self.limit]
                assert [f"{publisher.folder}/{n}" for n in batch.names] == expected, self.told()
                changes = [c for path in expected for c in publisher.changes(before[path])]
                self.models[publisher.table].apply(changes)
            self._seen[publisher.table] = len(table.named)
            rows = Counter(self.models[publisher.table].rows)
            assert Counter(table.table.rows) == rows, self.told()
            last = table.named[-1].names[-1] if table.named else ""
            present = f"{publisher.folder}/{last}" in publisher.landed(self.files.content)
            assert present or not last or last in publisher.removed, self.told()
            aside = publisher.landed(self.files.content, aside=True)
            assert {path.rpartition("/")[2] for path in aside} <= self._recorded(publisher)

    def _recorded(self, publisher: Publisher) -> set[str]:
        """The names that the side record of a table holds."""
        index = f"Files/Mirrorlake/processed/Tables/s/{publisher.table}/"
        segments = [f.content for path, f in self.files.content.items() if path.startswith(index)]
        return {name for content in segments for name in json.loads(content)["names"]}

    def _check_all(self) -> None:
        for publisher in self.publishers:
            if not publisher.landed(self.files.content):
                continue
            table = self.table(publisher)
            names = [name for batch in table.named for name in batch.names]
            assert len(names) == len(set(names)), self.told()
            assert [batch.number for batch in table.named] == list(range(1, len(table.named) + 1))
            left = {path.rpartition("/")[2] for path in publisher.landed(self.files.content)}
            assert left <= {names[-1]}, self.told()  # all others went aside, and never the last
            assert replayed(table) == Counter(map(plain, table.table.rows)), self.told()

    def told(self) -> str:
        return "\n".join(self.trace)
