"""The outbox over a socket that reads, that stops reading, and that is gone."""

import asyncio

from aiohttp import ClientConnectionResetError, WSCloseCode, WSMsgType

from arriero.balancer.fleet.runtime.outbox import MAX_MESSAGES, Outbox
from arriero.shared.messages import Goodbye, Heartbeat, decode_from_balancer


class FakeSocket:
    """Takes frames as long as its peer reads."""

    def __init__(self, *, is_reading: bool = True, is_gone: bool = False) -> None:
        self.frames: list[bytes] = []
        self.closed_with: tuple[int, bytes] | None = None
        self.is_gone = is_gone
        self.reading = asyncio.Event()
        if is_reading:
            self.reading.set()

    async def send_frame(self, frame: bytes, opcode: WSMsgType) -> None:
        assert opcode is WSMsgType.TEXT
        if self.is_gone:
            raise ClientConnectionResetError("gone")
        await self.reading.wait()
        self.frames.append(frame)

    async def close(self, *, code: int, message: bytes) -> None:
        await self.reading.wait()
        self.closed_with = (code, message)


class FakeTransport:
    """Remembers that it was cut."""

    def __init__(self) -> None:
        self.is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True


def outbox_on(socket: FakeSocket, *, patience: float = 60.0) -> tuple[Outbox, FakeTransport]:
    transport = FakeTransport()
    return Outbox(socket, transport, patience=patience), transport  # type: ignore[arg-type]


async def test_everything_sent_leaves_in_order_before_the_close() -> None:
    socket = FakeSocket()
    outbox, transport = outbox_on(socket)
    writer = asyncio.create_task(outbox.run())
    outbox.send(Heartbeat())
    await asyncio.sleep(0)
    outbox.send(Goodbye())
    outbox.disconnect("going down")
    outbox.disconnect("a second reason does not count")
    await writer
    assert [decode_from_balancer(frame) for frame in socket.frames] == [Heartbeat(), Goodbye()]
    assert socket.closed_with == (WSCloseCode.GOING_AWAY, b"going down")
    assert not transport.is_aborted


async def test_a_peer_that_stops_reading_is_cut() -> None:
    outbox, transport = outbox_on(FakeSocket(is_reading=False), patience=0.01)
    outbox.send(Heartbeat())
    await outbox.run()
    assert transport.is_aborted
    assert outbox.reason == "a frame was not read for 0.01 s"


async def test_a_peer_that_does_not_read_the_close_is_cut() -> None:
    outbox, transport = outbox_on(FakeSocket(is_reading=False), patience=0.01)
    outbox.disconnect("enough")
    await outbox.run()
    assert transport.is_aborted
    assert outbox.reason == "enough"


async def test_more_than_may_wait_cuts_the_peer_and_keeps_nothing() -> None:
    socket = FakeSocket()
    outbox, transport = outbox_on(socket)
    for _ in range(MAX_MESSAGES):
        outbox.send(Heartbeat())
    assert not transport.is_aborted
    outbox.send(Heartbeat())
    assert transport.is_aborted
    await outbox.run()
    assert socket.frames == []


async def test_a_connection_that_is_gone_ends_the_writing() -> None:
    outbox, transport = outbox_on(FakeSocket(is_gone=True))
    outbox.send(Heartbeat())
    await outbox.run()
    assert outbox.reason == "the connection is gone"
    assert not transport.is_aborted


async def test_a_long_reason_is_cut_to_what_a_close_frame_holds() -> None:
    socket = FakeSocket()
    outbox, _ = outbox_on(socket)
    outbox.disconnect("é" * 200, WSCloseCode.POLICY_VIOLATION)
    await outbox.run()
    assert socket.closed_with == (WSCloseCode.POLICY_VIOLATION, ("é" * 61).encode())
