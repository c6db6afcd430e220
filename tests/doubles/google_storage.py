"""A small Google Cloud Storage in memory: of its XML API what a client of objects asks for.

Headers, bodies and codes are those of the reference of the XML API. Every request needs the token.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote
from xml.sax.saxutils import escape

import pytest

from mirrorlake.storage.options import ObjectOptions

TOKEN = "a-token-of-somebody"
PAGE = 1_000
"""Keys and prefixes in one answer to a listing."""

_META = "x-goog-meta-"
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")
_PART = re.compile(r"<PartNumber>(\d+)</PartNumber>")
_numbers = itertools.count(1)


class Refused(Exception):
    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status, self.code = status, code


@dataclass(frozen=True)
class Answer:
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True)
class Stored:
    """An object. generation: another one for each write, in ascending order."""

    content: bytes
    generation: int
    modified: datetime
    metadata: Mapping[str, str]

    @property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.content).hexdigest()}"'

    @property
    def headers(self) -> dict[str, str]:
        return {
            "ETag": self.etag,
            "Last-Modified": format_datetime(self.modified, usegmt=True),
            "x-goog-generation": str(self.generation),
            **self.metadata,
        }


@dataclass(frozen=True)
class Seen:
    """A request. key: empty for one to the bucket; headers: names in small letters."""

    method: str
    bucket: str
    key: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""

    def __str__(self) -> str:
        return f"{self.method} {self.key}"


class GoogleStorage:
    """The service. seen: what it was asked, one by one; page: as PAGE."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint, self.page = endpoint, PAGE
        self.seen: list[Seen] = []
        self._buckets: dict[str, dict[str, Stored]] = {}
        self._uploads: dict[str, dict[int, bytes]] = {}
        self._lock = threading.Lock()

    @property
    def options(self) -> ObjectOptions:
        return ObjectOptions(endpoint=self.endpoint)

    def new_bucket(self) -> str:
        """The URL of a bucket that is empty."""
        name = f"lake-{next(_numbers)}"
        self._buckets[name] = {}
        return f"gs://{name}"

    def answer(self, seen: Seen) -> Answer:
        with self._lock:
            self.seen.append(seen)
            try:
                return self._answer(seen)
            except Refused as refused:
                body = f"<Error><Code>{refused.code}</Code></Error>"
                return Answer(refused.status, body=_xml(body))

    def _answer(self, seen: Seen) -> Answer:
        if seen.headers.get("authorization") != f"Bearer {TOKEN}":
            raise Refused(401, "AuthenticationRequired")
        bucket = self._buckets.get(seen.bucket)
        if bucket is None:
            raise Refused(404, "NoSuchBucket")
        if not seen.key:
            return self._list(bucket, seen.query)
        if "uploads" in seen.query or "uploadId" in seen.query:
            return self._upload(bucket, seen)
        match seen.method:
            case "PUT" if "x-goog-copy-source" in seen.headers:
                source = unquote(seen.headers["x-goog-copy-source"]).lstrip("/")
                name, _, key = source.partition("/")
                copied = _found(self._buckets.get(name, {}), key)
                stored = self._put(bucket, seen, copied.content, copied.metadata)
                body = f"<CopyObjectResult><ETag>{stored.etag}</ETag></CopyObjectResult>"
                return Answer(200, stored.headers, _xml(body))
            case "PUT":
                own = {n: v for n, v in seen.headers.items() if n.startswith(_META)}
                return Answer(200, self._put(bucket, seen, seen.body, own).headers)
            case "DELETE":
                _found(bucket, seen.key)
                del bucket[seen.key]
                return Answer(204)
            case "GET" | "HEAD":
                return _read(_found(bucket, seen.key), seen)
        raise Refused(405, "MethodNotAllowed")

    def _put(
        self,
        bucket: dict[str, Stored],
        seen: Seen,
        content: bytes,
        metadata: Mapping[str, str] | None = None,
    ) -> Stored:
        wanted, there = seen.headers.get("x-goog-if-generation-match"), bucket.get(seen.key)
        if wanted is not None and int(wanted) != (there.generation if there else 0):
            raise Refused(412, "PreconditionFailed")
        stored = Stored(content, next(_numbers), datetime.now(UTC), metadata or {})
        bucket[seen.key] = stored
        return stored

    def _upload(self, bucket: dict[str, Stored], seen: Seen) -> Answer:
        """An upload in parts: it begins, gets a part, ends, or is given up."""
        if "uploads" in seen.query:
            number = f"upload-{next(_numbers)}"
            self._uploads[number] = {}
            body = f"<UploadId>{number}</UploadId>"
            return Answer(
                body=_xml(f"<InitiateMultipartUploadResult>{body}</InitiateMultipartUploadResult>")
            )
        number = seen.query["uploadId"]
        if number not in self._uploads:
            raise Refused(404, "NoSuchUpload")
        parts = self._uploads[number]
        if seen.method == "PUT":
            parts[int(seen.query["partNumber"])] = seen.body
            return Answer(200, {"ETag": f'"{hashlib.md5(seen.body).hexdigest()}"'})
        del self._uploads[number]
        if seen.method == "DELETE":
            return Answer(204)
        content = b"".join(parts[int(part)] for part in _PART.findall(seen.body.decode()))
        stored = self._put(bucket, seen, content)
        body = f"<ETag>{stored.etag}</ETag>"
        result = f"<CompleteMultipartUploadResult>{body}</CompleteMultipartUploadResult>"
        return Answer(200, stored.headers, _xml(result))

    def _list(self, bucket: Mapping[str, Stored], query: Mapping[str, str]) -> Answer:
        """A page of a listing (version 2), in the order of the keys' bytes."""
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token", query.get("start-after", ""))
        found: dict[str, str] = {}
        for key in sorted(bucket, key=str.encode):
            if not key.startswith(prefix):
                continue
            inside, has_more, _rest = key[len(prefix) :].partition(delimiter or "\0")
            if delimiter and has_more:
                name = prefix + inside + delimiter
                shown = f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
            else:
                name, shown = key, _shown(key, bucket[key])
            if name.encode() > after.encode():
                found.setdefault(name, shown)
        page = list(found)[: min(self.page, int(query.get("max-keys", PAGE)))]
        more = ""
        if len(page) < len(found):
            more = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>"
        is_truncated = str(bool(more)).lower()
        body = "".join(found[name] for name in page)
        return Answer(
            body=_xml(
                f"<ListBucketResult><IsTruncated>{is_truncated}</IsTruncated>{more}{body}"
                "</ListBucketResult>"
            )
        )


def _found(bucket: Mapping[str, Stored], key: str) -> Stored:
    if key not in bucket:
        raise Refused(404, "NoSuchKey")
    return bucket[key]


def _read(stored: Stored, seen: Seen) -> Answer:
    if seen.headers.get("if-match", stored.etag) != stored.etag:
        raise Refused(412, "PreconditionFailed")
    asked = _RANGE.fullmatch(seen.headers.get("range", ""))
    if asked is None:
        return Answer(200, stored.headers, stored.content)
    size = len(stored.content)
    if asked[1]:
        start, end = int(asked[1]), min(int(asked[2] or size - 1) + 1, size)
    else:
        start, end = max(size - int(asked[2]), 0), size
    if start >= end:
        raise Refused(416, "InvalidRange")
    said = {"Content-Range": f"bytes {start}-{end - 1}/{size}"}
    return Answer(206, {**stored.headers, **said}, stored.content[start:end])


def _shown(key: str, stored: Stored) -> str:
    return (
        f"<Contents><Key>{escape(key)}</Key><Generation>{stored.generation}</Generation>"
        f"<LastModified>{stored.modified:%Y-%m-%dT%H:%M:%S.%fZ}</LastModified>"
        f"<ETag>{escape(stored.etag)}</ETag><Size>{len(stored.content)}</Size></Contents>"
    )


def _xml(body: str) -> bytes:
    return f"<?xml version='1.0' encoding='UTF-8'?>{body}".encode()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def _any(self) -> None:
        path, _, query = self.path.partition("?")
        bucket, _, key = path.lstrip("/").partition("/")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        seen = Seen(
            self.command,
            unquote(bucket),
            unquote(key),
            dict(parse_qsl(query, keep_blank_values=True)),
            {name.lower(): value for name, value in self.headers.items()},
            body,
        )
        answer = self.server.storage.answer(seen)
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _any  # noqa: N815

    def log_message(self, *_args: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    storage: GoogleStorage
    daemon_threads = True


@contextmanager
def google_storage() -> Iterator[GoogleStorage]:
    """The service, and an environment that has credentials for it."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.storage = GoogleStorage(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=[0.01], daemon=True)
    thread.start()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("GOOGLE_BEARER_TOKEN", TOKEN)
            yield server.storage
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
