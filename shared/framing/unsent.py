"""A limit on the operating system's send buffer, so that this process decides the order of frames.

Without the limit, the system buffers megabytes for a slow connection, and a heartbeat waits behind
these bytes.
"""

import socket
from typing import Any

UNSENT_BYTES = 16 * 1024
"""Maximum unsent bytes in the operating system's buffer.

Bytes in flight do not count, so fast connections with a long delay stay fast.
"""


def limit_unsent(sock: Any) -> None:
    """Limit the unsent bytes of a TCP socket, if the system has the option (Linux and macOS)."""
    option = getattr(socket, "TCP_NOTSENT_LOWAT", None)
    if option is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, option, UNSENT_BYTES)
