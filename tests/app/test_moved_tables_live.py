"""Tables that get a key, and go from one publication of ours to the other."""

from __future__ import annotations

import pytest

from mirrorlake.capture.backfill.jobs import BackfillRecords
from mirrorlake.capture.records.records import Records
from mirrorlake.root import LANDING
from mirrorlake.sources.postgresql.recognition.recognition import PUT_BACK
from tests.app.evolving_database import EvolvingDatabase

pytestmark = [pytest.mark.postgres, pytest.mark.full]


def test_changes_between_the_key_and_the_move_are_not_lost(evolving: EvolvingDatabase) -> None:
    """A row tells of the key, and the table is read again, before capture has moved the table to
    the publication that has updates."""
    evolving.begin("create table apples (id int not null, a text); insert into apples values (1)")
    jobs = BackfillRecords(Records(evolving.store, LANDING))
    with evolving.capturing() as capture:
        evolving.run("alter table apples add primary key (id); insert into apples values (2, 'b')")
        while not any(job.state.is_over for job in jobs.jobs()):
            capture.step(0.2)
        evolving.run("update apples set a = 'not published' where id = 1")
        capture.once()
    evolving.apply()
    evolving.check("apples")
    evolving.run("update apples set a = 'published' where id = 2")
    evolving.capture()
    evolving.apply()
    evolving.check("apples")
    (found,) = evolving.read_again()  # the later one
    assert PUT_BACK in found.reason
