"""Parses one request's answer: arrival times and number of tokens, and whether that was asked for.

An HTTP error, an error in the stream, a torn answer and a wrong number of tokens are failures. A
failure has no speed.
"""

import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from bench.dialects import Dialect, End, Request

_DONE = b"data: [DONE]"
"""Ends a stream of OpenAI's API, after the event with the counts."""

Arrival = tuple[float, bytes]
"""When, by the performance counter in seconds, and what."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One request as its client saw it; points in time by the performance counter, in seconds.

    `token_times` is when bytes with text came; several tokens that came at once are one point.
    """

    sent_at: float
    ended_at: float
    token_times: tuple[float, ...] = ()
    num_tokens: int = 0
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    failure: str | None = None

    @property
    def first_token(self) -> float:
        """Seconds from sending to the first text."""
        return self.token_times[0] - self.sent_at

    @property
    def gaps(self) -> list[float]:
        """Seconds between texts."""
        return [later - earlier for earlier, later in pairwise(self.token_times)]


def read_answer(
    arrivals: Sequence[Arrival],
    dialect: Dialect,
    request: Request,
    *,
    sent_at: float,
    ended_at: float,
) -> Sample:
    """The sample of `request`, whose answer came as `arrivals`."""
    raw = b"".join(data for _, data in arrivals)
    end = _read_end(raw, dialect)
    if isinstance(end, str):
        return Sample(sent_at=sent_at, ended_at=ended_at, failure=end)
    times = tuple(dict.fromkeys(_mark_times(arrivals, raw, dialect.token_mark)))
    failure = None
    if end.num_tokens != request.num_tokens:
        failure = f"{end.num_tokens} tokens came, {request.num_tokens} were asked for"
    elif not times:
        failure = "no text came"
    return Sample(
        sent_at=sent_at,
        ended_at=ended_at,
        token_times=times,
        num_tokens=end.num_tokens,
        num_prompt_tokens=end.num_prompt_tokens,
        num_cached_tokens=end.num_cached_tokens,
        failure=failure,
    )


def _read_end(raw: bytes, dialect: Dialect) -> End | str:
    """What the server says at the end, or what is wrong with the answer."""
    head, _, framed = raw.partition(b"\r\n\r\n")
    status = head.partition(b"\r\n")[0].decode("latin-1")
    if " 200 " not in status:
        return f"{status or 'the connection closed without an answer'} {framed[:300]!r}"
    body = b"".join(_chunks(framed))
    events = body.strip().removesuffix(_DONE).rstrip()
    last = events.rpartition(b"\n")[2].removeprefix(b"data: ")
    try:
        end = dialect.read_end(json.loads(last))
    except ValueError:
        end = None
    return end or f"the answer ends with {last[:300]!r}"


def _chunks(framed: bytes) -> Iterator[bytes]:
    """The data of a chunked body (RFC 9112, 7.1), as far as it came."""
    start = 0
    while (line_end := framed.find(b"\r\n", start)) >= 0:
        size = int(framed[start:line_end], 16)
        if size == 0:
            return
        yield framed[line_end + 2 : line_end + 2 + size]
        start = line_end + 2 + size + 2


def _mark_times(arrivals: Sequence[Arrival], raw: bytes, mark: bytes) -> Iterator[float]:
    """When each mark was whole; a mark may be torn between two arrivals."""
    ends = list(accumulate(len(data) for _, data in arrivals))
    start = raw.find(mark)
    while start >= 0:
        last_byte = start + len(mark) - 1
        yield arrivals[bisect_right(ends, last_byte)][0]
        start = raw.find(mark, start + len(mark))
