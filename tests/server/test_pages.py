"""The pages for people, without a browser: who may see them, and what they say."""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from mirrorlake.app.streams.projects import ServiceFolders
from mirrorlake.app.streams.service import Service, opened
from mirrorlake.control.names import ResourceName
from mirrorlake.control.requests import Asked
from mirrorlake.control.states import StreamMove
from mirrorlake.errors import ResourceExists
from mirrorlake.landing.metadata import Metadata, OurMetadata, encode
from mirrorlake.server.application import application
from tests.app.zones import Zone
from tests.server.asgi import TestClient

TOKEN = "right-token"
HOST = "127.0.0.1:8765"
URL = f"http://{HOST}"
PARENT = "projects/p/locations/l"
STREAM = "/streams/p/l/shop"
SHOP = ResourceName.parse(f"{PARENT}/streams/shop")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service without processes, with one stream."""
    folder = tmp_path_factory.mktemp("pages")
    places = ServiceFolders(folder / "service", folder / "data")
    with opened(places, threading.Event()) as found:
        add_stream(found)
        yield found


def add_stream(service: Service, display: str = "The shop", name: str = "shop") -> None:
    source = {
        "postgresqlProfile": {
            "hostname": "127.0.0.1",
            "port": 1,
            "username": "u",
            "password": "never-shown",
            "database": "d",
        }
    }
    asked = Asked("", False, True)
    profiles = service.control.profiles
    with suppress(ResourceExists):
        profiles.create(PARENT, "source", source, asked)
        profiles.create(PARENT, "tables", {"bigqueryProfile": {}}, asked)
    stream = {
        "displayName": display,
        "sourceConfig": {
            "sourceConnectionProfile": f"{PARENT}/connectionProfiles/source",
            "postgresqlSourceConfig": {"replicationSlot": "slot", "publication": "pub"},
        },
        "destinationConfig": {
            "destinationConnectionProfile": f"{PARENT}/connectionProfiles/tables",
            "bigqueryDestinationConfig": {"merge": {}},
        },
        "backfillAll": {},
    }
    service.control.streams.create(PARENT, name, stream, asked)


@pytest.fixture
def zone(service: Service) -> Iterator[Zone]:
    """The root of the stream, which is empty before each test."""
    root = service.places.data / "tables/p/l/shop"
    yield Zone(root)
    shutil.rmtree(root)


def client(service: Service, token: str | None = TOKEN, **more: Any) -> TestClient:
    app = application(service, token, {"127.0.0.1"})
    return TestClient(app, base_url=URL, follow_redirects=False, **more)


def login(browser: TestClient, token: str = TOKEN, **headers: str) -> Any:
    sent = {"token": token, "next": STREAM}
    return browser.post("/login", data=sent, headers={"Origin": URL, **headers})


@pytest.fixture
def browser(service: Service) -> TestClient:
    """Logged in."""
    found = client(service)
    assert login(found).status_code == 303
    return found


def test_the_login_leads_to_the_page_that_was_asked_for(service: Service) -> None:
    browser = client(service)
    asked = browser.get(f"{STREAM}?find=a")
    assert (asked.status_code, asked.headers["location"]) == (
        303,
        "/login?next=%2Fstreams%2Fp%2Fl%2Fshop%3Ffind%3Da",
    )
    form = browser.get(asked.headers["location"])
    assert 'value="/streams/p/l/shop?find=a"' in form.text
    wrong = login(browser, "wrong")
    assert (wrong.status_code, "Wrong token." in wrong.text) == (401, True)
    entered = login(browser)
    assert (entered.status_code, entered.headers["location"]) == (303, STREAM)
    cookie = entered.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert TOKEN not in cookie
    assert browser.get(STREAM).status_code == 200


def test_the_cookie_is_kept_from_plain_http_where_there_is_tls(service: Service) -> None:
    app = application(service, TOKEN, None)
    browser = TestClient(app, base_url="https://lake.example", follow_redirects=False)
    assert "Secure" in login(browser, Origin="https://lake.example").headers["set-cookie"]


def test_a_session_opens_the_pages_only_and_ends(browser: TestClient) -> None:
    assert browser.get("/v1/projects/p/locations/l/streams").status_code == 401
    assert browser.get("/metrics").status_code == 401
    assert browser.post("/logout", headers={"Origin": URL}).status_code == 303
    assert browser.get("/").status_code == 303


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": URL, "Sec-Fetch-Site": "same-site"},
    ],
)
def test_forms_of_other_sites_are_refused(service: Service, headers: dict[str, str]) -> None:
    browser = client(service)
    refused = login(browser, **headers)
    assert refused.status_code == 403
    assert "set-cookie" not in refused.headers


def test_a_service_without_a_token_does_nothing_for_other_sites(service: Service) -> None:
    api = client(service, token=None)
    address = f"/v1/{PARENT}/connectionProfiles?connectionProfileId=csrf&force=true"
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        # Without a preflight: a form may send text.
        sent = {"Content-Type": "text/plain", **headers}
        refused = api.post(address, content=b'{"bigqueryProfile": {}}', headers=sent)
        assert refused.status_code == 403
        assert refused.json()["error"]["status"] == "PERMISSION_DENIED"
    assert api.get(f"/v1/{PARENT}/connectionProfiles/csrf").status_code == 404


def test_a_forged_host_is_refused_on_pages_too(browser: TestClient) -> None:
    for path in ("/", "/login", "/assets/page.js", STREAM):
        assert browser.get(path, headers={"Host": "evil.example"}).status_code == 421


def test_guessing_the_token_is_slow_and_the_right_one_is_always_known(service: Service) -> None:
    browser = client(service)
    codes = [login(browser, f"wrong {n}").status_code for n in range(25)]
    assert codes == [401] * 20 + [429] * 5
    assert login(browser).status_code == 303


@pytest.mark.parametrize("target", ["//evil.example", "https://evil.example", "/\\evil", "/v1"])
def test_the_login_leads_nowhere_else(service: Service, target: str) -> None:
    sent = {"token": TOKEN, "next": target}
    answer = client(service).post("/login", data=sent, headers={"Origin": URL})
    assert answer.headers["location"] == "/"


@pytest.mark.parametrize("content", [b"x" * 5_000, b"\xff\xfe=%ff", b"&" * 4_000, b"a=1&" * 900])
def test_a_form_that_is_none_is_refused(service: Service, content: bytes) -> None:
    answer = client(service).post("/login", content=content, headers={"Origin": URL})
    assert answer.status_code in (400, 401)


def test_a_service_without_a_token_shows_its_pages_at_once(service: Service) -> None:
    browser = client(service, token=None)
    assert "The shop" in browser.get("/").text
    assert browser.get("/login").headers["location"] == "/"


def test_nothing_of_another_host_and_nothing_inline_is_run(browser: TestClient) -> None:
    for path in ("/", STREAM, "/login", "/nowhere-else"[:1]):
        page = browser.get(path)
        policy = page.headers.get("content-security-policy", "")
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert not re.search(r"(src|href|action)=.(https?:)?//", page.text)
        assert not re.search(r"<script(?![^>]*src=)|<style|\sstyle=|\son\w+=", page.text)


def test_the_overview_says_what_is_not_known(browser: TestClient) -> None:
    page = browser.get("/")
    assert f'<a href="{STREAM}">The shop</a>' in page.text
    assert "Not started" in page.text
    assert "no commits in the last minute" in page.text
    (row,) = re.findall(r"The shop.*?</tr>", page.text, re.DOTALL)
    assert row.count("unknown") == 4
    assert "never-shown" not in page.text


def test_a_stream_shows_its_tables_and_one_that_stands_still_first(
    browser: TestClient, zone: Zone
) -> None:
    zone.table("good", "id")
    zone.land("good", 1, {"id": [1, 2, 3]})
    zone.table("zz_bad", "id")
    zone.land("zz_bad", 1, {"id": [1]})
    zone.apply()
    zone.folder("zz_bad").joinpath(f"{2:020d}.parquet").write_bytes(b"no parquet")
    zone.apply()
    page = browser.get(STREAM).text
    assert "<td>the stream was created</td>" in page
    assert page.index("s.zz_bad") < page.index("s.good")
    assert '<dd id="applied">4</dd>' in page
    assert "s.zz_bad" not in browser.get(f"{STREAM}?find=GOOD").text
    table = browser.get(f"{STREAM}/table?name=s.zz_bad").text
    assert "Why it has stopped" in table
    assert "Load the table again." in table
    root = zone.root
    assert f"mirrorlake reset s.zz_bad --root {root} --yes &amp;&amp;" in table
    good = browser.get(f"{STREAM}/table?name=s.good").text
    assert "Why it has stopped" not in good
    assert "<dt>Inserts</dt><dd>3</dd>" in good


def test_a_backfill_is_shown_with_its_progress_and_how_to_stop_it(
    browser: TestClient, service: Service, zone: Zone
) -> None:
    zone.table("good", "id")
    zone.land("good", 1, {"id": [1]})
    zone.apply()
    job = {
        "state": "ACTIVE",
        "trigger": "MANUAL",
        "errors": [],
        "progress": {"rows": 1_500, "expectedRows": 2_000, "secondsLeft": 3},
    }
    one = {
        "displayName": "s.good",
        "sourceObject": {"postgresqlIdentifier": {"schema": "s", "table": "good"}},
        "errors": [],
        "backfillJob": job,
    }
    address = f"{STREAM}/table?name=s.good"
    assert "mirrorlake objects shop backfill s.good" in browser.get(address).text
    service.control.supervision.observe_objects(SHOP, lambda _old, _now: [one])
    page = browser.get(address).text
    assert '<progress max="2000" value="1500"' in page
    assert "1,500 of about 2,000 rows, about 3 s left" in page
    assert "mirrorlake objects shop stop s.good" in page
    one["backfillJob"] = {"state": "COMPLETED", "trigger": "AUTOMATIC", "errors": []}
    service.control.supervision.observe_objects(SHOP, lambda _old, _now: [one])
    assert "Completed, started by the stream." in browser.get(address).text
    service.control.supervision.observe_objects(SHOP, lambda _old, _now: [])


def test_a_backfill_is_asked_for_and_stopped_on_the_page_of_its_table(
    browser: TestClient, service: Service
) -> None:
    add_stream(service, "Read again", "again")
    shop = ResourceName.parse(f"{PARENT}/streams/again")
    page_of = "/streams/p/l/again"
    zone = Zone(service.places.data / "tables/p/l/again")
    ours = OurMetadata("g", "good", {"schema": "s"})
    one = {
        "displayName": "s.good",
        "sourceObject": {"postgresqlIdentifier": {"schema": "s", "table": "good"}},
        "errors": [],
        "backfillJob": {"state": "COMPLETED", "trigger": "AUTOMATIC", "errors": []},
    }
    zone.table("good")
    metadata = encode(Metadata(("id",), ours=ours))
    zone.folder("good").joinpath("_metadata.json").write_bytes(metadata)
    zone.land("good", 1, {"id": [1]})
    zone.apply()
    supervision = service.control.supervision
    supervision.observe_objects(shop, lambda _old, _now: [one])
    address, form = f"{page_of}/table?name=s.good", f'action="{page_of}/backfill"'
    assert form not in browser.get(address).text  # the stream has not begun

    def ask(verb: str, name: str = "s.good", origin: str = URL) -> Any:
        sent = {"name": name, "verb": verb}
        return browser.post(f"{page_of}/backfill", data=sent, headers={"Origin": origin})

    assert ask("backfill").status_code == 409
    for move in (StreamMove.START, StreamMove.VALID):
        supervision.observe(shop, move)
    assert form in browser.get(address).text
    assert ask("backfill", origin="http://evil.example").status_code == 403
    assert ask("backfill", "s.none").status_code == ask("reset").status_code == 404
    assert client(service).post(f"{page_of}/backfill", headers={"Origin": URL}).status_code == 303
    asked = ask("backfill")
    assert (asked.status_code, asked.headers["location"]) == (303, address)
    page = browser.get(address).text
    assert "Pending, asked for by a person" in page
    assert '<input type="hidden" name="verb" value="stop">' in page
    assert ask("backfill").status_code == 409  # it is under way
    assert ask("stop").status_code == 303  # capture does it
    service.control.supervision.removed(shop)


def test_a_stream_of_event_files_shows_its_objects(browser: TestClient, service: Service) -> None:
    asked = Asked("", False, True)
    folder = {"fileSystemProfile": {"rootPath": "files"}}
    service.control.profiles.create(PARENT, "folder", folder, asked)
    stream = service.control.get(SHOP)
    destination = {
        "destinationConnectionProfile": f"{PARENT}/connectionProfiles/folder",
        "fileSystemDestinationConfig": {"path": "events", "avroFileFormat": {}},
    }
    events = {
        "displayName": "Events",
        "sourceConfig": stream["sourceConfig"],
        "destinationConfig": destination,
        "backfillAll": {},
    }
    service.control.streams.create(PARENT, "events", events, asked)
    page = browser.get("/streams/p/l/events").text
    assert "Written: event files" in page
    assert f"<dd>{service.places.data}/files/files/events</dd>" in page
    assert "No objects yet." in page
    assert "Changes applied" not in page


def test_the_changes_of_a_table_stand_side_by_side(browser: TestClient, zone: Zone) -> None:
    zone.table("good", "id")
    zone.land("good", 1, {"id": [1, 2], "note": ["<b>old</b>", "x"]})
    zone.apply()
    zone.land("good", 2, {"id": [1, 2], "note": ["new", None], "__rowMarker__": [1, 2]})
    zone.apply()
    page = browser.get(f"{STREAM}/changes?name=s.good").text
    assert page.index("<td>delete</td>") < page.index("<td>insert</td>")
    assert "<mark>&lt;b&gt;old&lt;/b&gt;</mark>" in page
    assert "<mark>new</mark>" in page
    first = browser.get(f"{STREAM}/changes?name=s.good&until=0").text
    assert "<td>update</td>" not in first
    assert "<td>insert</td>" in first


def test_a_change_that_is_too_large_for_a_page_is_named(browser: TestClient, zone: Zone) -> None:
    zone.table("good", "id")
    zone.land("good", 1, {"id": list(range(6_000))})
    zone.apply()
    page = browser.get(f"{STREAM}/changes?name=s.good").text
    assert "too large for a page" in page
    assert "<td>insert</td>" not in page


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/streams/p/l/none", 404),
        ("/streams/p/l/%2e%2e", 404),
        (f"{STREAM}/table?name=../../secret", 404),
        (f"{STREAM}/table", 404),
        (f"{STREAM}/changes?name=s3://elsewhere/table", 404),
        pytest.param(f"{STREAM}/changes?name={'x' * 30_000}", 404, id="long"),
        (f"{STREAM}/changes?name=%00&until=99999999999999999999", 404),
        ("/assets/%2e%2e/routes.py", 404),
        ("/assets/none", 404),
    ],
)
def test_what_is_not_there_is_said_so(browser: TestClient, path: str, code: int) -> None:
    assert browser.get(path).status_code == code


def test_hostile_names_are_shown_as_text(browser: TestClient, zone: Zone) -> None:
    name = "<img src=x onerror=alert(1)>'\"$(id)`;\u202e"
    zone.table(name, "id")
    zone.land(name, 1, {"id": [1], "</dt><script>": ["<script>alert(1)</script>"]})
    zone.apply()
    zone.folder(name).joinpath(f"{2:020d}.parquet").write_bytes(b"no parquet")
    zone.apply()
    page = browser.get(STREAM).text
    (link,) = re.findall(r'href="(/streams/p/l/shop/table\?[^"]+)"', page)
    for text in (
        page,
        browser.get(link).text,
        browser.get(link.replace("table?", "changes?")).text,
    ):
        assert "<img" not in text
        assert text.count("<script") == 1
        assert "\u202e" not in text
    assert "mirrorlake reset" not in browser.get(link).text  # a terminal would obey the name
