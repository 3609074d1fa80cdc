"""The outbox over a socket that reads, that stops reading, and that is gone."""

import asyncio
import socket

import pytest
from aiohttp import ClientConnectionResetError, WSCloseCode, WSMsgType

from arriero.balancer.fleet.runtime.outbox import MAX_MESSAGES, AgentBacklog, BalancerCodec, Outbox
from arriero.shared.framing.frames import PIECE_BYTES, Assembler, FrameQueue
from arriero.shared.framing.unsent import UNSENT_BYTES
from arriero.shared.inference import GenerateRequest, RequestId
from arriero.shared.messages import (
    Ask,
    Cancel,
    FromBalancer,
    Goodbye,
    Heartbeat,
    Start,
    Withdraw,
    decode_from_balancer,
)
from arriero.shared.queries import Tokenize

LARGE = Start(id=RequestId("r"), request=GenerateRequest(prompt="x" * (2 * PIECE_BYTES + 1)))


class FakeSocket:
    """Takes frames as long as its peer reads."""

    def __init__(self, *, is_reading: bool = True, is_gone: bool = False) -> None:
        self.frames: list[bytes] = []
        self.opcodes: list[WSMsgType] = []
        self.closed_with: tuple[int, bytes] | None = None
        self.is_gone = is_gone
        self.reading = asyncio.Event()
        if is_reading:
            self.reading.set()

    async def send_frame(self, frame: bytes, opcode: WSMsgType) -> None:
        self.opcodes.append(opcode)
        if self.is_gone:
            raise ClientConnectionResetError("gone")
        await self.reading.wait()
        self.frames.append(frame)

    async def close(self, *, code: int, message: bytes) -> None:
        await self.reading.wait()
        self.closed_with = (code, message)


class FakeTcp:
    """Remembers the options that it was given."""

    family = socket.AF_INET

    def __init__(self) -> None:
        self.options: dict[tuple[int, int], int] = {}

    def setsockopt(self, level: int, option: int, value: int) -> None:
        self.options[level, option] = value


class FakeTransport:
    """Remembers that it was cut."""

    def __init__(self) -> None:
        self.is_aborted = False
        self.high_water: int | None = None
        self.tcp = FakeTcp()

    def set_write_buffer_limits(self, high: int) -> None:
        self.high_water = high

    def get_extra_info(self, name: str) -> "FakeTcp":
        assert name == "socket"
        return self.tcp

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
    outbox.disconnect("shutting down")
    outbox.disconnect("a second reason does not count")
    await writer
    assert [decode_from_balancer(frame) for frame in socket.frames] == [Heartbeat(), Goodbye()]
    assert socket.closed_with == (WSCloseCode.GOING_AWAY, b"shutting down")
    assert not transport.is_aborted


async def test_what_was_sent_before_the_writer_ran_leaves_before_the_close() -> None:
    socket = FakeSocket()
    outbox, _ = outbox_on(socket)
    outbox.send(Goodbye())
    outbox.disconnect("shutting down")
    await outbox.run()
    assert [decode_from_balancer(frame) for frame in socket.frames] == [Goodbye()]
    assert socket.closed_with == (WSCloseCode.GOING_AWAY, b"shutting down")


async def test_a_large_message_leaves_in_pieces_with_others_between() -> None:
    socket = FakeSocket()
    outbox, _ = outbox_on(socket)
    outbox.send(LARGE)
    outbox.send(Heartbeat())
    outbox.disconnect("shutting down")
    await outbox.run()
    assert [opcode is WSMsgType.TEXT for opcode in socket.opcodes] == [True, False, False, False]
    assembler = Assembler()
    [*parts, text] = [assembler.take(frame) for frame in socket.frames[1:]]
    assert parts == [None, None]
    assert text is not None
    assert decode_from_balancer(text) == LARGE


async def test_a_cancelled_request_gives_up_its_place_on_the_line() -> None:
    socket = FakeSocket()
    outbox, _ = outbox_on(socket)
    outbox.send(LARGE)
    outbox.send(Cancel(id=LARGE.id))
    outbox.disconnect("shutting down")
    await outbox.run()
    [frame] = socket.frames
    assert decode_from_balancer(frame) == Cancel(id=LARGE.id, is_unsent=True)


async def test_little_waits_below_the_outbox_where_nothing_can_overtake_it() -> None:
    _, transport = outbox_on(FakeSocket())
    assert transport.high_water == PIECE_BYTES
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        option = (socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT)
        assert transport.tcp.options == {option: UNSENT_BYTES}


async def test_a_peer_that_stops_reading_is_cut() -> None:
    outbox, transport = outbox_on(FakeSocket(is_reading=False), patience=0.01)
    outbox.send(Heartbeat())
    await outbox.run()
    assert transport.is_aborted
    assert outbox.reason == "the agent did not read a frame for 0.01 s"


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
    assert outbox.reason == "the connection was lost"
    assert not transport.is_aborted


async def test_a_long_reason_is_cut_to_what_a_close_frame_holds() -> None:
    socket = FakeSocket()
    outbox, _ = outbox_on(socket)
    outbox.disconnect("é" * 200, WSCloseCode.POLICY_VIOLATION)
    await outbox.run()
    assert socket.closed_with == (WSCloseCode.POLICY_VIOLATION, ("é" * 61).encode())


async def test_what_waits_is_counted() -> None:
    outbox, _ = outbox_on(FakeSocket(is_reading=False), patience=0.01)
    assert outbox.backlog() == AgentBacklog()
    outbox.send(Heartbeat())
    outbox.assembler.take(b"\0\0\0\1\0abc")
    assert outbox.backlog() == AgentBacklog(num_messages=1, num_bytes=3)


ID = RequestId("r")
TEXT = "x" * (3 * PIECE_BYTES)


def whole_frames(*messages: FromBalancer) -> list[FromBalancer]:
    """What leaves as text frames, in order."""
    queue: FrameQueue[FromBalancer] = FrameQueue(BalancerCodec())
    for message in messages:
        queue.put(message)
    sent = iter(queue.next, None)
    return [decode_from_balancer(data) for data, is_text in sent if is_text]


def test_heartbeats_and_other_requests_overtake_a_large_start() -> None:
    small = Start(id=RequestId("s"), request=GenerateRequest(prompt="hi"))
    others = [small, Heartbeat(), Goodbye()]
    large = Start(id=ID, request=GenerateRequest(prompt=TEXT))
    assert whole_frames(large, *others) == others


def test_cancelling_a_large_start_is_answered_by_the_agent() -> None:
    large = Start(id=ID, request=GenerateRequest(prompt=TEXT))
    assert whole_frames(large, Cancel(id=ID)) == [Cancel(id=ID, is_unsent=True)]


def test_withdrawing_a_large_query_is_not() -> None:
    large = Ask(id=ID, query=Tokenize(text=TEXT))
    assert whole_frames(large, Withdraw(id=ID)) == []


def test_a_cancel_behind_a_small_start_goes_as_it_is() -> None:
    small = Start(id=ID, request=GenerateRequest(prompt="hi"))
    assert whole_frames(small, Cancel(id=ID)) == [small, Cancel(id=ID)]


def test_what_cannot_be_written_is_a_fault_of_ours() -> None:
    bad = Start(id=ID, request=GenerateRequest(prompt="\ud800"))
    with pytest.raises(ValueError, match="`start` cannot be sent"):
        whole_frames(bad)
