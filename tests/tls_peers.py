"""Two ends of TLS in memory, without sockets."""

import ssl
from collections.abc import Callable


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
