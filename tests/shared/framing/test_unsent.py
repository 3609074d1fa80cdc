"""The limit reaches the operating system, and other sockets are let be."""

import socket

import pytest

from arriero.shared.framing.unsent import UNSENT_BYTES, limit_unsent


@pytest.mark.skipif(
    not hasattr(socket, "TCP_NOTSENT_LOWAT"), reason="this system has no such limit"
)
def test_a_slow_reader_leaves_little_with_the_operating_system() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as sender:
        sender.connect(server.getsockname())
        reader, _ = server.accept()
        with reader:
            sender.setblocking(False)
            limit_unsent(sender)
            sent = 0
            with pytest.raises(BlockingIOError):
                while True:
                    sent += sender.send(b"x" * 1024)
            limit = sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT)
            assert limit == UNSENT_BYTES
            assert sent > 0


def test_a_socket_that_is_not_tcp_is_let_be() -> None:
    one, other = socket.socketpair()
    with one, other:
        limit_unsent(one)
        one.send(b"x")
        assert other.recv(1) == b"x"
