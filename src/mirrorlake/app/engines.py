"""The engines that apply changes, and the Spark that they work in, which starts when it has to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mirrorlake.app import extras
from mirrorlake.app.deferred_engine import DeferredEngine
from mirrorlake.app.running.load_tasks import spark_runner
from mirrorlake.apply.engine import Engine
from mirrorlake.apply.in_process.committer import LogCommitter
from mirrorlake.apply.in_process.optimizer import NoOptimizer
from mirrorlake.apply.in_process.runner import InProcessRunner
from mirrorlake.apply.in_process.tables import LogTables
from mirrorlake.apply.runner import Runner
from mirrorlake.config import Project
from mirrorlake.mirror.strategy import StrategySetting
from mirrorlake.model.crash_points import CrashHook
from mirrorlake.storage.store import Store
from mirrorlake.storage.urls import StorageLocation

if TYPE_CHECKING:
    from mirrorlake.spark.session.spark_session import Spark

Say = Callable[[str], None]


class Engines:
    """The engines of one mirror. platform: why the strategy `direct` is not open, as far as it is
    known; "" if it is.

    given: a SparkSession to work in, which is neither changed nor stopped. tables: where Spark has
    to access tables for others in this process. say: called with what takes long.
    """

    def __init__(
        self,
        project: Project,
        store: Store,
        given: Any,
        tables: StorageLocation | None,
        reached: CrashHook,
        say: Say,
    ) -> None:
        self._project, self._store, self._given = project, store, given
        self._tables, self._reached, self._say = tables, reached, say
        self._spark: Spark | None = None
        self._engine: Engine | None = None
        self._tasks: Runner | None = None
        self.platform = ""

    def cancel(self) -> None:
        """End the Spark jobs of ours that are under way."""
        for one in (self._engine, self._tasks):
            if one is not None:
                one.cancel()

    def close(self) -> None:
        """Let go of Spark, if it is ours."""
        if self._spark is not None:
            self._spark.stop()
            self._spark = self._engine = self._tasks = None

    def engine(self) -> Engine:
        """The engine; starts Spark at the first call. Raises SparkUnavailable."""
        if self._engine is None:
            with extras.needed("applying changes"):
                from mirrorlake.spark.engine import spark_engine
                from mirrorlake.spark.trial import guard

            self._spark = self._started()
            settings = self._project.mirror
            if settings.strategy is not StrategySetting.MERGE:
                self.platform = guard.closed(self._spark, self._project.tables_elsewhere)
            self._engine = spark_engine(
                self._spark,
                self._store,
                self._reached,
                strategy=settings.strategy,
                platform=self.platform,
                compaction=settings.compaction,
                template=settings.template,
            )
        return self._engine

    def deferred(self) -> DeferredEngine:
        """An engine that starts Spark when it writes. Raises SparkUnavailable."""
        with extras.needed("applying changes"):
            self.look_at_platform()
        reading = Engine(
            self._store,
            InProcessRunner(),
            LogCommitter(),
            LogTables(self._store),
            optimizer=NoOptimizer(),
            strategy=self._project.mirror.strategy,
            platform=self.platform,
        )
        return DeferredEngine(self._engine or reading, self.engine)

    def look_at_platform(self) -> None:
        """Find what is known of `platform` without Spark. Raises SparkUnavailable."""
        from mirrorlake.spark.session import jars
        from mirrorlake.spark.trial import record as trials

        self.platform = self.platform or jars.untested() or trials.failure()
        if self._project.tables_elsewhere is not None and not jars.is_tested():
            self.platform = self.platform or trials.failure(trials.ON_OBJECTS)

    def session(self) -> Any:
        """The SparkSession of the engine; starts Spark at the first call."""
        self.engine()
        return self._spark.session if self._spark else None

    def has_tasks(self) -> bool:
        """Whether the tasks of event files run on executors."""
        if self._given is not None:
            return hasattr(self._given, "_jsparkSession")  # Spark Connect has no tasks
        return self._project.spark.is_cluster

    def tasks(self) -> Runner:
        """Runs the tasks of event files, which alone access the tables; starts Spark at the first
        call."""
        if self._tasks is None:
            with extras.needed("applying events on a cluster"):
                from mirrorlake.spark.session.spark_session import Spark

                is_given = self._given is not None
                spark = Spark.for_tasks(self._given) if is_given else self._started()
            self._spark, self._tasks = spark, spark_runner(lambda: spark.session)
        return self._tasks

    def _started(self) -> Spark:
        """The Spark to work in."""
        from mirrorlake.spark.session.spark_session import Spark

        if self._given is not None:
            return Spark.given(self._given, self._project.tables_elsewhere)
        self._say("Starting Spark")
        return Spark.start(self._project.spark, self._say, self._tables)
