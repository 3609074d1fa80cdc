"""Two ends of TLS in memory, without sockets."""

import hmac
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Self


class Peer:
    """A client in memory: bytes go in, bytes come out."""

    def __init__(self, context: ssl.SSLContext, name: str = "localhost") -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=name)

    def shake_hands(self, exchange: Callable[[bytes], bytes]) -> None:
        """`exchange` takes what the client sends and gives what the server sends."""
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                self.take(exchange(self._outgoing.read()))
            else:
                self.take(exchange(self._outgoing.read()))
                return

    def take(self, data: bytes) -> None:
        """What the server sent."""
        if data:
            self._incoming.write(data)

    def sent(self, data: bytes) -> bytes:
        """`data` as it travels."""
        self.tls.write(data)
        return self._outgoing.read()

    def goodbye(self) -> bytes:
        """What says that nothing more comes."""
        try:
            self.tls.unwrap()
        except ssl.SSLError:
            return self._outgoing.read()
        return b""

    def heard(self) -> bytes:
        """What arrived and was not read."""
        data = b""
        while True:
            try:
                piece = self.tls.read(2**16)
            except ssl.SSLWantReadError:
                return data
            if not piece:
                return data
            data += piece


class KeyUpdates:
    """A client's records that say nothing but that new keys follow (RFC 8446, 4.6.3).

    Python's TLS does not send them, so they are made of the secret that the handshake agreed on.
    """

    def __init__(self, secret: bytes) -> None:
        """`secret`: that of TLS_AES_256_GCM_SHA384, of a client that has sent nothing yet."""
        self._secret = secret

    @classmethod
    def logged(cls, file: Path) -> Self:
        """By what a context with this `keylog_filename` wrote last."""
        lines = [line.split() for line in file.read_text().splitlines()]
        return cls(
            bytes.fromhex([line[2] for line in lines if line[0] == "CLIENT_TRAFFIC_SECRET_0"][-1])
        )

    def next(self, *data: bytes, wants_answer: bool = True) -> bytes:
        """Records with `data` each, then the one that says that new keys follow."""
        key, nonce = self._expand("key", 32), self._expand("iv", 12)
        self._secret = self._expand("traffic upd", 48)
        plain = [*(each + b"\x17" for each in data), bytes([24, 0, 0, 1, wants_answer, 22])]
        return b"".join(_sealed(key, nonce, number, each) for number, each in enumerate(plain))

    def _expand(self, label: str, length: int) -> bytes:
        """HKDF-Expand-Label with an empty context (RFC 8446, 7.1)."""
        name = b"tls13 " + label.encode()
        info = length.to_bytes(2) + bytes([len(name)]) + name + b"\x00"
        return hmac.digest(self._secret, info + b"\x01", "sha384")[:length]


def _sealed(key: bytes, nonce: bytes, number: int, plain: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    own = (int.from_bytes(nonce) ^ number).to_bytes(12)
    head = b"\x17\x03\x03" + (len(plain) + 16).to_bytes(2)
    return head + AESGCM(key).encrypt(own, plain, head)
