"""Key pairs that can be used, and what is said of those that cannot."""

import ssl
import time
from datetime import timedelta
from pathlib import Path

import pytest

from arriero.shared.tls.certificate_dates import validity_of
from arriero.shared.tls.key_pair import KeyPair, TlsFileError, trust, use_key_pair
from tests.authority import Authority, encrypted, write_rsa_key


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def used(cert: Path, key: Path) -> float:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    return use_key_pair(context, KeyPair(cert, key), time.time()).not_after


def problem(cert: Path, key: Path) -> str:
    with pytest.raises(TlsFileError) as error:
        used(cert, key)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_pair_is_used_and_its_dates_are_told(authority: Authority) -> None:
    files = authority.sign("server")
    assert used(files.cert, files.key) == validity_of(files.cert.read_text()).not_after


def test_an_expired_one_says_when(authority: Authority) -> None:
    files = authority.sign("old", lives=timedelta(days=-1))
    told = problem(files.cert, files.key)
    assert told.startswith(f"--tls-cert: {files.cert} expired on 20")
    assert told.endswith(" UTC; renew it")


def test_a_key_of_another(authority: Authority) -> None:
    files, other = authority.sign("a"), authority.sign("b")
    told = problem(files.cert, other.key)
    assert told == f"--tls-key: {other.key} does not belong to the certificate in {files.cert}"


def test_an_rsa_key_beside_another_kind_of_certificate(authority: Authority) -> None:
    files = authority.sign("a")
    write_rsa_key(files.key)
    assert problem(files.cert, files.key).startswith("--tls-key: ")
    assert "does not belong" in problem(files.cert, files.key)


def test_an_encrypted_key_and_what_to_do(authority: Authority) -> None:
    files = authority.sign("a")
    key = encrypted(files.key)
    told = problem(files.cert, key)
    assert told.startswith(f"--tls-key: {key} is encrypted; decrypt it: openssl pkey")


def test_files_that_cannot_be_read(authority: Authority, tmp_path: Path) -> None:
    files, none = authority.sign("a"), tmp_path / "none"
    assert problem(none, files.key) == f"--tls-cert: cannot read {none}: No such file or directory"
    assert problem(files.cert, none) == f"--tls-key: cannot read {none}: No such file or directory"
    assert problem(tmp_path, files.key) == f"--tls-cert: cannot read {tmp_path}: Is a directory"


def test_files_that_hold_something_else(authority: Authority) -> None:
    files = authority.sign("a")
    assert problem(files.key, files.cert).startswith(f"--tls-cert: {files.key}: there is no")
    assert problem(files.cert, files.cert) == (
        f"--tls-key: {files.cert} holds no private key in PEM form"
    )
    files.key.write_text("-----BEGIN PRIVATE KEY-----\nnonsense\n-----END PRIVATE KEY-----\n")
    assert problem(files.cert, files.key).startswith("--tls-cert, --tls-key: ")


def test_an_authority_has_to_be_one(authority: Authority, tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trust(context, "--tls-ca", authority.ca)
    assert context.cert_store_stats()["x509_ca"] == 1
    empty, broken = tmp_path / "empty", tmp_path / "broken"
    empty.touch()
    broken.write_text("-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n")
    with pytest.raises(TlsFileError, match=r"--agent-ca: .*empty holds no certificate"):
        trust(context, "--agent-ca", empty)
    with pytest.raises(TlsFileError, match=r"--agent-ca: .*broken cannot be used"):
        trust(context, "--agent-ca", broken)
