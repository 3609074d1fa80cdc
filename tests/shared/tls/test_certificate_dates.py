"""The dates of certificates, of those that others made, too, and of bytes that are none."""

from base64 import b64encode
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.shared.tls.certificate_dates import BadCertificate, Validity, validity_of
from tests.authority import Authority, signed_by_itself


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)),
        (datetime(1999, 12, 31, tzinfo=UTC), datetime(2049, 12, 31, 23, 59, 59, tzinfo=UTC)),
        (datetime(2026, 1, 1, tzinfo=UTC), datetime(2050, 1, 1, tzinfo=UTC)),  # another form
    ],
)
def test_dates_are_those_that_it_was_made_with(begin: datetime, end: datetime) -> None:
    assert validity_of(signed_by_itself(begin, end)) == Validity(begin.timestamp(), end.timestamp())


def test_the_first_certificate_of_a_chain_counts(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.sign("a", lives=timedelta(days=10))
    alone = validity_of(files.cert.read_text())
    assert validity_of(files.cert.read_text() + authority.ca.read_text()) == alone
    assert 9.9 < (alone.not_after - datetime.now(UTC).timestamp()) / 86400 < 10.1


@pytest.mark.parametrize("text", ["", "no certificate", "-----BEGIN CERTIFICATE-----\n"])
def test_text_without_a_certificate(text: str) -> None:
    with pytest.raises(BadCertificate, match="no certificate in PEM form"):
        validity_of(text)


@given(st.binary(min_size=1))
def test_bytes_that_are_no_certificate(junk: bytes) -> None:
    pem = f"-----BEGIN CERTIFICATE-----\n{b64encode(junk).decode()}\n-----END CERTIFICATE-----"
    with pytest.raises(BadCertificate, match="cannot be read"):
        validity_of(pem)
