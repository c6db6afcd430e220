"""The engine on a Spark session."""

from __future__ import annotations

from mirrorlake.apply.committer import Committer
from mirrorlake.apply.engine import Engine
from mirrorlake.apply.stages.spread import SpreadSettings
from mirrorlake.mirror.settings import TableTemplate
from mirrorlake.mirror.strategy import StrategySetting
from mirrorlake.model.crash_points import CrashHook, no_crash
from mirrorlake.spark.committer import SparkCommitter
from mirrorlake.spark.maintenance.optimize import SparkOptimizer
from mirrorlake.spark.merge.strategy import Merge
from mirrorlake.spark.runner import SparkRunner
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.spark.tables import SparkTables
from mirrorlake.storage.store import Store


def spark_engine(
    spark: Spark,
    store: Store,
    reached: CrashHook = no_crash,
    *,
    strategy: StrategySetting = StrategySetting.AUTO,
    platform: str = "",
    compaction: bool = True,
    spread: SpreadSettings | None = None,
    runner: SparkRunner | None = None,
    committer: Committer | None = None,
    template: TableTemplate = TableTemplate.FAST,
) -> Engine:
    """An engine whose tasks and commits use a session. template: of the tables that it creates; the
    other parameters are those of `Engine`."""
    session = spark.session
    runner = runner or SparkRunner(session)
    own_committer = SparkCommitter(session)
    direct = not platform and strategy is not StrategySetting.MERGE  # internals of a tested Delta
    return Engine(
        store,
        runner,
        committer or own_committer,
        SparkTables(
            session,
            store,
            committer=own_committer if direct else None,
            template=template,
            reached=reached,
        ),
        merge=Merge(runner, session, store, reached),
        optimizer=SparkOptimizer(session, runner),
        reached=reached,
        strategy=strategy,
        platform=platform,
        compaction=compaction,
        spread=spread,
    )
