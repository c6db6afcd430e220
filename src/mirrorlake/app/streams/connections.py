"""From a stored profile to a way to connect: a URL with its secrets, which is never printed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, urlencode

from mirrorlake.control.secrets import variable_of
from mirrorlake.control.shapes.profiles import DESTINATIONS, ConnectionProfile, PostgresqlProfile
from mirrorlake.errors import NotOffered, UsageError

CONNECT_SECONDS = 10
"""How long a server may take to answer before it counts as not there."""
_PREFIX = "postgresqlProfile"
NOT_LIVE = {
    "mysql_profile": "MySQL",
    "oracle_profile": "Oracle",
    "sql_server_profile": "SQL Server",
    "salesforce_profile": "Salesforce",
    "mongodb_profile": "MongoDB",
}
"""Sources that this release does not read."""


def check_live(profile: ConnectionProfile) -> None:
    """Raises NotOffered for a source, or a way to it, that this release does not have."""
    if profile.kind in NOT_LIVE:
        raise NotOffered(
            f"this release does not read {NOT_LIVE[profile.kind]}",
            where=profile.name or "connectionProfile",
            hint="Use a source on PostgreSQL.",
        )
    check_connectivity(profile)


def check_connectivity(profile: ConnectionProfile) -> None:
    """Raises NotOffered for a way to a source or a destination that would not be taken."""
    way = "staticServiceIpConnectivity" + (
        ""
        if profile.kind in DESTINATIONS
        else ", and reach the host through a tunnel or network of your own"
    )
    for name in ("forward_ssh_connectivity", "private_connectivity"):
        if getattr(profile, name) is not None:
            raise NotOffered(
                f"{name.replace('_', ' ')} is not offered",
                where=profile.name or "connectionProfile",
                hint=f"Use {way}.",
            )


def postgres_url(profile: ConnectionProfile, secrets: Mapping[str, str], folder: Path) -> str:
    """folder: for certificates, which libpq reads from files. Raises NotOffered, UsageError."""
    check_live(profile)
    database = profile.postgresql_profile
    assert database is not None
    facts = {
        "host": database.hostname,
        "port": str(database.port),
        "connect_timeout": str(CONNECT_SECONDS),
        **_tls(database, secrets, folder),
    }
    password = _password(database, secrets)
    login = quote(database.username, safe="") + (f":{quote(password, safe='')}" if password else "")
    return (
        f"postgresql://{login}@/{quote(database.database, safe='')}"
        f"?{urlencode(facts, quote_via=quote)}"
    )


def _password(database: PostgresqlProfile, secrets: Mapping[str, str]) -> str:
    reference = database.secret_manager_stored_password
    if not reference:
        return secrets.get(f"{_PREFIX}.password", "")
    name = variable_of(reference)
    value = os.environ.get(name, "")
    if not value:
        raise UsageError(
            f"environment variable {name} is not set",
            where="secretManagerStoredPassword",
            hint="Set it where `mirrorlake serve` runs.",
        )
    return value


def _tls(database: PostgresqlProfile, secrets: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The options of libpq for certificates: their files, and to verify the server."""
    config = database.ssl_config
    if config is None:
        return {}
    chosen = config.server_verification or config.server_and_client_verification
    if chosen is None:
        return {}
    if chosen.server_certificate_hostname:
        raise NotOffered(
            "another host name in the server's certificate is not offered",
            where="sslConfig.serverCertificateHostname",
            hint="Leave it out: the certificate is then checked against the authority alone.",
        )
    part = (
        "serverVerification"
        if config.server_verification is not None
        else "serverAndClientVerification"
    )
    facts = {"sslmode": "verify-ca"}
    for field, option in (
        ("caCertificate", "sslrootcert"),
        ("clientCertificate", "sslcert"),
        ("clientKey", "sslkey"),
    ):
        if secret := secrets.get(f"{_PREFIX}.sslConfig.{part}.{field}"):
            facts[option] = str(_certificate(folder, secret))
    needed = {"sslrootcert": ("caCertificate", "the certificate of the authority is missing")}
    if config.server_and_client_verification is not None:
        needed["sslcert"] = ("clientCertificate", "the certificate of the client is missing")
        needed["sslkey"] = ("clientKey", "the key of the client is missing")
    for option, (field, what) in needed.items():
        if option not in facts:
            raise UsageError(
                what, where=f"{_PREFIX}.sslConfig.{part}.{field}", hint="Send it as PEM."
            )
    return facts


def _certificate(folder: Path, text: str) -> Path:
    """A file with this text that only this user reads."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.pem"
    if not path.exists():
        staged = path.with_suffix(f".{os.getpid()}")
        number = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(text)
        staged.replace(path)
    return path
