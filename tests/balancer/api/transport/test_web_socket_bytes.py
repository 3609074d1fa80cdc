"""Bytes of messages within frames, how many are read at once, and when they are too many."""

from collections.abc import Iterable

import pytest
from aiohttp import WSMsgType
from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.api.transport.web_socket_bytes import (
    FRAMES_AT_ONCE,
    TINY_FRAGMENT,
    TINY_MESSAGE,
    Allowance,
    FrameBytes,
    TooManyFrames,
    UnmaskedFrame,
    control_frames,
    tiny_frames,
)

LENGTHS = st.sampled_from([0, 1, 125, 126, 127, 65535, 65536, 70000])
CONTROL = {WSMsgType.PING, WSMsgType.PONG, WSMsgType.CLOSE}


def frame(opcode: WSMsgType, length: int, *, is_last: bool = True, is_masked: bool = True) -> bytes:
    """As RFC 6455 has it, with a payload of zeros."""
    first = (0x80 if is_last else 0) | opcode.value
    mask = 0x80 if is_masked else 0
    if length < 126:
        head = bytes([first, mask | length])
    elif length < 2**16:
        head = bytes([first, mask | 126]) + length.to_bytes(2, "big")
    else:
        head = bytes([first, mask | 127]) + length.to_bytes(8, "big")
    return head + (b"\x01\x02\x03\x04" if is_masked else b"") + bytes(length)


FRAMES = st.lists(
    st.tuples(
        st.sampled_from([WSMsgType.TEXT, WSMsgType.BINARY, WSMsgType.CONTINUATION, *CONTROL]),
        LENGTHS,
        st.booleans(),
    ),
    max_size=5,
)


def take_all(frames: FrameBytes, pieces: Iterable[bytes], now: float = 0.0) -> int:
    """The bytes of messages in all the pieces."""
    count = 0
    for piece in pieces:
        start = 0
        while start < len(piece):
            end, num_bytes = frames.take(piece, start, len(piece), now)
            assert end > start, "it goes on"
            start, count = end, count + num_bytes
    return count


@given(FRAMES, st.data())
def test_the_payloads_of_messages_are_counted_however_they_arrive(
    frames: list[tuple[WSMsgType, int, bool]], data: st.DataObject
) -> None:
    stream = b"".join(frame(opcode, length, is_last=is_last) for opcode, length, is_last in frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    borders = zip([0, *cuts], [*cuts, len(stream)], strict=True)
    counted = take_all(FrameBytes(), [stream[start:end] for start, end in borders])
    assert counted == sum(length for opcode, length, _ in frames if opcode not in CONTROL)


def test_byte_by_byte() -> None:
    counter = FrameBytes()
    stream = frame(WSMsgType.TEXT, 300, is_last=False) + frame(WSMsgType.CONTINUATION, 70000)
    counts = [take_all(counter, [bytes([byte])]) for byte in stream]
    assert sum(counts) == 70300
    assert counts[:8] == [0] * 8, "the header"


def test_so_many_frames_at_once() -> None:
    each = frame(WSMsgType.TEXT, 300)
    stream = each * (FRAMES_AT_ONCE + 5)
    frames = FrameBytes()
    end, num_bytes = frames.take(stream, 0, len(stream), 0.0)
    header = len(each) - 300
    assert (end, num_bytes) == (FRAMES_AT_ONCE * len(each) - 300, (FRAMES_AT_ONCE - 1) * 300)
    assert frames.take(stream, end, len(stream), 0.0) == (len(stream), 6 * 300)
    assert header == 8


FLOODS = {
    "pings": (frame(WSMsgType.PING, 0), control_frames()),
    "pongs": (frame(WSMsgType.PONG, 125), control_frames()),
    "empty fragments": (frame(WSMsgType.CONTINUATION, 0, is_last=False), tiny_frames()),
    "fragments": (frame(WSMsgType.CONTINUATION, TINY_FRAGMENT - 1, is_last=False), tiny_frames()),
    "last fragments": (frame(WSMsgType.CONTINUATION, 0), tiny_frames()),
    "beginnings": (frame(WSMsgType.TEXT, 0, is_last=False), tiny_frames()),
    "messages": (frame(WSMsgType.BINARY, TINY_MESSAGE - 1), tiny_frames()),
}


@pytest.mark.parametrize("kind", FLOODS)
def test_a_flood_is_over_soon(kind: str) -> None:
    each, allowance = FLOODS[kind]
    frames = FrameBytes()
    take_all(frames, [each * int(allowance.most)])
    with pytest.raises(TooManyFrames):
        take_all(frames, [each])


@pytest.mark.parametrize("kind", FLOODS)
def test_what_comes_slowly_may_go_on(kind: str) -> None:
    each, allowance = FLOODS[kind]
    frames = FrameBytes()
    for second in range(100):
        take_all(frames, [each * int(allowance.per_second)], now=float(second))


@pytest.mark.parametrize("length", [0, 2, 70_000])
def test_a_frame_without_a_mask_is_refused(length: int) -> None:
    each = frame(WSMsgType.TEXT, length, is_masked=False)
    with pytest.raises(UnmaskedFrame):
        take_all(FrameBytes(), [frame(WSMsgType.TEXT, 5) + each])


def test_messages_and_long_fragments_are_as_many_as_one_likes() -> None:
    heartbeat = b'{"type":"heartbeat"}'
    shortest = frame(WSMsgType.TEXT, len(heartbeat))
    fragments = frame(WSMsgType.CONTINUATION, TINY_FRAGMENT, is_last=False)
    frames = FrameBytes()
    assert take_all(frames, [shortest * 20_000]) == 20_000 * len(heartbeat)
    assert take_all(frames, [fragments * 20_000]) == 20_000 * TINY_FRAGMENT


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(0, 30)), max_size=50))
def test_an_allowance_is_never_more_than_it_says(uses: list[tuple[float, int]]) -> None:
    allowance = Allowance(most=20, per_second=3)
    now, allowed = 0.0, 0
    for pause, num in uses:
        now += pause
        if not allowance.use(num, now):
            return
        allowed += num
        assert allowed <= 20 + 3 * now + 1e-6
