"""What agents say to each other, and what they do not believe."""

from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.engine.prompt import Prompt
from arriero.agent.peers.exchange import (
    ExchangeError,
    PrefixRequest,
    answer_head,
    encode,
    most_bytes,
    read_answer_head,
    read_request,
)


class Exactly(BytesIO):
    """Raises where there is too little, as a broken connection does."""

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        if size is None or len(data) != size:
            raise ConnectionResetError("it ends")
        return data


@given(
    ids=st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=50),
    adapter=st.none() | st.text(min_size=1, max_size=20),
    scope=st.none() | st.text("abcdef0123456789", min_size=1, max_size=32),
    ticket=st.text("abcdef0123456789", min_size=1, max_size=64),
)
def test_what_is_asked_arrives(
    ids: list[int], adapter: str | None, scope: str | None, ticket: str
) -> None:
    request = PrefixRequest(ticket, Prompt(tuple(ids), adapter=adapter, scope=scope))
    read = read_request(Exactly(encode(request)), most_tokens=50)
    assert read == request
    assert (read.prompt.adapter, read.prompt.scope) == (adapter, scope)


@given(data=st.binary(max_size=200))
def test_nonsense_is_refused(data: bytes) -> None:
    with pytest.raises(OSError):
        read_request(Exactly(data), most_tokens=50)
    with pytest.raises(OSError):
        read_answer_head(Exactly(data), most_bytes=1000)


@pytest.mark.parametrize(
    ("at", "value"),
    [(0, b"X"), (8, b"\x02\x00"), (10, b"\xff\xff\xff\x7f"), (14, b"\xff\xff\xff\x7f")],
)
def test_more_than_there_may_be_is_refused_before_it_is_read(at: int, value: bytes) -> None:
    request = bytearray(encode(PrefixRequest("t", Prompt((1, 2, 3)))))
    request[at : at + len(value)] = value
    with pytest.raises(ExchangeError):
        read_request(Exactly(request), most_tokens=3)


def test_requests_that_cannot_be_meant() -> None:
    for request in (PrefixRequest("t", Prompt(())), PrefixRequest("t", Prompt((1, 2, 3, 4)))):
        with pytest.raises(ExchangeError, match="too much, or for nothing"):
            read_request(Exactly(encode(request)), most_tokens=3)
    with pytest.raises(ExchangeError, match="negative token ids"):
        read_request(Exactly(encode(PrefixRequest("t", Prompt((1, -2))))), most_tokens=3)
    request = encode(PrefixRequest("t", Prompt((1,)))).replace(b'"ticket"', b'"tucket"')
    with pytest.raises(ExchangeError, match="description"):
        read_request(Exactly(request), most_tokens=3)


def test_an_answer_has_no_more_than_was_asked_for() -> None:
    most = most_bytes(10, 100)
    assert read_answer_head(Exactly(answer_head(most)), most) == most
    assert read_answer_head(Exactly(answer_head(0)), most) == 0
    with pytest.raises(ExchangeError, match="more than"):
        read_answer_head(Exactly(answer_head(most + 1)), most)
    assert most_bytes(10, 100, 50) == most + 100, "a state, and a short block"
