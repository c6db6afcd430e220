"""A range of a change feed in pages, each with a token to go on from (CF-080).

A token says which row comes next and where the range ends. It holds no secret, and what it says is
checked like any other argument: it may come from anybody.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Self, Unpack, cast

from mirrorlake.errors import FeedError
from mirrorlake.feed.bounds import FeedArguments, FeedRequest
from mirrorlake.feed.change_files import unfit_version
from mirrorlake.feed.reader import Feed
from mirrorlake.feed.reasons import FeedReason
from mirrorlake.feed.writers import plain_rows
from mirrorlake.storage.options import ObjectOptions

MOST_ROWS = 10_000
USUAL_ROWS = 1_000


@dataclass(frozen=True, slots=True)
class PageToken:
    """The next row is number `row` of those of a version, or the first of a later version.

    table_id: of Delta; last: the last version of the range, None for the newest one; the others are
    arguments of the reader, which have to stay the same.
    """

    table_id: str
    version: int
    row: int
    last: int | None
    on_gap: str = "error"
    pair_updates: bool = False
    skip_unchanged: bool = False

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(json.dumps(asdict(self)).encode()).decode()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError."""
        try:
            found = cls(**json.loads(base64.urlsafe_b64decode(text.encode())))
        except (binascii.Error, UnicodeError, TypeError) as error:
            raise ValueError(str(error)) from error
        numbers = [found.version, found.row] + ([] if found.last is None else [found.last])
        texts, flags = [found.table_id, found.on_gap], [found.pair_updates, found.skip_unchanged]
        is_valid = all(type(one) is int and one >= 0 for one in numbers)
        is_valid = is_valid and all(isinstance(one, str) for one in texts)
        if not is_valid or not all(isinstance(one, bool) for one in flags):
            raise ValueError(text)
        return found

    @property
    def arguments(self) -> FeedArguments:
        """Of the reader of what is left."""
        return FeedArguments(
            from_version=self.version,
            to_version=self.last,
            on_gap=cast("Literal['error', 'report']", self.on_gap),  # the reader checks it
            pair_updates=self.pair_updates,
            skip_unchanged=self.skip_unchanged,
        )


@dataclass(frozen=True, slots=True)
class FeedPage:
    """Some rows of the range `first` to `last`, with versions that are missing. next_token: of the
    next page of the range, None for its last page; resume_token: of what comes after these rows,
    however late."""

    first: int
    last: int
    rows: list[dict[str, Any]]
    gaps: list[Any]
    next_token: PageToken | None
    resume_token: PageToken

    def facts(self) -> dict[str, Any]:
        return {
            "first": self.first,
            "last": self.last,
            "rows": self.rows,
            "gaps": self.gaps,
            "nextPageToken": str(self.next_token or ""),
            "resumeToken": str(self.resume_token),
        }


def feed_page(
    table: str,
    options: ObjectOptions | None = None,
    *,
    token: str = "",
    size: int = 0,
    **asked: Unpack[FeedArguments],
) -> FeedPage:
    """A page of the change feed of the table at a location.

    token: of an earlier page; empty for the first page of the range that is asked for. size: rows
    at most, 0 for the usual number. Raises FeedError, Unavailable.
    """
    page = _parsed(table, token)
    feed = Feed(FeedRequest.of(table, **(page.arguments if page else asked)), options)
    request, plan = feed.request, feed.plan
    if page and page.table_id != plan.table_id:
        raise request.refused(
            "the table was removed or recreated after the token was given",
            FeedReason.OTHER,
            hint="Read it from the beginning: its versions count anew.",
        )
    end = PageToken(
        plan.table_id,
        max(plan.last + 1, feed.first),
        0,
        plan.last,
        str(request.on_gap),
        request.pair_updates,
        request.skip_unchanged,
    )
    most = min(size, MOST_ROWS) if size > 0 else USUAL_ROWS
    rows: list[dict[str, Any]] = []
    following = end
    try:
        for commit in feed:
            begin = page.row if page and commit.version == page.version else 0
            some = commit.rows.slice(begin, most - len(rows))
            rows += plain_rows(some)
            if begin + some.num_rows < commit.rows.num_rows:
                following = replace(end, version=commit.version, row=begin + some.num_rows)
                break
    except FeedError as error:
        version = unfit_version(error)
        if version is None or not rows:
            raise
        following = replace(end, version=version)  # the next page says what is wrong with it
    is_all = following is end
    return FeedPage(
        feed.first,
        feed.last,
        rows,
        feed.facts()["gaps"],
        None if is_all else following,
        replace(following, last=None),
    )


def _parsed(table: str, token: str) -> PageToken | None:
    if not token:
        return None
    try:
        return PageToken.parse(token)
    except ValueError:
        raise FeedError(
            "the token is none of a page",
            reason=FeedReason.INVALID_ARGUMENT,
            table=table,
            hint="Send nextPageToken or resumeToken of an earlier page, or none.",
        ) from None
