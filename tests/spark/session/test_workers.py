"""Executors that are not what tasks need are refused before the first batch."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PythonException

from mirrorlake.errors import SparkUnavailable
from mirrorlake.spark.session import workers

HERE = workers.versions()


class Executors:
    """The context of a session whose executors answer so, one after another."""

    def __init__(
        self, *answers: Any, master: str = "spark://there:7077", python: str = sys.executable
    ) -> None:
        self.master, self.pythonExec, self._answers = master, python, answers
        self.defaultParallelism = len(answers)

    def parallelize(self, tasks: Sequence[int], slots: int) -> Executors:
        assert len(tasks) == slots == len(self._answers)
        return self

    def map(self, _function: Callable[[int], Any]) -> Executors:
        return self

    def collect(self) -> list[Any]:
        if isinstance(self._answers[0], Exception):
            raise self._answers[0]
        return list(self._answers)


def check(executors: Executors) -> None:
    workers.check(SimpleNamespace(sparkContext=executors))  # type: ignore[arg-type]


def test_executors_that_are_as_the_driver_will_do() -> None:
    check(Executors(HERE, dict(HERE)))


def test_a_library_of_another_release_is_named() -> None:
    with pytest.raises(SparkUnavailable, match=r"duckdb is 0\.1, not .* spark.pyspark.python"):
        check(Executors(HERE, {**HERE, "duckdb": "0.1"}))


def test_executors_on_which_nothing_runs_are_refused_with_the_reason() -> None:
    said = "Traceback:\n  somewhere\nModuleNotFoundError: No module named 'mirrorlake'\n"
    error = PythonException(message=said)
    with pytest.raises(SparkUnavailable, match="No module named 'mirrorlake'"):
        check(Executors(error))


def test_a_session_in_this_process_is_not_asked() -> None:
    check(Executors(RuntimeError("asked"), master="local[2]"))


def test_a_local_session_with_another_python_is_asked_and_the_setting_is_named() -> None:
    said = PythonException(message="ModuleNotFoundError: No module named 'mirrorlake'")
    with pytest.raises(SparkUnavailable, match=f"PYSPARK_PYTHON={sys.executable}"):
        check(Executors(said, master="local[2]", python="/usr/bin/python3"))
    check(Executors(HERE, master="local[2]", python="/usr/bin/python3"))


def test_versions_say_what_a_task_imports() -> None:
    assert set(HERE) == {"Python", "mirrorlake", *workers.LIBRARIES}
    assert "missing" not in HERE.values()


def test_what_a_process_has_imported_is_looked_at_for_garbage_once() -> None:
    script = """
import gc
from mirrorlake.spark.session import workers

assert workers.done(str, [6, 7], None) == ["6", "7"]
frozen = gc.get_freeze_count()
looked_at = len(gc.get_objects())
assert workers.done(str, [8], None) == ["8"]
print(frozen > 10_000, looked_at < 1_000, gc.get_freeze_count() == frozen)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "True", "True"]


def test_the_first_task_of_an_executor_looks_at_what_is_there() -> None:
    script = """
from mirrorlake.spark.session import workers

here = workers.versions()
needed = here | {"numpy": "1.0"}
try:
    workers.done(str, [6], needed)
except Exception as error:
    said = f"Job aborted: mirrorlake.errors.SparkUnavailable: {error} ..."
    refusal = workers.refusal(RuntimeError(said))
    print(refusal.what == workers.difference(needed, here), refusal.hint == workers.HINT)
print(workers.done(str, [6], here))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "True True\n['6']\n"
