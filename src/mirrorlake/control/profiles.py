"""Creates, updates and deletes connection profiles, whose secrets are stored separately (ST-314,
ST-324)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from mirrorlake.control import masks
from mirrorlake.control.checks import OUTPUT, check_profile, check_targets, profiles_of, shaped
from mirrorlake.control.names import ResourceKind, ResourceName, new_name
from mirrorlake.control.reports import Document, Validation
from mirrorlake.control.requests import Asked, Requests, Validator
from mirrorlake.control.secrets import SecretFile, references_of, secrets_of, without_secrets
from mirrorlake.control.shapes.profiles import ConnectionProfile
from mirrorlake.control.store.database import Transaction
from mirrorlake.errors import IllegalMove, InvalidRequest


class Profiles:
    """All connection profiles of one service."""

    def __init__(self, requests: Requests, secrets: SecretFile, validator: Validator) -> None:
        self._requests, self._secrets, self._validator = requests, secrets, validator

    def of(self, name: str) -> tuple[ConnectionProfile, dict[str, str]]:
        """A stored profile with its secrets by path. Raises ResourceNotFound, InvalidRequest."""
        parsed = ResourceName.parse(name)
        if parsed.kind is not ResourceKind.PROFILE:
            raise InvalidRequest(
                f"{name} is not the name of a connection profile",
                hint="It looks like projects/p/locations/l/connectionProfiles/c.",
            )
        return ConnectionProfile.model_validate(self._requests.current(parsed)), self._secrets.of(
            name
        )

    def create(self, parent: str, identifier: str, sent: Document, asked: Asked) -> Document:
        """Returns an operation. Raises InvalidRequest, ResourceExists."""
        name = new_name(parent, ResourceKind.PROFILE, identifier)
        if known := self._requests.repeated(name, "create", asked, sent):
            return known
        shape = shaped(ConnectionProfile, sent)
        check_profile(shape)

        def act(transaction: Transaction) -> Document:
            self._requests.check_free(transaction, name)
            document = self._requests.stamped(without_secrets(shape), name)
            return self._put(transaction, name, document, dict(secrets_of(shape)), asked)

        validations = self._validated(shape, dict(secrets_of(shape)), asked)
        return self._requests.do(name, "create", asked, sent, act, validations, "ConnectionProfile")

    def update(self, name: ResourceName, sent: Document, mask: str, asked: Asked) -> Document:
        """Returns an operation. Raises InvalidRequest, ResourceNotFound, and IllegalMove for
        another place while a stream writes to the one there is."""
        if known := self._requests.repeated(name, "update", asked, [sent, mask]):
            return known
        paths = masks.parse_mask(mask)
        current, stored = self._requests.current(name), self._secrets.of(str(name))
        shape = shaped(ConnectionProfile, masks.overlaid(current, sent, paths, OUTPUT))
        check_profile(shape)
        with self._requests.database.transaction() as transaction:
            check_targets(current, shape.document(), transaction.all(ResourceKind.STREAM))
        secrets = dict(secrets_of(shape))
        # Input-only fields cannot be sent back: kept unless the mask names them (ST-324), or a
        # reference takes their place.
        asked_for = {".".join(path) for path in paths} | dict(references_of(shape)).keys()
        kept = {
            path: secret
            for path, secret in stored.items()
            if path.partition(".")[0] in shape.document()
            and not any(path == one or path.startswith(f"{one}.") for one in asked_for)
        }
        _check_hosts(current, shape.document(), kept.keys() - secrets.keys())
        secrets = kept | secrets

        def act(transaction: Transaction) -> Document:
            document = without_secrets(shape)
            document["createTime"] = self._requests.get(transaction, name)["createTime"]
            return self._put(
                transaction, name, self._requests.stamped(document, name), secrets, asked
            )

        validations = self._validated(shape, secrets, asked)
        return self._requests.do(
            name, "update", asked, [sent, mask], act, validations, "ConnectionProfile"
        )

    def delete(self, name: ResourceName, asked: Asked) -> Document:
        """Returns an operation. Raises ResourceNotFound, IllegalMove while a stream uses it."""
        if known := self._requests.repeated(name, "delete", asked, None):
            return known

        def act(transaction: Transaction) -> None:
            self._requests.get(transaction, name)
            for stream in transaction.all(ResourceKind.STREAM):
                if str(name) in profiles_of(stream):
                    raise IllegalMove(
                        f"the profile is used by {stream['name']}",
                        where=str(name),
                        hint="Delete the stream first.",
                    )
            transaction.remove(name)
            self._secrets.put(str(name), {})

        return self._requests.do(name, "delete", asked, None, act)

    def _put(
        self,
        transaction: Transaction,
        name: ResourceName,
        document: Document,
        secrets: Mapping[str, str],
        asked: Asked,
    ) -> Document:
        if not asked.validate_only:
            # First: a profile without its secrets would be visible; the reverse is harmless.
            self._secrets.put(str(name), secrets)
            transaction.put(name, document)
        return document

    def _validated(
        self, shape: ConnectionProfile, secrets: Mapping[str, str], asked: Asked
    ) -> Sequence[Validation]:
        return () if asked.force else self._validator.profile(shape, secrets)


def _check_hosts(current: Document, following: Document, secrets: Collection[str]) -> None:
    """Raises InvalidRequest for a profile that would send a stored secret to another host: a user
    who may change profiles cannot read their passwords, and must not be able to have one sent to a
    host of their choice."""
    for path in sorted(one for one in secrets if ".sslConfig." not in one):
        kind = path.partition(".")[0]
        if list(_hosts(current.get(kind))) != list(_hosts(following.get(kind))):
            raise InvalidRequest(
                "the profile names another host, and its stored secret is not sent there",
                where=path,
                hint="Send the secret again, and name it in updateMask too.",
            )


def _hosts(message: object) -> Iterator[object]:
    """The host names in a part of a profile."""
    if isinstance(message, Mapping):
        for name in sorted(message):
            if name in ("hostname", "domain"):
                yield message[name]
            yield from _hosts(message[name])
    elif isinstance(message, list):
        for one in message:
            yield from _hosts(one)
