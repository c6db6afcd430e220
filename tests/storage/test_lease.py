"""The one right to write: held by one, renewed, taken over, given back."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.errors import LeaseHeld, LeaseLost
from mirrorlake.model.clock import WallClock
from mirrorlake.storage.lease import RENEW, TERM, Lease, holder_of
from mirrorlake.storage.local import LocalStore
from mirrorlake.storage.store import Store
from tests.conformance.store import names
from tests.doubles.clock import SteppedClock
from tests.doubles.lossy_store import LossyStore, first
from tests.doubles.memory_store import MemoryStore

PLACE = "Files/Mirrorlake/leases/mirror"
EXPIRED = TERM.total_seconds() + 1


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def memory(clock: SteppedClock) -> MemoryStore:
    return MemoryStore(clock)


def taken(store: Store, clock: SteppedClock, holder: str | None = None) -> Lease:
    lease = Lease(store, "mirror", clock, holder)
    lease.take()
    return lease


def epochs(store: Store) -> list[int]:
    return [int(name.removesuffix(".json")) for name in names(store, PLACE)]


def alter(store: Store, **facts: Any) -> None:
    """Make the newest lease that of somebody else."""
    path = f"{PLACE}/{names(store, PLACE)[-1]}"
    store.replace(path, json.dumps(json.loads(store.read(path)) | facts).encode())


class TestAcquire:
    def test_the_first_epoch_is_one(self, memory: MemoryStore, clock: SteppedClock) -> None:
        taken(memory, clock)
        assert epochs(memory) == [1]

    def test_a_held_lease_cannot_be_taken(self, memory: MemoryStore, clock: SteppedClock) -> None:
        taken(memory, clock)
        with pytest.raises(LeaseHeld, match=r"process \d+ on "):
            taken(memory, clock)

    def test_roles_are_independent(self, memory: MemoryStore, clock: SteppedClock) -> None:
        taken(memory, clock)
        Lease(memory, "capture", clock).take()

    def test_streams_have_leases_of_their_own(
        self, memory: MemoryStore, clock: SteppedClock
    ) -> None:
        Lease(memory, "capture", clock, stream_id="crm").take()
        assert holder_of(memory, "capture", clock.now()) is None
        assert holder_of(memory, "capture", clock.now(), "crm")
        Lease(memory, "capture", clock).take()
        with pytest.raises(LeaseHeld):
            Lease(memory, "capture", clock, stream_id="crm").take()

    def test_a_released_lease_is_free_at_once(
        self, memory: MemoryStore, clock: SteppedClock
    ) -> None:
        taken(memory, clock).release()
        taken(memory, clock).check()
        assert max(epochs(memory)) == 2

    def test_a_lease_can_be_taken_again_after_its_release(
        self, memory: MemoryStore, clock: SteppedClock
    ) -> None:
        lease = taken(memory, clock)
        lease.release()
        lease.take()
        lease.check()
        assert max(epochs(memory)) == 2

    def test_an_expired_lease_is_free(self, memory: MemoryStore, clock: SteppedClock) -> None:
        taken(memory, clock)
        clock.advance(TERM.total_seconds())
        with pytest.raises(LeaseHeld):
            taken(memory, clock)
        clock.advance(1)
        taken(memory, clock).check()

    def test_the_lease_of_a_dead_process_of_this_machine_is_free_at_once(
        self, memory: MemoryStore, clock: SteppedClock
    ) -> None:
        taken(memory, clock)
        ended = subprocess.Popen(["true"])
        ended.wait()
        alter(memory, pid=ended.pid)
        taken(memory, clock).check()

    def test_the_lease_of_a_killed_process_that_nobody_has_waited_for_is_free_at_once(
        self, tmp_path: Path
    ) -> None:
        """As in a container whose first process waits for no others."""
        program = (
            "import os, sys\n"
            "from pathlib import Path\n"
            "from mirrorlake.model.clock import WallClock\n"
            "from mirrorlake.storage.lease import Lease\n"
            "from mirrorlake.storage.local import LocalStore\n"
            "Path('/proc/self/comm').write_text('a) R (b')\n"
            "Lease(LocalStore(Path(sys.argv[1])), 'mirror', WallClock()).take()\n"
            "print('taken', flush=True)\n"
            "sys.stdin.read()\n"
        )
        command = [sys.executable, "-c", program, str(tmp_path)]
        pipe, store = subprocess.PIPE, LocalStore(tmp_path)
        with subprocess.Popen(command, stdin=pipe, stdout=pipe) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"taken\n"
            with pytest.raises(LeaseHeld, match=f"process {holder.pid} on "):
                Lease(store, "mirror", WallClock()).take()
            holder.kill()
            os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie
            lease = Lease(store, "mirror", WallClock())
            lease.take()
        assert lease.predecessor == f"process {holder.pid} on {socket.gethostname()}"

    def test_a_later_process_of_the_same_number_is_another(
        self, memory: MemoryStore, clock: SteppedClock
    ) -> None:
        taken(memory, clock)
        alter(memory, started="1")
        taken(memory, clock).check()

    def test_a_holder_on_another_machine_is_known_by_its_term_only(
        self, memory: MemoryStore, clock: SteppedClock
    ) -> None:
        taken(memory, clock)
        alter(memory, host="elsewhere", pid=2**22 + 1)
        with pytest.raises(LeaseHeld, match="elsewhere"):
            taken(memory, clock)

    def test_the_epoch_grows_and_old_ones_are_removed(
        self, memory: MemoryStore, clock: SteppedClock
    ) -> None:
        for _turn in range(10):
            taken(memory, clock).release()
        assert epochs(memory) == [9, 10]

    @pytest.mark.parametrize("kind", ["local", "memory"])
    def test_one_of_several_concurrent_processes_takes_the_lease(
        self, kind: str, memory: MemoryStore, store: LocalStore, clock: SteppedClock
    ) -> None:
        location: Store = memory if kind == "memory" else store
        racers = 6
        ready = threading.Barrier(racers)

        def race(_racer: int) -> bool:
            lease = Lease(location, "mirror", clock)
            ready.wait()
            try:
                lease.take()
            except LeaseHeld:
                return False
            lease.check()
            return True

        with ThreadPoolExecutor(racers) as pool:
            assert list(pool.map(race, range(racers))).count(True) == 1


class TestLostResponse:
    """The lease was made, and nobody was told; or it was not."""

    @pytest.mark.parametrize("is_done", [True, False])
    def test_the_same_holder_can_take_it_again(
        self, memory: MemoryStore, clock: SteppedClock, is_done: bool
    ) -> None:
        lease = Lease(LossyStore(memory, first("create"), is_done=is_done), "mirror", clock)
        with pytest.raises(TimeoutError):
            lease.take()
        lease.take()
        lease.check()
        assert epochs(memory) == [1]
        with pytest.raises(LeaseHeld):
            taken(memory, clock)

    def test_a_lease_that_we_created_is_ours(
        self, memory: MemoryStore, clock: SteppedClock
    ) -> None:
        """The storage's client tried again by itself, and was told that the name exists."""
        told = LossyStore(memory, first("create"), error=FileExistsError)
        lease = taken(told, clock)
        lease.check()
        assert epochs(memory) == [1]

    def test_a_lease_that_another_process_took_is_not_ours(
        self, memory: MemoryStore, clock: SteppedClock
    ) -> None:
        lease = Lease(LossyStore(memory, first("create")), "mirror", clock)
        with pytest.raises(TimeoutError):
            lease.take()
        clock.advance(EXPIRED)
        other = taken(memory, clock)
        with pytest.raises(LeaseHeld):
            lease.take()
        other.check()

    def test_a_lease_that_was_created_long_ago_is_renewed(
        self, memory: MemoryStore, clock: SteppedClock
    ) -> None:
        lease = Lease(LossyStore(memory, first("create")), "mirror", clock)
        with pytest.raises(TimeoutError):
            lease.take()
        clock.advance(EXPIRED)
        lease.take()
        lease.check()
        with pytest.raises(LeaseHeld):
            taken(memory, clock)

    def test_a_lease_is_held_though_an_older_one_cannot_be_removed(
        self, memory: MemoryStore, clock: SteppedClock
    ) -> None:
        for _turn in range(3):
            taken(memory, clock).release()
        taken(LossyStore(memory, first("delete"), is_done=False), clock).check()

    @pytest.mark.parametrize(
        "record",
        [
            b"",
            b"{",
            b"[]",
            b"null",
            b"{}",
            b'{"holder": 1, "host": "x", "renewed": "soon"}',
            b"\xff",
        ],
    )
    def test_an_unreadable_record_does_not_hold_the_lease(
        self, memory: MemoryStore, clock: SteppedClock, record: bytes
    ) -> None:
        memory.create(f"{PLACE}/{1:020}.json", record)
        assert holder_of(memory, "mirror", clock.now()) is None
        taken(memory, clock).check()
        assert max(epochs(memory)) == 2


class TestHolding:
    def test_a_held_lease_passes_the_check(self, memory: MemoryStore, clock: SteppedClock) -> None:
        lease = taken(memory, clock)
        for _round in range(20):
            clock.advance(TERM.total_seconds() / 4)
            lease.check()
        with pytest.raises(LeaseHeld):
            taken(memory, clock)

    def test_a_lease_is_renewed_only_when_it_is_due(
        self, memory: MemoryStore, clock: SteppedClock
    ) -> None:
        lease = taken(memory, clock)
        before = memory.list(PLACE)
        clock.advance(RENEW.total_seconds() - 1)
        lease.check()
        assert memory.list(PLACE) == before
        clock.advance(1)
        lease.check()
        assert memory.list(PLACE) != before

    def test_a_clock_that_is_set_back_renews_at_once(self, memory: MemoryStore) -> None:
        ahead, right = SteppedClock(), SteppedClock()
        ahead.advance(3600)
        lease = taken(memory, ahead)
        lease._clock = right
        lease.check()
        right.advance(EXPIRED)
        alter(memory, host="elsewhere")
        assert holder_of(memory, "mirror", right.now()) is None

    def test_the_error_mentions_a_holder_whose_clock_is_ahead(
        self, memory: MemoryStore, clock: SteppedClock
    ) -> None:
        ahead = SteppedClock()
        ahead.advance(86_400)
        taken(memory, ahead)
        alter(memory, host="elsewhere")
        with pytest.raises(LeaseHeld) as held:
            taken(memory, clock)
        assert "clocks" in held.value.hint
        assert "wait 30" not in held.value.hint

    def test_an_expired_holder_continues_if_no_other_process_took_over(
        self, memory: MemoryStore, clock: SteppedClock
    ) -> None:
        lease = taken(memory, clock)
        clock.advance(EXPIRED)
        lease.check()
        with pytest.raises(LeaseHeld):
            taken(memory, clock)

    def test_a_lease_that_was_taken_over_is_lost(
        self, memory: MemoryStore, clock: SteppedClock
    ) -> None:
        first = taken(memory, clock)
        clock.advance(EXPIRED)
        taken(memory, clock)
        with pytest.raises(LeaseLost, match="took over the lease"):
            first.check()

    def test_a_lease_that_was_taken_over_cannot_be_released(
        self, memory: MemoryStore, clock: SteppedClock
    ) -> None:
        first = taken(memory, clock)
        clock.advance(EXPIRED)
        second = taken(memory, clock)
        first.release()
        second.check()

    def test_a_released_lease_is_lost(self, memory: MemoryStore, clock: SteppedClock) -> None:
        lease = taken(memory, clock)
        lease.release()
        with pytest.raises(LeaseLost):
            lease.check()

    def test_a_lease_that_was_never_taken_is_lost(
        self, memory: MemoryStore, clock: SteppedClock
    ) -> None:
        with pytest.raises(LeaseLost):
            Lease(memory, "mirror", clock).check()

    def test_an_epoch_of_another_holder_is_lost(
        self, memory: MemoryStore, clock: SteppedClock
    ) -> None:
        lease = taken(memory, clock, "one")
        alter(memory, holder="other")
        with pytest.raises(LeaseLost):
            lease.check()


class TestHolderOf:
    def test_the_holder_is_named(self, memory: MemoryStore, clock: SteppedClock) -> None:
        taken(memory, clock)
        alter(memory, host="elsewhere", pid=7)
        assert holder_of(memory, "mirror", clock.now()) == "process 7 on elsewhere"

    def test_a_lease_that_was_never_taken_has_no_holder(
        self, memory: MemoryStore, clock: SteppedClock
    ) -> None:
        assert holder_of(memory, "mirror", clock.now()) is None

    def test_a_released_lease_has_no_holder(self, memory: MemoryStore, clock: SteppedClock) -> None:
        taken(memory, clock).release()
        assert holder_of(memory, "mirror", clock.now()) is None

    def test_an_expired_lease_has_no_holder(self, memory: MemoryStore, clock: SteppedClock) -> None:
        taken(memory, clock)
        clock.advance(EXPIRED)
        assert holder_of(memory, "mirror", clock.now()) is None

    def test_incomplete_files_are_not_leases(
        self, memory: MemoryStore, clock: SteppedClock
    ) -> None:
        taken(memory, clock)
        memory.create(f"{PLACE}/_6f1c.tmp", b"")
        assert holder_of(memory, "mirror", clock.now()) is not None


class TestWithdraw:
    def test_a_first_lease_that_is_withdrawn_leaves_no_file(
        self, memory: MemoryStore, clock: SteppedClock
    ) -> None:
        lease = taken(memory, clock)
        assert lease.withdraw()
        assert not memory.list(PLACE).files
        lease.release()  # there is nothing to release
        assert not memory.list(PLACE).files
        lease.take()
        lease.check()

    def test_a_lease_with_an_earlier_holder_is_not_withdrawn(
        self, memory: MemoryStore, clock: SteppedClock
    ) -> None:
        taken(memory, clock).release()
        lease = taken(memory, clock)
        assert not lease.withdraw()
        lease.check()

    def test_a_lease_that_another_has_taken_over_is_not_withdrawn(
        self, memory: MemoryStore, clock: SteppedClock
    ) -> None:
        late = taken(memory, clock)
        clock.advance(EXPIRED)
        owner = taken(memory, clock)
        assert not late.withdraw()
        owner.check()
