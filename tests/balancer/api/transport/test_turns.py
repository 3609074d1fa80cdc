"""How much is read at once, of lines and of bytes."""

from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.api.transport.turns import (
    BYTES_AT_ONCE,
    LINES_AT_ONCE,
    end_of_bytes,
    end_of_http,
)


def parts(data: bytes) -> list[bytes]:
    found, start = [], 0
    while start < len(data):
        end = end_of_http(data, start)
        assert end > start, "it goes on"
        found.append(data[start:end])
        start = end
    return found


@given(
    st.lists(st.tuples(st.sampled_from([b"\n", b"1\r\nx\r\n", b"a" * 900]), st.integers(1, 3000)))
)
def test_every_part_is_bounded_and_nothing_is_lost(runs: list[tuple[bytes, int]]) -> None:
    data = b"".join(text * times for text, times in runs)
    found = parts(data)
    assert b"".join(found) == data
    assert all(len(part) <= BYTES_AT_ONCE for part in found)
    assert all(part.count(b"\n") <= LINES_AT_ONCE for part in found)


def test_an_ordinary_request_is_read_at_once() -> None:
    head = b"POST / HTTP/1.1\r\n" + b"X-Name: value\r\n" * 40 + b"\r\n" + b"{}" * 10_000
    assert end_of_http(head, 0) == len(head)


def test_lines_of_a_body_cost_nothing() -> None:
    assert end_of_bytes(b"\n" * 100_000, 0) == BYTES_AT_ONCE
    assert end_of_bytes(b"\n" * 100_000, 99_990) == 100_000
