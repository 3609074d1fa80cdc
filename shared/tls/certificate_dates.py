"""The dates between which a certificate is valid, read from its DER form (RFC 5280, 4.1).

Python's `ssl` gives them only for certificates of verified peers, not for our own.
"""

import re
from base64 import b64decode
from dataclasses import dataclass
from datetime import UTC, datetime

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]+)-----END CERTIFICATE-----")
_SEQUENCE, _UTC_TIME, _GENERALIZED_TIME, _VERSION = 0x30, 0x17, 0x18, 0xA0


class BadCertificate(Exception):
    """The text has no certificate, or one that cannot be read."""


@dataclass(frozen=True, slots=True)
class Validity:
    """The dates of a certificate in seconds since 1970."""

    not_before: float
    not_after: float


def validity_of(pem: str) -> Validity:
    """Return the dates of the first certificate in `pem`. Raises `BadCertificate`."""
    found = _PEM.search(pem)
    if found is None:
        raise BadCertificate("there is no certificate in PEM form")
    try:
        return _validity(b64decode(found[1]))
    except (ValueError, IndexError) as error:
        raise BadCertificate("the certificate cannot be read") from error


def _validity(der: bytes) -> Validity:
    fields = _Reader(_Reader(_Reader(der).take(_SEQUENCE)).take(_SEQUENCE))
    if fields.tag == _VERSION:
        fields.skip()
    for _ in ("serial number", "signature", "issuer"):
        fields.skip()
    dates = _Reader(fields.take(_SEQUENCE))
    return Validity(_seconds(dates), _seconds(dates))


class _Reader:
    """Reads the elements of DER one after the other."""

    def __init__(self, der: bytes) -> None:
        self._rest = der

    @property
    def tag(self) -> int:
        return self._rest[0]

    def take(self, tag: int) -> bytes:
        """Return the content of the next element. Raises `ValueError` if its tag is not `tag`."""
        if self.tag != tag:
            raise ValueError(f"tag {self.tag:#x}, not {tag:#x}")
        return self.skip()

    def skip(self) -> bytes:
        """Return the content of the next element, whatever its tag."""
        length, start = self._rest[1], 2
        if length & 0x80:
            start += length & 0x7F
            length = int.from_bytes(self._rest[2:start])
        content = self._rest[start : start + length]
        if len(content) < length:
            raise ValueError("it ends early")
        self._rest = self._rest[start + length :]
        return content


def _seconds(dates: _Reader) -> float:
    """Read a date in UTC (`Z`); a two-digit year is one from 1950 to 2049."""
    if dates.tag == _UTC_TIME:
        text = dates.take(_UTC_TIME).decode("ascii")
        text = ("19" if text[:2] >= "50" else "20") + text
    else:
        text = dates.take(_GENERALIZED_TIME).decode("ascii")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
