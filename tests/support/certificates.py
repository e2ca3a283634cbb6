"""A certificate authority that nobody else trusts, and a server's certificate of it, made by the openssl program."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

CONFIG = """
[req]
distinguished_name = none
[none]
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign
subjectKeyIdentifier = hash
[server]
subjectAltName = DNS:localhost
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
"""


def authority(folder: Path) -> Path:
    """Make an authority in a folder; return the file that whoever trusts it names in SSL_CERT_FILE."""
    (folder / "openssl.cnf").write_text(CONFIG)
    _make(folder, "authority")
    return folder / "authority.pem"


def server_context(folder: Path) -> ssl.SSLContext:
    """Return how a server on localhost speaks TLS with a certificate of the authority in a folder."""
    _make(folder, "server", "-CA", "authority.pem", "-CAkey", "authority.key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    return context


def _make(folder: Path, name: str, *signed_by: str) -> None:
    if not shutil.which("openssl"):
        pytest.skip("needs the openssl program")
    command = f"openssl req -x509 -config openssl.cnf -extensions {name} -days 2 -nodes -newkey ec"
    command += f" -pkeyopt ec_paramgen_curve:prime256v1 -subj /CN=burnish-test-{name}"
    command += f" -keyout {name}.key -out {name}.pem"
    subprocess.run([*command.split(), *signed_by], cwd=folder, check=True, capture_output=True)
