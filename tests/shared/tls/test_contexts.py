"""What two ends agree upon, and whom they refuse."""

import ssl
import time
from contextlib import suppress
from pathlib import Path

import pytest

from arriero.shared.tls.contexts import (
    NOTHING_GIVEN,
    ClientFiles,
    client_context,
    server_context,
)
from arriero.shared.tls.key_pair import KeyPair, TlsFileError
from tests.authority import Authority
from tests.tls_peers import Peer


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def pair(authority: Authority) -> KeyPair:
    files = authority.sign("server")
    return KeyPair(files.cert, files.key)


def shaken(server: ssl.SSLContext, client: ssl.SSLContext, name: str = "localhost") -> Peer:
    """The client after a handshake. Raises what either side does."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = server.wrap_bio(incoming, outgoing, server_side=True)

    def exchange(data: bytes) -> bytes:
        incoming.write(data)
        with suppress(ssl.SSLWantReadError):
            tls.do_handshake()
        return outgoing.read()

    peer = Peer(client, name)
    peer.shake_hands(exchange)
    return peer


def trusting(authority: Authority) -> ssl.SSLContext:
    return client_context(ClientFiles(authority.ca), time.time())


def test_the_newest_version_where_both_have_it(authority: Authority, pair: KeyPair) -> None:
    peer = shaken(server_context(pair, time.time()).context, trusting(authority))
    assert peer.tls.version() == "TLSv1.3"


def test_the_version_before_has_forward_secrecy_and_authenticated_encryption(
    authority: Authority, pair: KeyPair
) -> None:
    client = trusting(authority)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    peer = shaken(server_context(pair, time.time()).context, client)
    cipher = peer.tls.cipher()
    assert cipher is not None and cipher[0].startswith("ECDHE-")
    for server in (server_context(pair, time.time()).context, client):
        names = [each["name"] for each in server.get_ciphers()]
        assert all("GCM" in name or "CHACHA20" in name for name in names)
        assert all(name.startswith(("ECDHE-", "TLS_")) for name in names)


def test_older_versions_and_weaker_ciphers_are_refused(authority: Authority, pair: KeyPair) -> None:
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(authority.ca)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    client.set_ciphers("ECDHE-ECDSA-AES128-SHA")
    with pytest.raises(ssl.SSLError, match="NO_SHARED_CIPHER"):
        shaken(server_context(pair, time.time()).context, client)
    assert server_context(pair, time.time()).context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_a_client_trusts_whom_it_was_told_and_by_name(authority: Authority, pair: KeyPair) -> None:
    server = server_context(pair, time.time()).context
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shaken(server, trusting(authority), "other.example")
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate"):
        shaken(server, client_context(NOTHING_GIVEN, time.time()))


def test_a_clients_certificate_is_asked_for_and_checked(
    authority: Authority, pair: KeyPair, tmp_path: Path
) -> None:
    server = server_context(pair, time.time(), authority.ca).context
    shaken(server, trusting(authority))  # a browser has none
    agent = authority.sign("agent", "agent.example")
    with_one = ClientFiles(authority.ca, KeyPair(agent.cert, agent.key))
    shaken(server, client_context(with_one, time.time()))
    other = Authority(tmp_path, "other").sign("stranger")
    strange = ClientFiles(authority.ca, KeyPair(other.cert, other.key))
    with pytest.raises(ssl.SSLCertVerificationError):
        shaken(server, client_context(strange, time.time()))


def test_a_file_that_is_missing_is_named_by_its_flag(tmp_path: Path, pair: KeyPair) -> None:
    with pytest.raises(TlsFileError, match="--tls-ca: cannot read"):
        client_context(ClientFiles(tmp_path / "none"), time.time())
    with pytest.raises(TlsFileError, match="--agent-ca: cannot read"):
        server_context(pair, time.time(), tmp_path / "none")
