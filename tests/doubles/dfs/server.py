"""The service on a port of this machine, with faults on demand."""

from __future__ import annotations

import base64
import json
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import format_datetime
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import parse_qs, unquote, urlsplit

from tests.doubles.dfs.tree import Conditions, Node, Refused, Tree

PAGE = 3
"""Entries in one answer to a listing, few so that pages matter."""


class Fault(Enum):
    """What becomes of one request."""

    BUSY = "503 before anything is done"
    TIMED_OUT = "done, and answered with 500"
    ANSWER_LOST = "done, and the connection is cut"
    REQUEST_LOST = "the connection is cut before anything is done"
    LATE = "the connection is cut; it is done when it arrives"
    DENIED = "403"


@dataclass(frozen=True)
class Seen:
    """A request. path: below the container, decoded; headers: names in small letters."""

    method: str
    container: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def is_write(self) -> bool:
        return self.method in {"PUT", "PATCH", "DELETE"}

    @property
    def is_rename(self) -> bool:
        return "x-ms-rename-source" in self.headers

    def __str__(self) -> str:
        what = "rename" if self.is_rename else self.query.get("action", "")
        return f"{self.method} {what} {self.path}"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


class DataLake:
    """The service. `with DataLake() as lake: lake.url`."""

    def __init__(self) -> None:
        self.trees: dict[str, Tree] = {}
        self.seen: list[Seen] = []
        self.faults: list[tuple[Callable[[Seen], bool], Fault, int]] = []
        self._late: list[Seen] = []
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.lake = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=[0.01])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def container(self, name: str) -> Tree:
        """A new and empty container; what was seen before and what was to break is forgotten."""
        self.seen, self.faults, self._late = [], [], []
        self.trees[name] = Tree()
        return self.trees[name]

    def next(self, fault: Fault, when: Callable[[Seen], bool], times: int = 1) -> None:
        """Let a fault befall the next requests of a kind. when: asked once of every request."""
        self.faults.append((when, fault, times))

    def arrive(self) -> list[int]:
        """Let late requests take effect; their statuses."""
        late, self._late = self._late, []
        return [self.answer(seen).status for seen in late]

    def befall(self, seen: Seen) -> Fault | None:
        with self._lock:
            self.seen.append(seen)
            for index, (when, fault, times) in enumerate(self.faults):
                if when(seen):
                    left = [(when, fault, times - 1)] if times > 1 else []
                    self.faults[index : index + 1] = left
                    if fault is Fault.LATE:
                        self._late.append(seen)
                    return fault
        return None

    def answer(self, seen: Seen) -> Answer:
        try:
            return _act(self.trees, seen)
        except Refused as refused:
            return error(seen, refused.status, refused.code)


# -- operations ---------------------------------------------------------------------------------


def _act(trees: Mapping[str, Tree], seen: Seen) -> Answer:
    if "authorization" not in seen.headers and "sig" not in seen.query:
        raise Refused(401, "NoAuthenticationInformation")
    tree = trees.get(seen.container)
    if tree is None:
        raise Refused(404, "ContainerNotFound" if _is_blob(seen) else "FilesystemNotFound")
    match seen.method, seen.query.get("action"):
        case "PUT", None:
            return _put(tree, seen)
        case "PATCH", "append":
            tree.append(seen.path, int(seen.query["position"]), seen.body)
            return Answer(202)
        case "PATCH", "flush":
            return Answer(200, _facts(tree.flush(seen.path, int(seen.query["position"]))))
        case "DELETE", None:
            recursive = seen.query.get("recursive") == "true"
            tree.delete(seen.path, _conditions(seen), recursive=recursive)
            return Answer(200)
    if "resource" in seen.query:
        return _list(tree, seen)
    return _content(tree.find(seen.path, "BlobNotFound"), seen)


def _put(tree: Tree, seen: Seen) -> Answer:
    if not seen.is_rename:
        folder = seen.query["resource"] == "directory"
        return Answer(201, _facts(tree.create(seen.path, _conditions(seen), is_folder=folder)))
    source = unquote(urlsplit(seen.headers["x-ms-rename-source"]).path)
    container, _, path = source.strip("/").partition("/")
    assert container == seen.container
    tree.rename(path, seen.path, _conditions(seen))
    return Answer(201)


def _list(tree: Tree, seen: Seen) -> Answer:
    assert (seen.query["resource"], seen.query["recursive"]) == ("filesystem", "false")
    folder = seen.query.get("directory", "").strip("/")
    after = base64.b64decode(seen.query.get("continuation", "")).decode()
    count = min(int(seen.query.get("maxResults", PAGE)), PAGE)
    page, more = tree.list(folder, after, count)
    paths = [
        {
            "name": path.replace(*tree.shown_as, 1),
            "contentLength": str(len(node.content)),
            "etag": node.etag,
            "lastModified": format_datetime(node.modified, usegmt=True),
            **({"isDirectory": "true"} if node.is_folder else {}),
        }
        for path, node in page
    ]
    headers = {"Content-Type": "application/json"}
    if more:
        headers["x-ms-continuation"] = base64.b64encode(page[-1][0].encode()).decode()
    return Answer(200, headers, json.dumps({"paths": paths}).encode())


def _content(node: Node, seen: Seen) -> Answer:
    """A file as the blob endpoint shows it; a folder is an empty one with a mark."""
    if seen.headers.get("if-match", "").strip('"') not in {"", node.etag}:
        raise Refused(412, "ConditionNotMet")
    facts = {**_facts(node), "x-ms-blob-type": "BlockBlob"}
    if node.is_folder:
        facts["x-ms-meta-hdi_isfolder"] = "true"
    asked = seen.headers.get("x-ms-range") or seen.headers.get("range")
    if asked is None or seen.method == "HEAD":
        return Answer(200, facts, node.content)
    first, _, last = asked.removeprefix("bytes=").partition("-")
    start, end = int(first), min(int(last or 1 << 62) + 1, len(node.content))
    if start >= len(node.content):
        raise Refused(416, "InvalidRange")
    facts["Content-Range"] = f"bytes {start}-{end - 1}/{len(node.content)}"
    return Answer(206, facts, node.content[start:end])


def _facts(node: Node) -> dict[str, str]:
    return {
        "ETag": f'"{node.etag}"',
        "Last-Modified": format_datetime(node.modified, usegmt=True),
    }


def _conditions(seen: Seen) -> Conditions:
    def header(name: str) -> str | None:
        value = seen.headers.get(name)
        return None if value is None else value.strip('"')

    return Conditions(header("if-match"), header("if-none-match"), header("x-ms-source-if-match"))


def error(seen: Seen, status: int, code: str) -> Answer:
    """JSON, as the endpoint of files answers, or XML, as that of blobs does."""
    headers = {"x-ms-error-code": code, "x-ms-request-id": "00000000-0000-0000-0000-000000000000"}
    if _is_blob(seen):
        headers["Content-Type"] = "application/xml"
        told = f"<Code>{code}</Code><Message>{code}.</Message>"
        text = f'<?xml version="1.0" encoding="utf-8"?><Error>{told}</Error>'
        return Answer(status, headers, text.encode())
    headers["Content-Type"] = "application/json"
    body = {"error": {"code": code, "message": f"{code} at {seen.path}"}}
    return Answer(status, headers, json.dumps(body).encode())


def _is_blob(seen: Seen) -> bool:
    return seen.method in {"GET", "HEAD"} and "resource" not in seen.query


# -- HTTP ---------------------------------------------------------------------------------------


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a client keeps its connections open as long as it lives
    request_queue_size = 64
    lake: DataLake


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def _serve(self) -> None:
        seen, lake = self._seen(), self.server.lake
        match lake.befall(seen):
            case Fault.REQUEST_LOST | Fault.LATE:
                self._cut()
            case Fault.BUSY:
                self._send(error(seen, 503, "ServerBusy"))
            case Fault.DENIED:
                self._send(error(seen, 403, "AuthorizationPermissionMismatch"))
            case Fault.ANSWER_LOST:
                lake.answer(seen)
                self._cut()
            case Fault.TIMED_OUT:
                lake.answer(seen)
                self._send(error(seen, 500, "OperationTimedOut"))
            case None:
                self._send(lake.answer(seen))

    do_GET = do_HEAD = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815

    def _seen(self) -> Seen:
        parts = urlsplit(self.path)
        container, _, path = unquote(parts.path).strip("/").partition("/")
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(headers.get("content-length", 0)))
        return Seen(self.command, container, path, query, headers, body)

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        if self.command != "HEAD":
            self._headers_buffer.append(b"\r\n" + answer.body)  # in one packet with the headers
            self.flush_headers()
        else:
            self.end_headers()

    def _cut(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """The tests look at what was seen."""
