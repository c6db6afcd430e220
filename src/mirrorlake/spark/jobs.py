"""Work on the executors: one Spark job for many tasks, to be ended without touching others."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from pyspark.sql import SparkSession

from mirrorlake.spark import task


class Jobs:
    """Runs tasks in a session, under a tag of their own."""

    def __init__(self, session: SparkSession) -> None:
        self._context = session.sparkContext
        self._tag = f"mirrorlake-{uuid.uuid4().hex[:12]}"

    @property
    def cores(self) -> int:
        """How many tasks run at once."""
        return self._context.defaultParallelism

    def run(self, specs: Sequence[task.TaskSpec | task.CompactSpec]) -> list[task.TaskResult]:
        """One job, a task per specification; results in their order."""
        if not specs:
            return []
        self._context.addJobTag(self._tag)
        try:
            results: list[task.TaskResult] = (
                self._context.parallelize(specs, len(specs)).map(task.run).collect()
            )
        finally:
            self._context.removeJobTag(self._tag)
        return results

    def cancel(self) -> None:
        """End our own jobs, and no others of the session."""
        self._context.cancelJobsWithTag(self._tag)
