"""A service that other machines reach: its certificate is for their names, not for this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from mirrorlake.cli.service import ServiceClient
from mirrorlake.errors import Unavailable
from tests.crash.forked import mirrorlake
from tests.server.service import PARENT, wait


def files_of(folder: Path, name: str) -> tuple[Path, Path]:
    """A certificate and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    own = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "lake.example.com")])
    now, number = datetime.now(UTC), x509.random_serial_number()
    since, until = now - timedelta(days=1), now + timedelta(days=1)
    made = x509.CertificateBuilder(own, own, key.public_key(), number, since, until)
    pem, none = serialization.Encoding.PEM, serialization.NoEncryption()
    files = folder / f"{name}.pem", folder / f"{name}.key"
    files[0].write_bytes(made.sign(key, hashes.SHA256()).public_bytes(pem))
    files[1].write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, none))
    return files


@pytest.mark.full
def test_commands_reach_a_service_with_tls_and_trust_its_certificate_alone(tmp_path: Path) -> None:
    (own, key), (other, _key) = (files_of(tmp_path, name) for name in ("own", "other"))
    folder, both = tmp_path / "service", tmp_path / "both.pem"
    both.write_text(key.read_text() + own.read_text() + other.read_text())
    options = ("--host", "0.0.0.0", "--tls-certificate", str(both), "--tls-key", str(both))
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "mirrorlake.cli.main", "serve", "--no-apply"),
            *("--folder", str(folder), "--port", "0", *options),
        ],
    )

    def streams() -> list[object] | None:
        try:
            return list(ServiceClient(folder, PARENT).every("streams", "streams"))
        except Unavailable:
            assert process.poll() is None
            return None

    try:
        wait(lambda: streams() is not None, 120)
        address = json.loads((folder / "serve.json").read_text())
        assert address["url"].startswith("https://127.0.0.1:")
        assert address["certificate"] == own.read_text().strip()
        for certificate in (other.read_text(), "none"):
            (folder / "serve.json").write_text(json.dumps({**address, "certificate": certificate}))
            with pytest.raises(Unavailable):
                ServiceClient(folder, PARENT).every("streams", "streams")
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.full
def test_a_certificate_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    own, key = files_of(tmp_path, "own")
    for certificate, private in ((tmp_path / "none", key), (key, own)):
        options = ("--tls-certificate", str(certificate), "--tls-key", str(private))
        done = mirrorlake("serve", "--folder", str(tmp_path / "a"), "--port", "0", *options)
        assert done.code == 2
        assert "certificate and key cannot be used" in done.error
