"""Sessions of threads: what one is set to is known to no other."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from mirrorlake.spark.merge.statements import APPLICATION_ID
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.spark.session.thread_sessions import Sessions

pytestmark = pytest.mark.spark


@pytest.mark.clause("CF-152")
def test_each_thread_has_settings_of_its_own(spark: Spark) -> None:
    sessions, both = Sessions(spark.session), Barrier(2)

    def work(name: str) -> str | None:
        with sessions.active() as session:
            session.conf.set(APPLICATION_ID, name)
            both.wait(timeout=60)
            found = session.conf.get(APPLICATION_ID)
            session.conf.unset(APPLICATION_ID)
            return found

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(work, ["one", "two"])) == ["one", "two"]
    assert spark.session.conf.get(APPLICATION_ID, None) is None
