"""TLS between a transport and a protocol, both fakes; the client is one in memory."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from arriero.balancer.tls.tls_protocol import (
    DATA_PER_IDLE_RECORD,
    MAX_IDLE_RECORDS,
    RECORDS_AT_ONCE,
    TlsProtocol,
    TlsTransport,
)
from arriero.shared.tls.contexts import ClientFiles, client_context, server_context
from arriero.shared.tls.key_pair import KeyPair
from tests.authority import Authority
from tests.tls_peers import KeyUpdates, Peer
from tests.waiting import HANGS

PLAIN = b"HTTP/1.1 400 Bad Request\r\n\r\nspeak TLS"


class FakeTcp(asyncio.Transport):
    """A transport that keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__({"peername": ("192.0.2.7", 1), "socket": "a socket"})
        self.written = b""
        self.is_closed = self.is_paused = False
        self.aborted = asyncio.Event()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.is_closed
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.aborted.set()

    def is_closing(self) -> bool:
        return self.is_closed or self.aborted.is_set()

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def is_reading(self) -> bool:
        return not self.is_paused

    def get_write_buffer_size(self) -> int:
        return len(self.written)

    def taken(self) -> bytes:
        data, self.written = self.written, b""
        return data


class Above(asyncio.Protocol):
    """The protocol above: keeps what it hears."""

    def __init__(self) -> None:
        self.heard = b""
        self.events: list[str] = []
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.heard += data

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def eof_received(self) -> None:
        self.events.append("eof")

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")


class Connected:
    """The protocol under test between its fakes, and a client in memory."""

    def __init__(self, folder: Path, *, handshake_timeout: float = 60.0) -> None:
        authority = Authority(folder)
        files = authority.sign("server")
        now = time.time()
        server = server_context(KeyPair(files.cert, files.key), now, authority.ca)
        agent = authority.sign("agent")
        shown = ClientFiles(authority.ca, KeyPair(agent.cert, agent.key))
        self.client = Peer(client_context(ClientFiles(authority.ca), now))
        self.agent = Peer(client_context(shown, now))
        self.distrusting = Peer(client_context(ClientFiles(), now))
        self.above = Above()
        self.tcp = FakeTcp()
        self.failures: list[tuple[str, str]] = []
        self.num_lost = 0
        self.protocol = TlsProtocol(
            server.context,
            lambda: self.above,
            handshake_timeout=handshake_timeout,
            plain_answer=PLAIN,
            on_failure=lambda peer, reason: self.failures.append((peer, reason)),
            on_lost=self.lost,
        )
        self.protocol.connection_made(self.tcp)

    def lost(self) -> None:
        self.num_lost += 1

    def exchange(self, data: bytes) -> bytes:
        """The client's bytes, one by one as a slow network may bring them; what came back."""
        half = len(data) // 2
        for piece in (data[:1], data[1:half], data[half:]):
            if piece:
                self.protocol.data_received(piece)
        return self.tcp.taken()

    def shake_hands(self) -> None:
        self.client.shake_hands(self.exchange)
        assert self.above.events == ["made"]

    def hear(self) -> bytes:
        """What the client can read of what was written."""
        self.client.take(self.tcp.taken())
        return self.client.heard()


@pytest.fixture
async def connected(tmp_path: Path) -> AsyncIterator[Connected]:
    connected = Connected(tmp_path)
    yield connected
    connected.protocol.connection_lost(None)


async def test_bytes_pass_both_ways(connected: Connected) -> None:
    connected.shake_hands()
    connected.exchange(connected.client.sent(b"ask"))
    assert connected.above.heard == b"ask"
    connected.above.transport.write(b"answer")
    connected.above.transport.writelines([b", and", b" more"])
    assert connected.hear() == b"answer, and more"


async def test_large_data_is_whole(connected: Connected) -> None:
    connected.shake_hands()
    data = bytes(range(256)) * 4096
    connected.exchange(connected.client.sent(data))
    assert connected.above.heard == data
    connected.above.transport.write(memoryview(data))
    connected.above.transport.write(b"")
    assert connected.hear() == data


async def test_tiny_records_are_decrypted_some_at_a_time(connected: Connected) -> None:
    connected.shake_hands()
    records = b"".join(connected.client.sent(b"x") for _ in range(10 * RECORDS_AT_ONCE))
    connected.protocol.data_received(records)
    assert len(connected.above.heard) == RECORDS_AT_ONCE
    assert connected.tcp.is_paused, "more would have to be held"
    while connected.tcp.is_paused:
        before = len(connected.above.heard)
        await asyncio.sleep(0)
        assert len(connected.above.heard) - before <= RECORDS_AT_ONCE
    assert len(connected.above.heard) == 10 * RECORDS_AT_ONCE


async def test_records_without_data_are_work_and_few_are_taken(
    connected: Connected, tmp_path: Path
) -> None:
    connected.client.tls.context.keylog_filename = str(tmp_path / "secrets")
    connected.shake_hands()
    updates = KeyUpdates.logged(tmp_path / "secrets")
    connected.protocol.data_received(b"".join(updates.next() for _ in range(MAX_IDLE_RECORDS)))
    assert not connected.tcp.is_closing()
    connected.protocol.data_received(updates.next(b"ask", wants_answer=False))
    assert connected.above.heard == b"ask"
    assert connected.tcp.aborted.is_set(), "a few bytes pay for no record without data"
    assert connected.failures == [("192.0.2.7", "the client sends records without data")]


async def test_of_many_records_without_data_no_more_than_some_are_decrypted(
    connected: Connected, tmp_path: Path
) -> None:
    connected.client.tls.context.keylog_filename = str(tmp_path / "secrets")
    connected.shake_hands()
    connected.tcp.taken()
    updates = KeyUpdates.logged(tmp_path / "secrets")
    connected.protocol.data_received(b"".join(updates.next() for _ in range(1000)))
    assert connected.tcp.aborted.is_set()
    answer = len(connected.tcp.taken())
    assert answer <= MAX_IDLE_RECORDS * 27, "each of these is answered with one of 27 bytes"


async def test_keys_may_change_as_often_as_data_comes(connected: Connected, tmp_path: Path) -> None:
    connected.client.tls.context.keylog_filename = str(tmp_path / "secrets")
    connected.shake_hands()
    updates = KeyUpdates.logged(tmp_path / "secrets")
    for _ in range(10 * MAX_IDLE_RECORDS):
        connected.protocol.data_received(updates.next(b"x" * DATA_PER_IDLE_RECORD))
        await asyncio.sleep(0)
    assert len(connected.above.heard) == 10 * MAX_IDLE_RECORDS * DATA_PER_IDLE_RECORD
    assert connected.failures == []


async def test_a_handshake_in_tiny_records_is_read_some_at_a_time(connected: Connected) -> None:
    with pytest.raises(ssl.SSLWantReadError):
        connected.client.tls.do_handshake()
    hello = connected.client._outgoing.read()[5:]
    tiny = b"".join(b"\x16\x03\x01\x00\x01" + bytes([each]) for each in hello)
    connected.protocol.data_received(tiny)
    assert connected.tcp.is_paused
    assert connected.tcp.written == b""
    for _ in range(len(hello) // RECORDS_AT_ONCE + 1):
        await asyncio.sleep(0)
    assert not connected.tcp.is_paused
    connected.client.take(connected.tcp.taken())
    connected.client.shake_hands(connected.exchange)
    assert connected.above.events == ["made"]


async def test_a_record_that_is_too_long_is_refused_at_once(connected: Connected) -> None:
    connected.shake_hands()
    connected.protocol.data_received(b"\x17\x03\x03\xff\xff")
    assert connected.tcp.is_closed
    assert len(connected.failures) == 1


async def test_what_waits_is_what_the_transport_below_holds(connected: Connected) -> None:
    connected.shake_hands()
    connected.tcp.taken()
    transport = connected.above.transport
    assert transport.get_write_buffer_size() == 0
    transport.write(b"x" * 1000)
    assert 1000 < transport.get_write_buffer_size() < 1100
    connected.protocol.pause_writing()
    connected.protocol.resume_writing()
    assert connected.above.events == ["made", "pause", "resume"]


async def test_who_pauses_reading_gets_nothing_until_it_resumes(connected: Connected) -> None:
    connected.shake_hands()
    transport = connected.above.transport
    transport.pause_reading()
    assert connected.tcp.is_paused and not transport.is_reading()
    connected.protocol.data_received(connected.client.sent(b"held back"))
    assert connected.above.heard == b""
    transport.resume_reading()
    assert not connected.tcp.is_paused and transport.is_reading()
    await asyncio.sleep(0)
    assert connected.above.heard == b"held back"


async def test_the_end_is_said_and_what_was_written_still_leaves(connected: Connected) -> None:
    connected.shake_hands()
    transport = connected.above.transport
    transport.write(b"last words")
    transport.close()
    assert connected.tcp.is_closed and transport.is_closing()
    assert connected.hear() == b"last words"
    assert connected.client.tls.read() == b""  # a goodbye, not a cut
    transport.write(b"nothing more")
    transport.close()
    connected.protocol.data_received(connected.client.sent(b"too late"))
    assert connected.above.heard == b""
    connected.protocol.connection_lost(None)
    assert connected.above.events == ["made", "lost"]


async def test_a_client_that_says_goodbye_is_let_go(connected: Connected) -> None:
    connected.shake_hands()
    connected.exchange(connected.client.goodbye())
    assert connected.tcp.is_closed
    assert connected.failures == []


async def test_a_client_that_just_goes(connected: Connected) -> None:
    connected.shake_hands()
    connected.protocol.eof_received()
    connected.protocol.connection_lost(ConnectionResetError())
    assert connected.above.events == ["made", "eof", "lost"]
    assert connected.num_lost == 0, "the protocol above tells of that"


async def test_bytes_that_were_changed_on_the_way_end_it(connected: Connected) -> None:
    connected.shake_hands()
    sent = bytearray(connected.client.sent(b"ask"))
    sent[-1] ^= 1
    connected.protocol.data_received(bytes(sent))
    assert connected.tcp.is_closed
    assert connected.above.heard == b""
    [(peer, reason)] = connected.failures
    assert peer == "192.0.2.7"
    assert "MAC" in reason or "RECORD" in reason  # the words of an older and a newer OpenSSL


async def test_plain_http_is_answered_with_a_sentence(connected: Connected) -> None:
    connected.protocol.data_received(b"GET / HTTP/1.1\r\n")
    assert connected.tcp.taken() == PLAIN
    assert connected.tcp.is_closed
    connected.protocol.data_received(b"Host: localhost\r\n\r\n")
    connected.protocol.connection_lost(None)
    assert (connected.num_lost, connected.above.events) == (1, [])
    assert connected.failures == [("192.0.2.7", "the client does not speak TLS")]


@pytest.mark.parametrize("junk", [b"\x00\x01", b"\x80", b"\x16nonsense" * 10])
async def test_junk_is_answered_with_no_sentence(connected: Connected, junk: bytes) -> None:
    connected.protocol.data_received(junk)
    assert connected.tcp.is_closed
    assert PLAIN not in connected.tcp.taken()
    assert len(connected.failures) == 1


async def test_a_client_that_distrusts_us_is_told_of(connected: Connected) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        connected.distrusting.shake_hands(connected.exchange)
    connected.exchange(connected.distrusting._outgoing.read())
    assert connected.tcp.is_closed
    [(_, reason)] = connected.failures
    assert "UNKNOWN_CA" in reason


async def test_who_asks_for_too_little_is_told_with_an_alert(connected: Connected) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE-ECDSA-AES128-SHA")
    with pytest.raises(ssl.SSLError, match="HANDSHAKE_FAILURE"):
        Peer(context).shake_hands(connected.exchange)
    assert connected.tcp.is_closed
    assert connected.failures == [("192.0.2.7", "NO_SHARED_CIPHER")]


async def test_a_slow_handshake_is_cut(tmp_path: Path) -> None:
    connected = Connected(tmp_path, handshake_timeout=0.0)
    connected.protocol.data_received(b"\x16")
    async with asyncio.timeout(HANGS):
        await connected.tcp.aborted.wait()
    connected.protocol.connection_lost(None)
    assert connected.num_lost == 1


async def test_a_handshake_that_is_done_is_not_cut(tmp_path: Path) -> None:
    connected = Connected(tmp_path, handshake_timeout=0.0)
    connected.shake_hands()
    for _ in range(3):
        await asyncio.sleep(0)
    assert not connected.tcp.aborted.is_set()
    connected.protocol.abort()
    assert connected.tcp.aborted.is_set()


async def test_what_is_known_of_the_peer(connected: Connected) -> None:
    connected.shake_hands()
    transport = connected.above.transport
    assert isinstance(transport, TlsTransport)
    assert transport.get_extra_info("peername") == ("192.0.2.7", 1)
    assert transport.get_extra_info("socket") == "a socket"
    assert transport.get_extra_info("sslcontext") is not None
    assert transport.get_extra_info("ssl_object").version() == "TLSv1.3"
    assert not transport.get_extra_info("peercert")
    assert transport.get_extra_info("nothing", "known") == "known"
    assert not transport.can_write_eof()


async def test_an_agents_certificate_is_seen(connected: Connected) -> None:
    connected.agent.shake_hands(connected.exchange)
    assert connected.above.transport.get_extra_info("peercert")["subjectAltName"]
