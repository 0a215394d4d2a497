"""The server's side of TLS: its certificate and key, read again when the files change."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

LOOK_SECONDS: Final = 2.0
"""How often the files are looked at."""

Tell = Callable[[str], None]


class BadCertificate(Exception):
    """The message says what is wrong with which file."""


class Certificate:
    """Who connects gets the newest pair that could be used; connections that stand keep theirs."""

    def __init__(self, certificate: str, key: str, tell: Tell) -> None:
        """`tell` hears of every change. Raises `BadCertificate`."""
        self._tell = tell
        self._looked_at = 0.0
        self.replace(certificate, key)

    def replace(self, certificate: str, key: str) -> None:
        """Raises `BadCertificate`, and then everything stays as it was."""
        marks = _marks(certificate, key)
        self.context = context_of(certificate, key)
        self.path, self._key, self._marks = certificate, key, marks

    def look(self, now: float) -> None:
        if now - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = now
        marks = _marks(self.path, self._key)
        if marks == self._marks:
            return
        self._marks = marks
        try:
            self.context = context_of(self.path, self._key)
        except BadCertificate as error:
            self._tell(f"{error}; the API goes on with the certificate that it had")
        else:
            self._tell(f"the API has a new certificate, of {self.path}")


def context_of(certificate: str, key: str) -> ssl.SSLContext:
    """Raises `BadCertificate`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    for name, path in (("tls_cert", certificate), ("tls_key", key)):
        try:
            Path(path).open("rb").close()
        except OSError as error:
            raise BadCertificate(f"{name}: {path}: {error.strerror or error}") from error
    try:
        # A key with a passphrase would have OpenSSL ask on the terminal, and wait.
        context.load_cert_chain(certificate, key, password="")
    except (ssl.SSLError, ValueError, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise BadCertificate(
            f"tls_cert {certificate} and tls_key {key} are no certificate in PEM with its key, "
            f"without a passphrase: {reason}"
        ) from error
    return context


def _marks(*paths: str) -> list[tuple[int, int, int] | None]:
    """What tells a file from the one that was there before."""
    found: list[tuple[int, int, int] | None] = []
    for path in paths:
        try:
            status = Path(path).stat()
        except OSError:
            found.append(None)
        else:
            found.append((status.st_ino, status.st_mtime_ns, status.st_size))
    return found
