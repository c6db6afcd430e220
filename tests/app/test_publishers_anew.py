"""Whatever a publisher does with its folder, and wherever the mirror dies: the table is the folder.

Random acts of a publisher, between cycles of a mirror that is killed at random points. At the end
the table has each row of the folder's present files once, or is gone with the folder.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mirrorlake.model.crash_points import CrashPoint
from tests.app.operated import Operated
from tests.doubles.memory_store import Crash
from tests.profiles import tries

POINTS = [
    CrashPoint.PROCESSED_DISCARDED,
    CrashPoint.TABLE_CREATED,
    CrashPoint.BATCH_WRITTEN,
    CrashPoint.COMMIT_BEGUN,
    CrashPoint.COMMITTED,
    CrashPoint.COMMIT_DURABLE,
    CrashPoint.CLEANUP_MOVED_ONE,
    CrashPoint.CLEANUP_DONE,
    CrashPoint.TABLE_DROPPED,
]

texts = st.sampled_from(["a", "b"])
acts = st.one_of(
    st.tuples(st.just("land"), texts),
    st.tuples(st.just("recreate"), st.lists(texts, min_size=1, max_size=4).map("".join)),
    st.tuples(st.just("recreate_files"), st.lists(texts, min_size=1, max_size=4).map("".join)),
    st.tuples(st.just("describe"), st.just("")),
    st.tuples(st.just("delete"), st.just("")),
    st.tuples(st.just("wait"), st.just("")),
    st.tuples(st.just("cycle"), st.just("")),
    st.tuples(st.just("die"), st.sampled_from(POINTS)),
)


class Story:
    """One run. texts: of the files of the folder since it was last made; None without a folder."""

    def __init__(self, root: Path) -> None:
        self.mirror = Operated(root)
        self.texts: list[str] | None = None
        self._time = 1_000_000

    def play(self, action: str, argument: str) -> None:
        getattr(self, action)(argument)

    # -- the publisher ------------------------------------------------------------------------

    def land(self, text: str) -> None:
        if self.texts is None:
            self._describe()
            self.texts = []
        self.texts.append(text)
        self._stamp(self.mirror.land("t", len(self.texts), text))

    def recreate(self, texts: str) -> None:
        self.delete("")
        for text in texts:
            self.land(text)

    def recreate_files(self, texts: str) -> None:
        """All files are removed and written again; the cleanup folder stays."""
        folder = self.mirror.zone.folder("t")
        for path in folder.glob("*.*"):
            path.unlink()
        self.texts = None
        for text in texts:
            self.land(text)

    def describe(self, _argument: str) -> None:
        if self.texts is not None:
            self._describe()

    def delete(self, _argument: str) -> None:
        shutil.rmtree(self.mirror.zone.folder("t"), ignore_errors=True)
        self.texts = None

    # -- the mirror ---------------------------------------------------------------------------

    def wait(self, _argument: str) -> None:
        self.mirror.clock.advance(30)

    def cycle(self, _argument: str) -> None:
        with self.mirror.running() as loop:
            assert not loop.once().errors

    def die(self, point: str) -> None:
        loop = self.mirror.loop(_killed_at(CrashPoint(point)))
        loop.open()
        try:
            loop.once()
        except Crash:
            self.mirror.clock.advance(31)  # its lease ends
        else:
            loop.close()

    def make_durable(self) -> None:
        for _ in range(5):
            self.cycle("")
            self.wait("")

    def _describe(self) -> None:
        path = self.mirror.zone.folder("t") / "_metadata.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"keyColumns": ["id"]}')
        self._stamp(path)

    def _stamp(self, path: Path) -> None:
        """A time of its own, as files have that are not written within one tick."""
        self._time += 1
        os.utime(path, (self._time, self._time))


def _killed_at(point: CrashPoint) -> Callable[[CrashPoint], None]:
    def reached(point: CrashPoint) -> None:
        if reached is point:
            raise Crash(str(point))

    return reached


@pytest.mark.full
@pytest.mark.clause("LZ-231", "LZ-232", "LZ-238", "LZ-326")
@settings(max_examples=tries(60))
@given(st.lists(acts, min_size=1, max_size=14))
@example([("land", "a"), ("die", "apply.table.created"), ("delete", "")])
@example([("recreate", "aa"), ("cycle", ""), ("recreate", "ab"), ("cycle", "")])
@example([("recreate", "aba"), ("cycle", ""), ("recreate", "aaa"), ("cycle", "")])
@example([("recreate", "aab"), ("cycle", ""), ("recreate_files", "a"), ("die", "apply.committed")])
@example([("recreate", "a"), ("cycle", ""), ("delete", ""), ("cycle", ""), ("land", "b")])
def test_the_table_is_the_folder(history: list[tuple[str, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        story = Story(Path(folder) / "root")
        (story.mirror.zone.folder("other")).mkdir(parents=True)
        for action, argument in history:
            story.play(action, argument)
        story.make_durable()
        rows = None if story.texts is None else list(enumerate(story.texts, start=1))
        assert story.mirror.rows("t") == rows
