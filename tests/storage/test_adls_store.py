"""The store of Azure Data Lake Storage and OneLake, over the wire of the real client."""

from __future__ import annotations

import errno
import logging
import traceback
from collections.abc import Callable

import pytest

from mirrorlake.storage.adls import store as adls
from mirrorlake.storage.adls.files import AHEAD, BLOCK
from mirrorlake.storage.adls.store import AdlsStore
from mirrorlake.storage.adls.url import split
from mirrorlake.storage.store import Store, UnsafePath
from mirrorlake.storage.urls import open_file
from tests.conformance.store import FINAL, STAGED, StoreContract, entry_of, names, stage
from tests.doubles.dfs import DataLake, Fault, Seen
from tests.doubles.dfs.server import PAGE
from tests.doubles.dfs.tree import Conditions, Node, Refused
from tests.storage.azure_accounts import ROOT, Lake

ATTEMPTS = 4
NO_CONDITIONS = Conditions()
NO_ANSWER = [Fault.ANSWER_LOST, Fault.TIMED_OUT]


def is_rename(seen: Seen) -> bool:
    return seen.is_rename


class TestAdlsStore(StoreContract):
    @pytest.fixture
    def store(self, lake: Lake) -> Store:
        return lake.store


class TestOnTheWire:
    """What the service is asked for."""

    @pytest.mark.clause("LZ-139", "LZ-131")
    def test_a_file_is_published_by_a_rename_that_does_not_overwrite(self, lake: Lake) -> None:
        stage(lake.store, b"rows")
        lake.store.publish(STAGED, FINAL)
        (rename,) = [seen for seen in lake.writes() if seen.is_rename]
        assert (rename.method, rename.path) == ("PUT", f"{ROOT}/{FINAL}")
        assert rename.headers["x-ms-rename-source"] == f"/{lake.name}/{ROOT}/{STAGED}"
        assert rename.headers["if-none-match"] == "*"

    @pytest.mark.clause("LZ-133")
    def test_what_is_published_is_the_version_that_was_written(self, lake: Lake) -> None:
        stage(lake.store, b"rows")
        etag = entry_of(lake.store, "zone/t", "_stage-1").etag
        lake.store.publish(STAGED, FINAL)
        assert lake.writes()[-1].headers["x-ms-source-if-match"] == f'"{etag}"'

    @pytest.mark.clause("LZ-134")
    def test_no_request_of_a_publication_writes_to_the_final_name(self, lake: Lake) -> None:
        stage(lake.store, b"rows")
        lake.store.publish(STAGED, FINAL)
        others = [seen for seen in lake.writes() if seen.path == f"{ROOT}/{FINAL}"]
        assert [seen.is_rename for seen in others] == [True]

    def test_a_small_file_is_never_seen_empty(self, lake: Lake) -> None:
        lake.store.create("a/b", b"small")
        lake.store.replace("a/b", b"other")
        written = [seen for seen in lake.writes() if seen.path == f"{ROOT}/a/b"]
        conditions = [seen.headers.get("if-none-match") for seen in written if seen.is_rename]
        assert (len(written), conditions) == (2, ["*", None])
        assert written[1].headers["if-match"]

    def test_a_large_file_is_appended_in_blocks(self, lake: Lake) -> None:
        content = bytes(range(256)) * (BLOCK // 128) + b"end"
        with lake.store.stage(STAGED) as file:
            file.write(content[:100])
            file.write(content[100:])
        sizes = [len(seen.body) for seen in lake.writes() if seen.query.get("action") == "append"]
        assert (max(sizes) <= BLOCK, sum(sizes)) == (True, len(content))
        assert lake.store.read(STAGED) == content

    @pytest.mark.parametrize("name", ["%5Fx", "a b", "é?&#", "50%", "%2e%2e", "+", "a;b,c", "~'"])
    def test_names_reach_the_service_as_they_are(self, lake: Lake, name: str) -> None:
        stage(lake.store, b"rows", f"{name}/_{name}")
        lake.store.publish(f"{name}/_{name}", f"{name}/{name}")
        assert f"{ROOT}/{name}/{name}" in lake.tree.nodes
        assert lake.store.list("").folders == (name,)
        assert lake.store.read(f"{name}/{name}") == b"rows"

    def test_a_container_can_be_the_root(self, lake: Lake) -> None:
        store = AdlsStore(lake.store._container, "", "abfss://c@a.dfs.core.windows.net")
        stage(store, b"rows", "_1")
        store.publish("_1", "1")
        assert (names(store, ""), store.read("1")) == (["1"], b"rows")

    def test_a_file_is_published_into_a_folder_that_is_not_there_yet(self, lake: Lake) -> None:
        stage(lake.store, b"rows", "zone/_scratchPad/1")
        lake.store.publish("zone/_scratchPad/1", "zone/s.schema/t/1")
        assert lake.store.read("zone/s.schema/t/1") == b"rows"


@pytest.mark.parametrize("name", ["1.parquet", "a?b#c", "%5Fx", "a b"])
@pytest.mark.parametrize(
    "container", ["zone@acme.dfs.core.windows.net", "sales@onelake.dfs.fabric.microsoft.com"]
)
def test_a_file_is_opened_by_its_location(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, container: str, name: str
) -> None:
    monkeypatch.setattr(adls, "client_of", lambda *_others: lake.store._container)
    adls._container_of.cache_clear()
    lake.store.create(f"a/{name}", b"rows")
    _container, path = split(lake.store.location(f"a/{name}"))
    with open_file(f"abfss://{container}/{path}") as file:
        assert file.read() == b"rows"


class TestListing:
    def test_pages_are_joined(self, lake: Lake) -> None:
        expected = [f"{number:02}" for number in range(3 * PAGE + 1)]
        for name in expected:
            lake.tree.create(f"{ROOT}/a/{name}", NO_CONDITIONS, is_folder=False)
        assert names(lake.store, "a") == expected

    @pytest.mark.parametrize("lists_files", [True, False])
    def test_a_file_is_an_empty_folder(self, lake: Lake, lists_files: bool) -> None:
        lake.tree.lists_files = lists_files
        lake.store.create("a/a", b"x")
        listing = lake.store.list("a/a")
        assert (listing.files, listing.folders) == ((), ())

    def test_an_item_may_be_shown_under_another_name(self, lake: Lake) -> None:
        lake.tree.shown_as = (ROOT, "0d0c6f3e-0000-0000-0000-000000000000")
        lake.store.create("a/b/c", b"x")
        assert lake.store.list("a").folders == ("b",)
        assert names(lake.store, "a/b") == ["c"]

    def test_a_container_that_is_not_there_is_not_an_empty_one(self, lake: Lake) -> None:
        del lake.service.trees[lake.name]
        for look in (lake.store.list, lake.store.read, lake.store.delete_folder):
            with pytest.raises(OSError, match="NotFound") as caught:
                look("a")
            assert not isinstance(caught.value, FileNotFoundError)

    def test_times_and_etags_are_those_of_the_service(self, lake: Lake) -> None:
        lake.store.create("a/b", b"x")
        node, entry = lake.tree.nodes[f"{ROOT}/a/b"], entry_of(lake.store, "a", "b")
        assert (entry.modified, entry.etag) == (node.modified.timestamp(), node.etag)


class TestReading:
    CONTENT = bytes(range(256)) * (2 * AHEAD // 256) + b"end"

    @pytest.fixture
    def large(self, lake: Lake) -> Lake:
        lake.store.replace("a", self.CONTENT)
        lake.service.seen.clear()
        return lake

    def test_the_end_of_a_large_file_is_read_by_its_range(self, large: Lake) -> None:
        with large.store.open("a") as file:
            file.seek(-8, 2)
            assert file.read() == self.CONTENT[-8:]
        assert len(large.service.seen) == 2

    def test_a_large_file_is_read_in_large_pieces(self, large: Lake) -> None:
        with large.store.open("a") as file:
            assert b"".join(iter(lambda: file.read(1000), b"")) == self.CONTENT
        assert len(large.service.seen) <= 2 + len(self.CONTENT) // AHEAD

    def test_a_small_file_is_read_with_one_request(self, lake: Lake) -> None:
        lake.store.create("a", b"x" * 1000)
        lake.service.seen.clear()
        assert lake.store.read("a") == b"x" * 1000
        assert len(lake.service.seen) == 1

    def test_content_of_a_replaced_file_is_not_mixed(self, large: Lake) -> None:
        with large.store.open("a") as file:
            assert file.read(10) == self.CONTENT[:10]
            large.store.replace("a", b"2" * len(self.CONTENT))
            with pytest.raises(OSError, match="replaced"):
                file.read()

    def test_a_position_before_the_beginning_is_refused(self, large: Lake) -> None:
        with large.store.open("a") as file, pytest.raises(OSError, match="beginning"):
            file.seek(-1 - len(self.CONTENT), 2)

    def test_a_folder_is_not_a_file(self, lake: Lake) -> None:
        lake.store.create("a/b", b"x")
        with pytest.raises(FileNotFoundError):
            lake.store.read("a")


@pytest.fixture(params=NO_ANSWER, ids=lambda fault: fault.name)
def no_answer(request: pytest.FixtureRequest) -> Fault:
    return request.param


@pytest.fixture(params=["etag kept", "etag changed"])
def any_etag(request: pytest.FixtureRequest, lake: Lake) -> bool:
    """Whether a rename keeps the etag: Azure's does, and of OneLake nothing is written."""
    lake.tree.keeps_etags = request.param == "etag kept"
    return lake.tree.keeps_etags


@pytest.fixture(params=["source missing", "target exists"])
def any_refusal(request: pytest.FixtureRequest, lake: Lake) -> None:
    """What a rename is told when it is asked for again after it took effect."""
    lake.tree.target_first = request.param == "target exists"


@pytest.mark.full
@pytest.mark.usefixtures("any_etag", "any_refusal")
class TestLostResponse:
    """The effect is there, the client tries again, and is told that it cannot be done."""

    @pytest.mark.clause("LZ-135", "LZ-139")
    def test_of_a_publication(self, lake: Lake, no_answer: Fault) -> None:
        stage(lake.store, b"rows")
        lake.service.next(no_answer, is_rename)
        lake.store.publish(STAGED, FINAL)
        assert names(lake.store, "zone/t") == ["1"]
        assert lake.store.read(FINAL) == b"rows"

    @pytest.mark.clause("LZ-135")
    def test_of_a_publication_and_of_all_that_follows(self, lake: Lake, no_answer: Fault) -> None:
        stage(lake.store, b"rows")
        lake.service.next(no_answer, is_rename)
        lake.service.next(Fault.REQUEST_LOST, is_rename, ATTEMPTS - 1)
        lake.store.publish(STAGED, FINAL)
        assert lake.store.read(FINAL) == b"rows"

    @pytest.mark.clause("LZ-135")
    def test_of_a_publication_that_is_asked_for_again(self, lake: Lake, no_answer: Fault) -> None:
        stage(lake.store, b"rows")
        lake.service.next(no_answer, is_rename)
        lake.service.next(Fault.REQUEST_LOST, lambda seen: True, 2 * ATTEMPTS - 1)
        with pytest.raises(OSError, match="ServiceRe"):
            lake.store.publish(STAGED, FINAL)
        lake.store.publish(STAGED, FINAL)
        assert lake.store.read(FINAL) == b"rows"

    def test_of_a_creation(self, lake: Lake, no_answer: Fault) -> None:
        lake.service.next(no_answer, is_rename)
        lake.store.create("a/b", b"ours")
        assert (names(lake.store, "a"), lake.store.read("a/b")) == (["b"], b"ours")

    def test_of_a_replacement(self, lake: Lake, no_answer: Fault) -> None:
        lake.store.create("a/b", b"older")
        lake.service.next(no_answer, is_rename)
        lake.store.replace("a/b", b"ours")
        assert (names(lake.store, "a"), lake.store.read("a/b")) == (["b"], b"ours")

    def test_of_a_move(self, lake: Lake, no_answer: Fault, any_etag: bool) -> None:
        lake.store.create("a/b", b"x")
        lake.service.next(no_answer, is_rename)
        try:
            lake.store.move("a/b", "c/d")
        except FileNotFoundError:
            assert not any_etag  # then nothing tells it from a file that was there before
        assert lake.store.read("c/d") == b"x"

    def test_of_a_publication_that_another_process_staged(
        self, lake: Lake, no_answer: Fault, any_etag: bool
    ) -> None:
        stage(lake.store, b"rows")
        lake.service.next(no_answer, is_rename)
        try:
            lake.opened().publish(STAGED, FINAL)
        except (FileNotFoundError, FileExistsError):
            assert not any_etag  # only its caller knows the content
        assert lake.store.read(FINAL) == b"rows"

    @pytest.mark.parametrize("action", ["create", "append", "flush"])
    def test_while_a_file_is_staged(self, lake: Lake, no_answer: Fault, action: str) -> None:
        def is_it(seen: Seen) -> bool:
            return seen.query.get("action", "create") == action and seen.is_write

        lake.service.next(no_answer, is_it)
        stage(lake.store, b"rows")
        lake.store.publish(STAGED, FINAL)
        assert lake.store.read(FINAL) == b"rows"

    @pytest.mark.parametrize("action", ["delete", "delete_folder", "make_folder"])
    def test_of_what_may_be_done_twice(self, lake: Lake, no_answer: Fault, action: str) -> None:
        lake.store.create("a/b/c", b"x")
        path = {"delete": "a/b/c", "delete_folder": "a/b", "make_folder": "a/d"}[action]
        lake.service.next(no_answer, lambda seen: seen.path == f"{ROOT}/{path}")
        getattr(lake.store, action)(path)
        assert (f"{ROOT}/{path}" in lake.tree.nodes) == (action == "make_folder")


class TestFailedRename:
    """Nothing is taken for ours that is not."""

    @pytest.mark.clause("LZ-134", "LZ-137")
    @pytest.mark.parametrize("content", [b"them", b"rows"])
    def test_a_file_of_another_process_is_distinguished_from_ours(
        self, lake: Lake, content: bytes
    ) -> None:
        """Our request never arrives; meanwhile somebody else takes the name."""
        lost = []

        def rival(seen: Seen) -> bool:
            if seen.is_rename and not lost:
                lost.append(seen)
                lake.tree.create(f"{ROOT}/{FINAL}", NO_CONDITIONS, is_folder=False)
                lake.tree.append(f"{ROOT}/{FINAL}", 0, content)
                lake.tree.flush(f"{ROOT}/{FINAL}", len(content))
                return True
            return False

        stage(lake.store, b"rows")
        lake.service.next(Fault.REQUEST_LOST, rival)
        with pytest.raises(FileExistsError):
            lake.store.publish(STAGED, FINAL)
        assert lake.store.read(FINAL) == content
        assert lake.store.read(STAGED) == b"rows"

    def test_a_file_that_the_mirror_moved_is_not_found(self, lake: Lake) -> None:
        stage(lake.store, b"rows")
        other = lake.opened()
        lake.service.next(Fault.ANSWER_LOST, is_rename)

        def taken(seen: Seen) -> bool:
            if seen.is_rename and f"{ROOT}/{FINAL}" in lake.tree.nodes:
                lake.tree.create(f"{ROOT}/zone/t/_done", NO_CONDITIONS, is_folder=True)
                lake.tree.rename(f"{ROOT}/{FINAL}", f"{ROOT}/zone/t/_done/1", NO_CONDITIONS)
            return False

        lake.service.next(Fault.BUSY, taken)
        with pytest.raises(FileNotFoundError):
            lake.store.publish(STAGED, FINAL)
        assert other.read("zone/t/_done/1") == b"rows"

    @pytest.mark.clause("LZ-133", "LZ-138")
    def test_a_file_that_another_process_staged_is_not_published(self, lake: Lake) -> None:
        stage(lake.store, b"ours")
        stage(lake.opened(), b"half of th")
        with pytest.raises(OSError, match="replaced") as caught:
            lake.store.publish(STAGED, FINAL)
        assert caught.value.errno == errno.ESTALE
        assert names(lake.store, "zone/t") == ["_stage-1"]

    @pytest.mark.clause("LZ-133", "LZ-134")
    def test_a_late_request_does_not_move_a_newer_staged_file(self, lake: Lake) -> None:
        stage(lake.store, b"first")
        lake.service.next(Fault.LATE, is_rename)
        lake.service.next(Fault.REQUEST_LOST, is_rename, ATTEMPTS - 1)
        with pytest.raises(OSError, match="ServiceRe"):
            lake.store.publish(STAGED, FINAL)
        with lake.store.stage(STAGED) as file:
            file.write(b"second")
            assert lake.service.arrive() == [412]
        assert names(lake.store, "zone/t") == ["_stage-1"]

    def test_the_outcome_is_unknown_while_the_storage_is_unreachable(self, lake: Lake) -> None:
        stage(lake.store, b"rows")
        lake.service.next(Fault.ANSWER_LOST, is_rename)
        lake.service.next(Fault.BUSY, lambda seen: seen.method == "HEAD", ATTEMPTS)
        with pytest.raises(OSError, match="503") as caught:
            lake.store.publish(STAGED, FINAL)
        assert caught.value.errno == errno.EREMOTEIO

    def test_a_failed_condition_without_a_code_is_examined(
        self, lake: Lake, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def check(node: Node | None, conditions: Conditions) -> None:
            if conditions.if_none_match and node is not None:
                raise Refused(412, "ConditionNotMet")

        monkeypatch.setattr(lake.tree, "_check", check)
        lake.store.create(FINAL, b"first")
        stage(lake.store, b"rows")
        with pytest.raises(FileExistsError):
            lake.store.publish(STAGED, FINAL)


class TestLateRequest:
    """A request that was given up arrives when the world has gone on."""

    def late(self, lake: Lake, when: Callable[[Seen], bool], action: Callable[[], object]) -> None:
        """Nothing of `act` arrives in time, not even its tidying up."""
        lake.service.next(Fault.LATE, when)
        given_up: list[Seen] = []
        lake.service.next(
            Fault.REQUEST_LOST, lambda s: bool(given_up) or (when(s) and not given_up.append(s)), 99
        )
        with pytest.raises(OSError, match="ServiceRe"):
            action()
        lake.service.faults.clear()

    def test_does_not_replace_a_newer_version(self, lake: Lake) -> None:
        lake.store.replace("state", b"1")
        self.late(lake, is_rename, lambda: lake.store.replace("state", b"2"))
        next_process = lake.opened()
        next_process.replace("state", b"3")
        assert lake.service.arrive() == [412]
        assert next_process.read("state") == b"3"

    def test_does_not_replace_a_newer_file(self, lake: Lake) -> None:
        self.late(lake, is_rename, lambda: lake.store.replace("state", b"1"))
        lake.opened().replace("state", b"2")
        assert lake.service.arrive() == [409]
        assert lake.store.read("state") == b"2"

    @pytest.mark.clause("LZ-134")
    def test_does_not_move_a_newer_file(self, lake: Lake) -> None:
        lake.store.create("t/1", b"older")
        self.late(lake, is_rename, lambda: lake.store.move("t/1", "t/done/1"))
        lake.store.delete_folder("t")
        lake.store.create("t/1", b"newer")
        lake.store.make_folder("t/done")
        assert lake.service.arrive() == [412]
        assert lake.store.read("t/1") == b"newer"

    def test_does_not_delete_a_newer_folder(self, lake: Lake) -> None:
        lake.store.create("t/1", b"older")
        self.late(lake, lambda s: s.method == "DELETE", lambda: lake.store.delete_folder("t"))
        lake.store.delete_folder("t")
        lake.store.create("t/1", b"newer")
        assert lake.service.arrive() == [412]
        assert lake.store.read("t/1") == b"newer"

    def test_a_version_that_another_process_wrote_is_replaced(self, lake: Lake) -> None:
        lake.store.replace("a", b"1")
        lake.opened().replace("a", b"2")
        lake.store.replace("a", b"3")
        lake.store.delete("a")
        lake.store.replace("a", b"4")
        assert (names(lake.store, ""), lake.store.read("a")) == (["a"], b"4")


class TestBusyService:
    @pytest.mark.parametrize("fault", [Fault.BUSY, Fault.REQUEST_LOST])
    def test_is_retried(self, lake: Lake, fault: Fault) -> None:
        lake.service.next(fault, lambda seen: seen.is_write, 2)
        lake.store.create("a/b", b"x")
        lake.service.next(fault, lambda seen: not seen.is_write, 2)
        assert lake.store.read("a/b") == b"x"
        lake.service.next(fault, lambda seen: not seen.is_write, 2)
        assert names(lake.store, "a") == ["b"]

    def test_several_times_is_an_error(self, lake: Lake) -> None:
        lake.service.next(Fault.BUSY, lambda seen: True, ATTEMPTS)
        with pytest.raises(OSError, match="503 ServerBusy") as caught:
            lake.store.list("a")
        assert caught.value.errno == errno.EREMOTEIO

    def test_a_crash_while_staging_leaves_nothing_visible(self, lake: Lake) -> None:
        lake.service.next(Fault.REQUEST_LOST, lambda s: s.method == "PATCH", ATTEMPTS)
        with pytest.raises(OSError, match="ServiceRe"):
            stage(lake.store, b"rows")
        assert names(lake.store, "zone/t") == []


class TestSecrets:
    SECRET = "c2lnbmF0dXJl"
    TOKEN = f"sv=2026-01-01&sp=rwdl&sig={SECRET}"

    def test_a_denial_is_a_permission_error(self, lake: Lake) -> None:
        lake.service.next(Fault.DENIED, lambda seen: True)
        with pytest.raises(PermissionError, match="AuthorizationPermissionMismatch"):
            lake.store.list("a")

    @pytest.mark.parametrize("options", [{"sas_token": TOKEN}, {"account_key": SECRET + "=="}])
    def test_no_error_text_or_log_holds_one(
        self, data_lake: DataLake, options: dict[str, str], caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG, "azure")
        lake = Lake(data_lake)
        url = f"abfss://{lake.name}@acme.dfs.core.windows.net/{ROOT}"
        store = AdlsStore.of_url(url, {**options, "endpoint": lake.service.url}, {})
        stage(store, b"rows")
        store.publish(STAGED, FINAL)
        shown = [repr(store), store.location("a"), caplog.text]
        for action in (store.read, store.list):
            lake.service.next(Fault.DENIED, lambda seen: True)
            shown.append(error_text(lambda action=action: action("a")))
        shown.append(error_text(lambda: store.create(FINAL, b"x")))
        assert "403" in shown[3]
        assert not [text for text in shown if self.SECRET in text]

    def test_a_connection_error_contains_no_signed_address(self, lake: Lake) -> None:
        from azure.storage.filedatalake import FileSystemClient

        client = FileSystemClient(
            "http://127.0.0.1:1", "zone", credential=self.TOKEN, retry_total=0
        )
        shown = error_text(lambda: AdlsStore(client, ROOT, "abfss://zone@acme").list("a"))
        assert "127.0.0.1" in shown
        assert self.SECRET not in shown

    def test_a_signature_opens_the_source_of_a_rename_too(self, lake: Lake) -> None:
        url = f"abfss://{lake.name}@acme.dfs.core.windows.net/{ROOT}"
        options = {"sas_token": f"?{self.TOKEN}", "endpoint": lake.service.url}
        store = AdlsStore.of_url(url, options, {})
        store.create("a", b"x")
        (rename,) = [seen for seen in lake.writes() if seen.is_rename]
        assert rename.headers["x-ms-rename-source"].endswith(f"?{self.TOKEN}")

    def test_a_name_that_is_not_a_text_is_refused(self, lake: Lake) -> None:
        with pytest.raises(UnsafePath):
            lake.store.read("a\udcff")


def error_text(action: Callable[[], object]) -> str:
    with pytest.raises(OSError) as caught:
        action()
    return "".join(traceback.format_exception(caught.value)) + repr(caught.value)
