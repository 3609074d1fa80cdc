import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from arriero.agent.link.balancer_socket import MAX_WAITING, BalancerSocket
from arriero.agent.link.dialling import DialFailed, dial
from arriero.shared.framing.frames import MAX_FRAME_BYTES, PIECE_BYTES, Assembler
from arriero.shared.inference import RequestId
from arriero.shared.messages import Heartbeat, Output, Piece, decode_from_agent
from arriero.shared.reports.statistics import Statistics
from tests.agent.fakes import FakeBalancer, Peer


@pytest.fixture
async def balancer() -> AsyncIterator[FakeBalancer]:
    async with FakeBalancer.open() as balancer:
        yield balancer


def never(id: RequestId) -> None:
    raise AssertionError(f"{id} could not be sent")


def nothing() -> None:
    """Nobody counts the pieces."""


async def pair(balancer: FakeBalancer) -> tuple[BalancerSocket, Peer]:
    return await dial(balancer.url), await balancer.peers.get()


LARGE = 4 * PIECE_BYTES


def output(size: int, id: str = "r") -> Output:
    return Output(items=(Piece(id=RequestId(id), text="x" * size),))


async def test_frames_are_text_and_keep_their_order(balancer: FakeBalancer) -> None:
    dialled, peer = await pair(balancer)
    taken: list[str | bytes] = []
    for number in range(5):
        dialled.put(Statistics(num_running=number))
    dialled.close("done")
    await peer.socket.send("hello")
    await dialled.serve(taken.append, nothing, never)
    frames = [frame async for frame in peer.socket]
    assert all(isinstance(frame, str) for frame in frames)
    assert list(map(decode_from_agent, frames)) == [
        Statistics(num_running=number) for number in range(5)
    ]
    assert taken == ["hello"]
    assert (peer.socket.close_code, peer.socket.close_reason) == (1000, "done")


async def test_a_large_message_leaves_in_pieces_with_others_between(
    balancer: FakeBalancer,
) -> None:
    dialled, peer = await pair(balancer)
    dialled.put(output(LARGE, "large"))
    dialled.put(Heartbeat())
    dialled.put(output(1, "small"))
    dialled.close("done")
    await dialled.serve(lambda frame: None, nothing, never)
    assembler = Assembler()
    texts = [
        assembler.take(frame) if isinstance(frame, bytes) else frame async for frame in peer.socket
    ]
    messages = [decode_from_agent(text) for text in texts if text is not None]
    assert messages == [Heartbeat(), output(1, "small"), output(LARGE, "large")]
    assert len(texts) > 6


async def test_pieces_arrive_as_one_message(balancer: FakeBalancer) -> None:
    dialled, peer = await pair(balancer)
    taken: list[str | bytes] = []
    heard: list[None] = []
    for frame in (b"\0\0\0\1\0ab", "whole", b"\0\0\0\1\1cd"):
        await peer.socket.send(frame)
    await asyncio.gather(
        dialled.serve(taken.append, lambda: heard.append(None), never), peer.socket.close()
    )
    assert taken == ["whole", b"abcd"]
    assert len(heard) == 1


async def test_a_bad_piece_closes_the_connection(balancer: FakeBalancer) -> None:
    dialled, peer = await pair(balancer)
    await peer.socket.send(b"\0")
    await dialled.serve(lambda frame: None, nothing, never)
    assert dialled.why_closed.startswith("the balancer's frame: a piece has a header")
    await peer.socket.wait_closed()
    assert peer.socket.close_code == 1002


async def test_what_is_put_after_the_close_never_leaves(balancer: FakeBalancer) -> None:
    dialled, peer = await pair(balancer)
    dialled.close("done")
    dialled.close("twice")
    dialled.put(Heartbeat())
    await dialled.serve(lambda frame: None, nothing, never)
    assert [frame async for frame in peer.socket] == []
    assert dialled.why_closed == "done"


async def test_a_long_reason_is_cut_at_a_whole_character(balancer: FakeBalancer) -> None:
    dialled, peer = await pair(balancer)
    dialled.close("é" * 100)
    await dialled.serve(lambda frame: None, nothing, never)
    await peer.socket.wait_closed()
    assert peer.socket.close_reason == "é" * 61


async def test_the_other_sides_reason_is_known(balancer: FakeBalancer) -> None:
    dialled, peer = await pair(balancer)
    await asyncio.gather(
        dialled.serve(lambda frame: None, nothing, never), peer.socket.close(reason="bye")
    )
    assert dialled.why_closed == "bye"


async def test_a_cut_line_ends_it(balancer: FakeBalancer) -> None:
    dialled, peer = await pair(balancer)
    peer.socket.transport.abort()
    await dialled.serve(lambda frame: None, nothing, never)
    assert dialled.why_closed == "the other side closed the socket"


async def test_a_peer_that_does_not_read_is_disconnected(balancer: FakeBalancer) -> None:
    dialled, peer = await pair(balancer)
    peer.socket.transport.pause_reading()

    async def flood() -> None:
        while dialled.why_closed != "it does not read its messages":
            for _ in range(MAX_WAITING // 4):
                dialled.put(output(LARGE))
            await asyncio.to_thread(lambda: None)

    await asyncio.gather(dialled.serve(lambda frame: None, nothing, never), flood())
    peer.socket.transport.abort()


async def test_a_peer_that_holds_up_the_close_is_cut_off(balancer: FakeBalancer) -> None:
    dialled = await dial(balancer.url, close_grace=0.05)
    peer = await balancer.peers.get()
    peer.socket.transport.pause_reading()
    for _ in range(MAX_WAITING):
        dialled.put(output(LARGE))
    dialled.close("done")
    await dialled.serve(lambda frame: None, nothing, never)
    peer.socket.transport.abort()


async def test_frames_of_a_mistake_in_taking_are_not_swallowed(balancer: FakeBalancer) -> None:
    dialled, peer = await pair(balancer)

    def take(frame: str | bytes) -> None:
        raise ZeroDivisionError

    await peer.socket.send("x")
    with pytest.raises(ExceptionGroup) as caught:
        await dialled.serve(take, nothing, never)
    assert caught.group_contains(ZeroDivisionError)
    peer.socket.transport.abort()


async def test_a_frame_over_the_limit_ends_it(balancer: FakeBalancer) -> None:
    dialled, peer = await pair(balancer)
    taken: list[str | bytes] = []
    sending = asyncio.create_task(peer.socket.send("x" * (MAX_FRAME_BYTES + 1)))
    await dialled.serve(taken.append, nothing, never)
    await asyncio.gather(sending, return_exceptions=True)
    assert taken == []
    assert peer.socket.close_code == 1009


async def test_nobody_there() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(OSError, match=r"\d"):
            await dial(f"ws://127.0.0.1:{unused.getsockname()[1]}")


async def test_somebody_else_there() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(DialFailed, match="404"):
            await dial(f"ws://127.0.0.1:{port}")


async def test_a_name_is_dialled_at_the_address_that_is_given(balancer: FakeBalancer) -> None:
    port = balancer.url.rpartition(":")[2]
    dialled = await dial(f"ws://balancers.invalid:{port}", address="127.0.0.1")
    peer = await balancer.peers.get()
    assert peer.socket.request is not None
    assert peer.socket.request.headers["Host"] == f"balancers.invalid:{port}"
    assert dialled.balancer is None, "this one does not say which it is"
    dialled.abort()
    await peer.socket.wait_closed()
