from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.upstream.protocol.event_lines import EventLines
from arriero.agent.upstream.protocol.failures import UpstreamFault

STREAM = b': ping\n\ndata: {"a":1}\n\nevent: x\r\ndata:{"b":2}\r\n\r\ndata: [DONE]\n\n'


@given(st.lists(st.integers(0, len(STREAM))))
def test_events_come_out_wherever_the_bytes_are_cut(cuts: list[int]) -> None:
    lines, found = EventLines(), []
    places = [0, *sorted(cuts), len(STREAM)]
    for start, end in pairwise(places):
        found += lines.push(STREAM[start:end])
    assert found == [b'{"a":1}', b'{"b":2}', b"[DONE]"]


@given(st.binary())
def test_any_bytes_are_taken(data: bytes) -> None:
    EventLines().push(data)


@pytest.mark.parametrize("data", [b"x" * 11, b"data: 123456\n"])
def test_a_line_is_bounded(data: bytes) -> None:
    with pytest.raises(UpstreamFault, match="a line of its answer is longer than 10 bytes"):
        EventLines(max_line=10).push(data)


def test_an_answer_is_bounded() -> None:
    lines = EventLines(max_total=10)
    lines.push(b"data: 1\n")
    with pytest.raises(UpstreamFault, match="longer than 10 bytes"):
        lines.push(b"\n\n\n")
