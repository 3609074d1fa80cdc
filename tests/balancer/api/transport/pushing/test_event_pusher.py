from collections.abc import Sequence
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import to_json

from arriero.balancer.api.transport.pushing.text_frame import FrameOf, TextFrame, no_frame
from arriero.shared.errors import Cancelled
from arriero.shared.inference import (
    Event,
    Failed,
    LogProb,
    Notice,
    Token,
    TokenKind,
    TokenLogProbs,
)
from tests.balancer.api.fake_runtime import done
from tests.balancer.api.pushed import Client, pusher

LOG_PROBS = (TokenLogProbs(LogProb(1, b"a", -0.5)),)


def starts(kind: TokenKind) -> bytes:
    return b"<%b " % kind.encode()


def render(event: Event) -> bytes:
    """Tokens in frames by their kinds; those with log-probabilities say so."""
    if isinstance(event, Token):
        if event.is_silent:
            return b""
        more = b" and more" if event.log_probs else b""
        return starts(event.kind) + to_json(event.text) + more + b">"
    return b"" if isinstance(event, Notice) else b"[end]"


class Spelling:
    """Renders as `render`, and counts how often it had to."""

    def __init__(self) -> None:
        self.num_rendered = 0
        self.kept: list[str] = []

    def __call__(self, event: Event) -> bytes:
        self.num_rendered += 1
        return render(event)

    def frame_of(self, kind: TokenKind) -> TextFrame | None:
        return None if kind == "prompt" else TextFrame(kind, starts(kind), b">", self.kept.append)


def chunks(data: Sequence[bytes]) -> list[bytes]:
    return [b"%x\r\n%b\r\n" % (len(each), each) for each in data]


KINDS: tuple[TokenKind, ...] = ("content", "reasoning", "tool_call", "prompt")
TOKENS = st.builds(
    Token,
    st.text(st.characters(exclude_categories=["Cs"]), max_size=3),
    st.sampled_from(KINDS),
    log_probs=st.sampled_from([(), (), LOG_PROBS]),
)


SAME = TOKENS.flatmap(lambda token: st.lists(st.just(token), min_size=1, max_size=3))
EVENTS = st.lists(SAME | st.just([Notice("a", "b")]), max_size=4).map(chain.from_iterable).map(list)


@given(EVENTS, st.booleans())
def test_frames_write_what_rendering_does(events: list[Event], is_chunked: bool) -> None:
    client, spelling = Client(), Spelling()
    pushes = pusher(client, spelling, spelling.frame_of, is_chunked=is_chunked)
    for event in events:
        assert pushes.take(event)
    wanted = [data for event in events if (data := render(event))]
    assert client.written == (chunks(wanted) if is_chunked else wanted)
    framed = spelling.num_rendered + len(spelling.kept)
    assert framed == len(events)


def test_only_the_first_token_of_a_kind_is_rendered() -> None:
    client, spelling = Client(), Spelling()
    pushes = pusher(client, spelling, spelling.frame_of)
    for text in ("a", "b", "\n"):
        pushes.take(Token(text))
    assert spelling.num_rendered == 1
    assert spelling.kept == ["b", "\n"]
    assert client.written == chunks([b'<content "a">', b'<content "b">', b'<content "\\n">'])


def test_after_another_event_a_frame_is_asked_for_again() -> None:
    spelling = Spelling()
    pushes = pusher(Client(), spelling, spelling.frame_of)
    for event in (Token("a"), Notice("a", "b"), Token("c")):
        pushes.take(event)
    assert spelling.num_rendered == 3


@pytest.mark.parametrize("end", [done("stop"), Failed(Cancelled("over"))])
def test_the_last_bytes_are_left_to_be_written_with_the_end(end: Event) -> None:
    client = Client()
    pushes = pusher(client, render)
    pushes.take(end)
    assert (client.written, pushes.ending) == ([], b"[end]")


@pytest.mark.parametrize("frame_of", [no_frame, Spelling().frame_of])
def test_a_full_connection_has_no_room(frame_of: FrameOf) -> None:
    client = Client()
    pushes = pusher(client, render, frame_of)
    assert pushes.take(Token("a"))
    client.has_room = False
    assert not pushes.take(Token("b"))
    assert not pushes.take(Notice("a", "b"))
    assert len(client.written) == 2


def test_a_client_that_has_gone_is_an_error() -> None:
    with pytest.raises(ConnectionResetError):
        pusher(None, render)
