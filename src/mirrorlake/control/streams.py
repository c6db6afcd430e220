"""Creates, updates, starts, pauses, recovers and deletes streams (section 13)."""

from __future__ import annotations

from collections.abc import Mapping

from mirrorlake.control import masks
from mirrorlake.control.checks import (
    FIRST_RUN,
    PROJECT_FILE,
    STREAM_OUTPUT,
    check_excluded,
    check_not_listed,
    check_slot,
    check_strategy,
    check_target,
    input_of,
    move_to,
    output_of,
    shaped,
)
from mirrorlake.control.names import ResourceKind, ResourceName, new_name
from mirrorlake.control.profiles import Profiles
from mirrorlake.control.reports import Document
from mirrorlake.control.requests import DELETED, Asked, Requests, Validator
from mirrorlake.control.shapes.base import Shape
from mirrorlake.control.shapes.streams import (
    DESTINATION_CONFIGS,
    SOURCE_CONFIGS,
    RunRequest,
    Stream,
)
from mirrorlake.control.states import StreamMove, StreamState, moved
from mirrorlake.control.store.database import Transaction
from mirrorlake.errors import InvalidRequest, ResourceExists
from mirrorlake.model.landed import format_time

RECOVER = "RECOVER"
"""The desired state of a stream that continues after something was lost."""
ANEW = "ANEW"
"""The desired state of a new stream that may find the tables of an earlier stream of its name."""
FORCED = "FORCED"
"""Follows the desired state of a stream that starts without validation (ST-300)."""

_STATE = ("state",)
"""The path of the state in an update mask."""


def _asked_move(current: Document, sent: Document, paths: masks.Paths) -> StreamMove | None:
    """The move to the state that an update asks for; None for none. Raises InvalidRequest,
    IllegalMove."""
    target = shaped(Stream, {name: value for name, value in sent.items() if name == "state"}).state
    if _STATE in paths and target is None:
        raise InvalidRequest("no state was sent", where="state", hint="Send RUNNING or PAUSED.")
    is_asked = not paths or _STATE in paths
    return move_to(StreamState[current["state"]], target if is_asked else None)


class Streams:
    """The requests for the streams of one service."""

    def __init__(self, requests: Requests, profiles: Profiles, validator: Validator) -> None:
        self._requests, self._profiles, self._validator = requests, profiles, validator

    def create(self, parent: str, identifier: str, sent: Document, asked: Asked) -> Document:
        """Returns an operation. Raises InvalidRequest, ResourceExists, ResourceNotFound."""
        name = new_name(parent, ResourceKind.STREAM, identifier)
        if known := self._requests.repeated(name, "create", asked, sent):
            return known
        shape = shaped(Stream, sent)
        wanted = shape.state or StreamState.NOT_STARTED
        if wanted not in (StreamState.NOT_STARTED, StreamState.RUNNING):
            raise InvalidRequest(
                f"a stream cannot be created as {wanted.name}",
                where="state",
                hint="Create it as NOT_STARTED or RUNNING.",
            )
        self._check_stream(shape)

        def act(transaction: Transaction) -> Document:
            self._requests.check_free(transaction, name)
            shape.state = StreamState.NOT_STARTED
            document = self._requests.stamped(input_of(shape), name)
            if asked.validate_only:
                return document
            transaction.put(name, document)
            self._log(transaction, document, "STREAM_CREATED", "the stream was created")
            if wanted is StreamState.RUNNING:
                document = self.move(transaction, document, StreamMove.START)
                self._start_forced(transaction, name, asked.force)
            return document

        validations = () if asked.force else self._validator.stream(name, shape)
        return self._requests.do(name, "create", asked, sent, act, validations, "Stream")

    def update(self, name: ResourceName, sent: Document, mask: str, asked: Asked) -> Document:
        """Change a stream; start, pause or resume it (ST-280).

        Returns an operation, which for a change of state ends when the state is reached. Raises
        InvalidRequest, ResourceNotFound, IllegalMove.
        """
        if known := self._requests.repeated(name, "update", asked, [sent, mask]):
            return known
        paths = masks.parse_mask(mask)
        current = self._requests.current(name)
        move = _asked_move(current, sent, paths)
        changed = self._changed(current, sent, paths)
        tested = changed
        if asked.validate_only and move is StreamMove.START and PROJECT_FILE not in current:
            tested = tested or shaped(Stream, current)  # a start itself is tested when it is done
        validations = self._validator.stream(name, tested) if tested and not asked.force else ()

        def act(transaction: Transaction) -> Document | None:
            document = self._requests.get(transaction, name)
            if changed is not None:
                following = self._requests.stamped(input_of(changed), name)
                document = {**following, **output_of(document)}
                if not asked.validate_only:
                    transaction.put(name, document)
                    self._log(transaction, document, "STREAM_UPDATED", "the stream was updated")
            if move is None:
                return document
            if asked.validate_only:
                moved(StreamState[document["state"]], move, document["name"])
                return document
            self.move(transaction, document, move)
            self._start_forced(transaction, name, asked.force and move is StreamMove.START)
            return None

        return self._requests.do(
            name, "update", asked, [sent, mask], act, validations, "Stream", waits=move is not None
        )

    def run(self, name: ResourceName, sent: Document, asked: Asked) -> Document:
        """Start, resume or recover a stream (ST-335).

        Returns an operation. Raises InvalidRequest, ResourceNotFound, IllegalMove, NotOffered.
        """
        if known := self._requests.repeated(name, "run", asked, sent):
            return known
        request = shaped(RunRequest, sent)
        current = shaped(Stream, self._requests.current(name))
        check_strategy(current, request)

        def act(transaction: Transaction) -> None:
            document = self._requests.get(transaction, name)
            was = StreamState[document["state"]]
            document = self.move(transaction, document, StreamMove.RECOVER)
            recovery = request.cdc_strategy.document() if request.cdc_strategy else {}
            if was is StreamState.FAILED_PERMANENTLY:
                document["lastRecoveryTime"] = format_time(self._requests.clock.now())
                transaction.want(name, RECOVER)
            elif was is StreamState.NOT_STARTED:
                transaction.want(name, ANEW)
            self._start_forced(transaction, name, asked.force or request.force)
            transaction.put(name, document)
            self._log(transaction, document, "STREAM_RUN", f"a run was asked for: {recovery}")

        return self._requests.do(name, "run", asked, sent, act, (), "Stream", waits=True)

    def delete(self, name: ResourceName, asked: Asked) -> Document:
        """Delete a stream, in any state (ST-278).

        Returns an operation, which ends when nothing of the stream runs any more. Raises
        ResourceNotFound, and IllegalMove for a stream of a project file.
        """
        if known := self._requests.repeated(name, "delete", asked, None):
            return known

        def act(transaction: Transaction) -> None:
            check_not_listed(self._requests.get(transaction, name))
            transaction.want(name, DELETED)

        return self._requests.do(name, "delete", asked, None, act, waits=True)

    def declare(self, parent: str, listed: Mapping[str, str], file: str) -> list[str]:
        """Create the streams that a project file lists, given by identifier with their display
        names.

        New streams start; existing ones keep their state. Returns the names of those that the file
        no longer lists, which are deleted with everything recorded of them. Raises ResourceExists
        for the identifier of a stream that the API created.
        """
        with self._requests.database.transaction() as transaction:
            known = {one["name"]: one for one in transaction.all(ResourceKind.STREAM, parent)}
            for identifier, title in listed.items():
                name = new_name(parent, ResourceKind.STREAM, identifier)
                old = known.pop(str(name), None)
                if old is not None and PROJECT_FILE not in old:
                    raise ResourceExists(
                        f"the stream {identifier} was made by the API",
                        where=file,
                        hint="Give the mirror in this file another name, or delete the stream.",
                    )
                said = {"displayName": title, PROJECT_FILE: file}
                begun = old or {"state": StreamState.NOT_STARTED.name}
                document = self._requests.stamped({**begun, **said}, name)
                transaction.put(name, document)
                if old is None:
                    self._log(transaction, document, "STREAM_CREATED", f"{file} lists the stream")
                if document["state"] == StreamState.NOT_STARTED.name:
                    self.move(transaction, document, StreamMove.START)
            gone = [name for name, one in known.items() if PROJECT_FILE in one]
            for stream in gone:
                transaction.remove(stream)
        return gone

    def _changed(self, current: Document, sent: Document, paths: masks.Paths) -> Stream | None:
        """The stream after an update of these paths; None if that changes no more than the state.
        Raises InvalidRequest, ResourceNotFound, IllegalMove."""
        fields = [path for path in paths if path != _STATE]
        if paths and not fields:
            return None
        check_not_listed(current)
        following = shaped(Stream, masks.overlaid(current, sent, fields, STREAM_OUTPUT))
        self._check_stream(following)
        check_slot(shaped(Stream, current), following)
        check_target(current, following)
        return following

    def _check_stream(self, shape: Stream) -> None:
        """Check that a stream is complete, and that its profiles exist and have the right kinds."""
        source, destination = shape.source_config, shape.destination_config
        if source is None or destination is None:
            raise InvalidRequest(
                "a stream needs a source and a destination",
                where="sourceConfig, destinationConfig",
                hint="Name a connection profile in each (ST-001).",
            )
        if (shape.backfill_all is None) == (shape.backfill_none is None):
            raise InvalidRequest(
                "a stream has exactly one of backfillAll and backfillNone",
                where="backfillAll",
                hint='Send "backfillAll": {} to load the rows that are there (ST-282).',
            )
        self._check_pair(source.source_connection_profile, source, SOURCE_CONFIGS)
        self._check_pair(
            destination.destination_connection_profile, destination, DESTINATION_CONFIGS
        )
        check_excluded(shape)

    def _check_pair(self, profile: str, config: Shape, kinds: Mapping[str, str]) -> None:
        found, _secrets = self._profiles.of(profile)
        chosen = next((name for name in kinds if getattr(config, name) is not None), None)
        fitting = [name for name, kind in kinds.items() if kind == found.kind]
        if not fitting or chosen != fitting[0]:
            raise InvalidRequest(
                f"the configuration does not belong to the profile, which is a {found.kind}",
                where=profile,
                hint=f"Send {fitting[0]}." if fitting else "Name another connection profile.",
            )

    def move(self, transaction: Transaction, document: Document, move: StreamMove) -> Document:
        name = ResourceName.parse(document["name"])
        was = StreamState[document["state"]]
        state, now = moved(was, move, document["name"]), format_time(self._requests.clock.now())
        document = {**document, "state": state.name, "updateTime": now}
        if not {was, state} <= {StreamState.NOT_STARTED, StreamState.STARTING}:
            document.setdefault(FIRST_RUN, now)
        transaction.put(name, document)
        message = f"the stream is {state.name}"
        self._log(transaction, document, "STREAM_STATE_CHANGED", message, state.name)
        return document

    @staticmethod
    def _start_forced(transaction: Transaction, name: ResourceName, is_forced: bool) -> None:
        """Let the start that was asked for do without validation."""
        if is_forced:
            wanted = transaction.wanted().get(str(name), "")
            transaction.want(name, f"{wanted} {FORCED}".strip())

    def _log(
        self, transaction: Transaction, document: Document, code: str, message: str, state: str = ""
    ) -> None:
        time = format_time(self._requests.clock.now())
        transaction.log(document["name"], time, (code, message, state))
