"""What came of the streams: whether each ended exactly once, and how late its tokens were."""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

from bench.balancer.stamps import MARK, seconds_since, stamps

Arrival = tuple[float, bytes]
"""When, by the monotonic clock in seconds, and what."""

_EVENT_OF_CALL = re.compile(rb'"params":\{"event":"token","id":(\d+),[^}]*?"text":"([^"]*)"')
_END_OF_CALL = re.compile(rb'"jsonrpc":"2.0","id":(\d+),"result"')


def fault(raw: bytes, end: bytes, num_tokens: int) -> str | None:
    """What is wrong with an HTTP answer; `None` if it is whole and ended once, at its end."""
    if not raw.startswith(b"HTTP/1.1 200 "):
        return f"not 200: {raw[:300]!r}"
    if raw.count(end) != 1:
        return f"{raw.count(end)} ends: {raw[-300:]!r}"
    if raw.count(MARK) != num_tokens:
        return f"{raw.count(MARK)} tokens came, {num_tokens} were asked for"
    if MARK in raw[raw.index(end) :]:
        return "tokens came after the end"
    return None


def faults_of_calls(raw: bytes, num_calls: int, num_tokens: int) -> list[str]:
    """What is wrong with the calls of a WebSocket, numbered from 0; all have to have ended."""
    tokens = Counter[int]()
    for event in _EVENT_OF_CALL.finditer(raw):
        tokens[int(event[1])] += event[2].count(MARK)
    ends = Counter(int(end[1]) for end in _END_OF_CALL.finditer(raw))
    return [
        f"call {id} has {tokens[id]} tokens and {ends[id]} ends"
        for id in range(num_calls)
        if tokens[id] != num_tokens or ends[id] != 1
    ]


def latencies(arrivals: Sequence[Arrival], since: float, until: float) -> list[float]:
    """The seconds from stamp to last byte of each token that came in that time."""
    ends = list(accumulate(len(data) for _, data in arrivals))
    raw = b"".join(data for _, data in arrivals)
    times = ((sent, arrivals[bisect_left(ends, position)][0]) for position, sent in stamps(raw))
    return [seconds_since(sent, at) for sent, at in times if since <= at <= until]
