"""A certificate with its private key, from two files; errors name the flag of the file."""

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from .certificate_dates import BadCertificate, Validity, validity_of


class TlsFileError(Exception):
    """A TLS file cannot be used. The message is one line that begins with the file's flag."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """The PEM files of `--tls-cert` and `--tls-key`; the certificate is the first of its chain."""

    cert: Path
    key: Path


class _NeedsPassword(Exception):
    """The key is encrypted."""


def use_key_pair(context: ssl.SSLContext, pair: KeyPair, now: float) -> Validity:
    """Load the certificate into `context`. Raises `TlsFileError`, also if it has expired.

    `now` is in seconds since 1970.
    """
    validity = _validity(pair.cert)
    if now >= validity.not_after:
        day = datetime.fromtimestamp(validity.not_after, UTC)
        raise TlsFileError(f"--tls-cert: {pair.cert} expired on {day:%Y-%m-%d %H:%M} UTC; renew it")
    if "PRIVATE KEY-----" not in read("--tls-key", pair.key):
        raise TlsFileError(f"--tls-key: {pair.key} holds no private key in PEM form")
    try:
        context.load_cert_chain(pair.cert, pair.key, password=_refuse)
    except _NeedsPassword as error:
        raise TlsFileError(
            f"--tls-key: {pair.key} is encrypted; decrypt it: openssl pkey -in {pair.key} -out NEW"
        ) from error
    except (ssl.SSLError, OSError) as error:
        raise TlsFileError(_why_not(pair, error)) from error
    return validity


def trust(context: ssl.SSLContext, flag: str, ca: Path) -> None:
    """Make `context` trust the certificates in the file `ca`. Raises `TlsFileError`."""
    if "-----BEGIN CERTIFICATE-----" not in read(flag, ca):
        raise TlsFileError(f"{flag}: {ca} holds no certificate in PEM form")
    try:
        context.load_verify_locations(cafile=ca)
    except (ssl.SSLError, OSError) as error:
        raise TlsFileError(f"{flag}: {ca} cannot be used: {_reason(error)}") from error


def read(flag: str, file: Path) -> str:
    """Return the text of `file`. Raises `TlsFileError`."""
    try:
        return file.read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise TlsFileError(f"{flag}: cannot read {file}: {error.strerror}") from error


def _validity(cert: Path) -> Validity:
    try:
        return validity_of(read("--tls-cert", cert))
    except BadCertificate as error:
        raise TlsFileError(f"--tls-cert: {cert}: {error}") from error


def _refuse() -> str:
    """Raise an error instead of a password. OpenSSL calls this if the key is encrypted."""
    raise _NeedsPassword


def _why_not(pair: KeyPair, error: OSError) -> str:
    reason = _reason(error)
    if "MISMATCH" in reason or reason == "NO_CERTIFICATE_ASSIGNED":  # another kind of key
        return f"--tls-key: {pair.key} does not belong to the certificate in {pair.cert}"
    if "TOO_SMALL" in reason:
        return f"--tls-cert: the key of {pair.cert} is too short; RSA keys need 2048 bits"
    return f"--tls-cert, --tls-key: {pair.cert} and {pair.key} cannot be used: {reason}"


def _reason(error: OSError) -> str:
    """Return the reason that OpenSSL or the operating system gives."""
    return str(getattr(error, "reason", None) or error.strerror or error)
