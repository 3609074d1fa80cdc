"""Limits what the operating system buffers for a socket, so that our own queues decide the order.

It would buffer megabytes for a slow connection, and a heartbeat would wait behind them.
"""

import socket
from typing import Any

UNSENT_BYTES = 16 * 1024
"""How much the operating system may hold that it has not sent. What is on its way is not counted,
so fast connections with a long delay stay fast."""


def limit_unsent(sock: Any) -> None:
    """Apply the limit to a TCP socket, on systems that have one (Linux and macOS)."""
    option = getattr(socket, "TCP_NOTSENT_LOWAT", None)
    if option is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, option, UNSENT_BYTES)
