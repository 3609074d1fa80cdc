"""Ports that several processes listen on: reserved by their parent, which listens on none of them.

The system spreads connections over the listening sockets of one port (`SO_REUSEPORT`). A socket
that is bound and does not listen gets none, and says which port it is where any free one will do.
"""

import socket
from contextlib import ExitStack

from ...shared.lifecycle import StartupError
from ...shared.quantities import Address


def reserve(address: Address, flag: str, until: ExitStack) -> Address:
    """Keep the port for processes of this user until `until` closes; the address, with its port.

    Raises `StartupError` that names `flag`, also where another program listens there.
    """
    try:
        found = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        port = address.port
        for family, kind, protocol, _, at in found:
            port = _bound(family, kind, protocol, (at[0], port, *at[2:]), until)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise StartupError(f"{flag}: cannot listen on {address}: {reason}") from error
    return Address(address.host, port)


def _bound(family: int, kind: int, protocol: int, at: tuple[object, ...], until: ExitStack) -> int:
    """Twice: another program of this user that shares its port, too, would be let in."""
    with socket.socket(family, kind, protocol) as alone:
        alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        alone.bind(at)
        at = (at[0], alone.getsockname()[1], *at[2:])
    kept = until.enter_context(socket.socket(family, kind, protocol))
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    kept.bind(at)
    return int(kept.getsockname()[1])
