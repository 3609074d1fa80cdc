"""Bytes of messages within frames, and when they are too many."""

from aiohttp import WSMsgType
from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.api.transport.web_socket_bytes import CountedReader, FrameBytes

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
        st.booleans(),
    ),
    max_size=5,
)


@given(FRAMES, st.data())
def test_the_payloads_of_messages_are_counted_however_they_arrive(
    frames: list[tuple[WSMsgType, int, bool, bool]], data: st.DataObject
) -> None:
    stream = b"".join(
        frame(opcode, length, is_last=is_last, is_masked=is_masked)
        for opcode, length, is_last, is_masked in frames
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    counter = FrameBytes()
    counted = sum(
        counter.add(stream[start:end])
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)
    )
    assert counted == sum(length for opcode, length, _, _ in frames if opcode not in CONTROL)


def test_byte_by_byte() -> None:
    counter = FrameBytes()
    stream = frame(WSMsgType.TEXT, 300, is_last=False) + frame(WSMsgType.CONTINUATION, 70000)
    counts = [counter.add(bytes([byte])) for byte in stream]
    assert sum(counts) == 70300
    assert counts[:8] == [0] * 8, "the header"


class Fed:
    def __init__(self) -> None:
        self.num_bytes = 0
        self.is_at_end = False

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        self.num_bytes += len(data)
        return False, b""

    def feed_eof(self) -> None:
        self.is_at_end = True


def test_what_comes_after_too_much_is_thrown_away() -> None:
    fed, allowed = Fed(), [True, False, True]
    reader = CountedReader(fed, lambda _: allowed.pop(0))
    for _ in range(3):
        assert reader.feed_data(b"x" * 10) == (False, b"")
    assert fed.num_bytes == 10
    assert allowed == [True], "nobody is asked any more"
    reader.feed_eof()
    assert fed.is_at_end
