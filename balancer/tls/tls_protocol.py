"""TLS between a TCP transport and the protocol above, on the server's side.

The event loop's own TLS has three faults. It buffers hundreds of kilobytes per connection in
addition to the transport's buffer. It forgets the protocol above if a handshake fails. It blocks
for nearly a second on 1.6 MB of records without data. This module differs:

- Written data is encrypted at once, so the transport's buffer is the only buffer. A client that
  stops reading is noticed as soon as without TLS, and occupies as little memory.
- Each connection asks for its context, so a new certificate needs no restart.
- The protocol above is made after the handshake, which has a deadline.
- Plain HTTP is answered with a sentence.
- OpenSSL gets one record at a time, and a limited number in each turn of the event loop, because
  OpenSSL reads all records without data at once. Such a record costs as much as 50 kB of data,
  because a new key is derived. A peer that sends too many of them for its data is cut off.
"""

import asyncio
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, cast

READ_SIZE = 64 * 1024
RECORDS_AT_ONCE = 64
"""TLS records that are decrypted in one turn of the event loop.

A record may hold only one byte.
"""
MAX_IDLE_RECORDS = 32
"""Records without data that a peer may send after the handshake."""
DATA_PER_IDLE_RECORD = 16 * 1024
"""Bytes of data for which a peer may send one more record without data.

Peers change their keys after gigabytes, or at most once per MB.
"""
_HEAD = 5
"""Bytes before each record: type, version, length (RFC 8446, 5.1)."""
_LONGEST_RECORD = 2**14 + 2048
"""Maximum bytes of a record of TLS 1.2 (RFC 5246, 6.2.3). Records of TLS 1.3 are shorter."""
_HANDSHAKE = 0x16
"""First byte of every TLS connection (RFC 8446, 5.1)."""


class TlsProtocol(asyncio.Protocol):
    """One connection: does the handshake, and passes decrypted bytes to the protocol above."""

    def __init__(
        self,
        context: ssl.SSLContext,
        make: Callable[[], asyncio.Protocol],
        *,
        handshake_timeout: float,
        plain_answer: bytes,
        on_failure: Callable[[str, str], None],
        on_lost: Callable[[], None],
    ) -> None:
        """Make the protocol. `make` is called after the handshake and returns the protocol above.

        If TLS fails, `on_failure` gets the peer and the reason. If the connection ends before the
        call of `make`, `on_lost` is called; after this call, the protocol above is told instead.
        """
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._make = make
        self._handshake_timeout = handshake_timeout
        self._plain_answer = plain_answer
        self._on_failure = on_failure
        self._on_lost = on_lost
        self._above: asyncio.Protocol | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._transport: TlsTransport | None = None
        self._has_begun = False
        self._raw = b""
        """Bytes that have arrived. The bytes from `_at` on are not decrypted yet."""
        self._at = 0
        self._idle_left: float = MAX_IDLE_RECORDS
        self._is_behind = False
        """Whether complete records have arrived that are not decrypted yet."""
        self._is_over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake, which has a deadline."""
        self._transport = TlsTransport(cast("asyncio.Transport", transport), self)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._handshake_timeout, self._too_slow)

    def data_received(self, data: bytes) -> None:
        """Take bytes of the handshake, or encrypted bytes."""
        if self._is_over:
            return
        if not self._has_begun:
            self._has_begun = True
            if data[0] != _HANDSHAKE:
                self._refuse_plain(data)
                return
        rest = self._raw[self._at :]
        self._raw, self._at = rest + data if rest else data, 0
        if not self._is_behind:
            self.read()

    def eof_received(self) -> None:
        """Tell the protocol above that the peer has closed its side. The transport then closes."""
        if self._above is not None:
            self._above.eof_received()

    def pause_writing(self) -> None:
        """Pause the protocol above, because the transport's buffer is full."""
        if self._above is not None:
            self._above.pause_writing()

    def resume_writing(self) -> None:
        """Resume the protocol above, because the transport's buffer has drained."""
        if self._above is not None:
            self._above.resume_writing()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Tell the protocol above that the connection has ended, whichever side closed it."""
        self._is_over = True
        self._stop_timer()
        if self._above is None:
            self._on_lost()
        else:
            self._above.connection_lost(cast("Exception | None", exc))

    def abort(self) -> None:
        """Cut the connection."""
        self._is_over = True
        if self._transport is not None:
            self._transport.abort()

    # ---- from the transport above

    def read(self) -> None:
        """Decrypt the records that have arrived, as long as the protocol above wants data."""
        num_records = 0
        while not (self._is_over or self._below.is_paused):
            if not (length := self._next_length()):
                self._catch_up()
                break
            if num_records == RECORDS_AT_ONCE:
                self._fall_behind()
                break
            num_records += 1
            self._incoming.write(memoryview(self._raw)[self._at : self._at + length])
            self._at += length
            if self._above is None:
                self._shake_hands()
            else:
                self._decrypt(self._above)
        if not self._is_over:
            self.flush()  # answers to what TLS itself asks, such as a new key

    def encrypt(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send `data`, which must not be empty."""
        rest = memoryview(data)
        while rest:
            rest = rest[self.tls.write(rest) :]
        self.flush()

    def say_goodbye(self) -> None:
        """Tell the peer that no more data follows. Bytes that arrive later are discarded."""
        self._is_over = True
        with suppress(ssl.SSLError):  # it waits for the peer's own goodbye, which is of no use
            self.tls.unwrap()
        self.flush()

    def flush(self) -> None:
        """Pass the encrypted bytes to the transport."""
        if self._outgoing.pending:
            self._below.tcp.write(self._outgoing.read())

    # ---- inside

    def _next_length(self) -> int:
        """Return the length of the next record; 0 if the record is incomplete.

        If a record is too long, returns the length of its header. OpenSSL then refuses the record.
        """
        num_here = len(self._raw) - self._at
        if num_here < _HEAD:
            return 0
        length = int.from_bytes(self._raw[self._at + 3 : self._at + _HEAD])
        if length > _LONGEST_RECORD:
            return _HEAD
        return _HEAD + length if num_here >= _HEAD + length else 0

    def _decrypt(self, above: asyncio.Protocol) -> None:
        """Pass on the contents of the record that OpenSSL has received."""
        try:
            data = self.tls.read(READ_SIZE)
        except ssl.SSLWantReadError:
            self._idle_left -= 1
            if self._idle_left < 0:
                self._report("the client sends records without data")
                self.abort()
            return
        except ssl.SSLZeroReturnError:
            data = b""
        except ssl.SSLError as error:  # such as an alert: it does not trust our certificate
            self._report(str(error.reason or error))
            data = b""
        if not data:
            self._below.close()
            return
        self._idle_left = min(self._idle_left + len(data) / DATA_PER_IDLE_RECORD, MAX_IDLE_RECORDS)
        above.data_received(data)

    def _fall_behind(self) -> None:
        """Continue in the next turn of the event loop, and stop reading until then."""
        self._is_behind = True
        self._below.tcp.pause_reading()
        asyncio.get_running_loop().call_soon(self.read)

    def _catch_up(self) -> None:
        if self._is_behind:
            self._is_behind = False
            self._below.tcp.resume_reading()

    @property
    def _below(self) -> "TlsTransport":
        if self._transport is None:
            raise RuntimeError("there is no connection yet")
        return self._transport

    def _shake_hands(self) -> None:
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            self.flush()
            return
        except ssl.SSLError as error:
            self.flush()  # the alert that tells the client
            self._fail(str(error.reason or error))
            return
        self.flush()
        self._stop_timer()
        self._above = self._make()
        self._above.connection_made(self._below)

    def _refuse_plain(self, data: bytes) -> None:
        if data[:1].isalpha():
            self._below.tcp.write(self._plain_answer)
        self._fail("the client does not speak TLS")

    def _too_slow(self) -> None:
        self._timer = None
        self.abort()

    def _fail(self, reason: str) -> None:
        self._is_over = True
        self._report(reason)
        self._below.tcp.close()

    def _report(self, reason: str) -> None:
        name = self._below.get_extra_info("peername")
        self._on_failure(str(name[0]) if name else "unknown", reason)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class TlsTransport(asyncio.Transport):
    """The transport of the protocol above. `tcp` is the transport below, possibly wrapped."""

    def __init__(self, tcp: asyncio.Transport, protocol: TlsProtocol) -> None:
        super().__init__()
        self.tcp = tcp
        self.is_paused = False
        self._protocol = protocol
        self._is_closing = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tcp, name)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the same information as an event loop's own TLS transport."""
        tls = self._protocol.tls
        match name:
            case "ssl_object":
                return tls
            case "sslcontext":
                return tls.context
            case "peercert":
                return tls.getpeercert()
            case _:
                return self.tcp.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send `data`."""
        if data and not self.is_closing():
            self._protocol.encrypt(data)

    def writelines(self, pieces: Iterable[bytes | bytearray | memoryview]) -> None:
        """Send several pieces of data."""
        self.write(b"".join(pieces))

    def can_write_eof(self) -> bool:
        """Return false, because TLS cannot be closed on one side only."""
        return False

    def is_closing(self) -> bool:
        """Return whether the transport is closing or closed."""
        return self._is_closing or self.tcp.is_closing()

    def close(self) -> None:
        """Close the connection after the written bytes were sent."""
        if not self._is_closing:
            self._is_closing = True
            self._protocol.say_goodbye()
            self.tcp.close()

    def abort(self) -> None:
        """Close the connection at once, without sending buffered data."""
        self._is_closing = True
        self.tcp.abort()

    def pause_reading(self) -> None:
        """Pause reading, and hold back bytes that have arrived and are not decrypted."""
        self.is_paused = True
        self.tcp.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading after `pause_reading`."""
        if self.is_paused:
            self.is_paused = False
            self.tcp.resume_reading()
            asyncio.get_running_loop().call_soon(self._protocol.read)

    def is_reading(self) -> bool:
        """Return whether the transport is reading."""
        return not self.is_paused and self.tcp.is_reading()

    def get_write_buffer_size(self) -> int:
        """Return the number of encrypted bytes that wait to be sent."""
        return self.tcp.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return the low and high limits of the write buffer."""
        return self.tcp.get_write_buffer_limits()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the high and low limits of the write buffer."""
        self.tcp.set_write_buffer_limits(high, low)
