"""Events told one by one, or gathered."""

from collections.abc import AsyncIterator, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.api.common.event_stream import (
    HOLE,
    Deltas,
    EventRenderer,
    Json,
    ServerSentEvents,
    frames,
    read_to_end,
)
from arriero.balancer.api.common.field_names import SAME_NAMES, FieldNames
from arriero.shared.errors import EngineFailed, PromptTooLong, RequestError
from arriero.shared.inference import (
    Begun,
    Done,
    Event,
    Failed,
    Notice,
    Token,
    ToolCall,
    ToolCallStarted,
    Waiting,
)
from tests.balancer.api.fake_runtime import done


class Parrot(EventRenderer):
    """Says the text of tokens, and what else happens; of tokens with an `a` as fast as can be."""

    def __init__(self) -> None:
        self.taken: list[Event] = []
        self.begun: Begun | None = None
        self._words = Deltas({"type": "word", "text": HOLE})

    def begin(self) -> list[Json]:
        return [{"type": "hello"}]

    def take(self, event: Event) -> list[Json]:
        self.taken.append(event)
        return super().take(event)

    def _begun(self, begun: Begun) -> None:
        self.begun = begun

    def _go_on(self, token: Token) -> bytes | None:
        return self._words.write(token.text) if "a" in token.text else None

    def _said(self, token: Token) -> Iterator[Json]:
        yield {"type": "word", "text": token.text}

    def _called(self, call: ToolCallStarted) -> Iterator[Json]:
        yield {"type": "call", "name": call.name}

    def _done(self, done: Done) -> Iterator[Json]:
        yield {"type": "bye"}

    def _failed(self, error: RequestError) -> Iterator[Json]:
        yield {"type": "sorry", "message": error.message}


async def stream(*events: Event) -> AsyncIterator[Event]:
    for event in events:
        yield event


def framed(type: str, **values: str) -> bytes:
    members = "".join(f',"{name}":"{value}"' for name, value in values.items())
    return f'event: {type}\ndata: {{"type":"{type}"{members}}}\n\n'.encode()


def rendered(
    *events: Event, parrot: Parrot | None = None, names: FieldNames = SAME_NAMES
) -> list[bytes]:
    render = ServerSentEvents(parrot or Parrot(), names)
    return [chunk for event in events if (chunk := render(event))]


def test_each_event_is_one_write() -> None:
    events = (Token("b"), Notice("x", "y"), Token(""), Token("a"), ToolCallStarted("c", "f"))
    assert rendered(*events, ToolCall("c", "f", "{}"), done()) == [
        framed("hello") + framed("word", text="b"),
        framed("word", text="a"),
        framed("call", name="f"),
        framed("bye"),
    ]


def test_what_is_known_beforehand_is_taken_beforehand() -> None:
    parrot = Parrot()
    beforehand = [Notice("x", "y"), Begun(3, 0)]
    assert rendered(*beforehand, Token("a"), parrot=parrot) == [
        framed("hello") + framed("word", text="a")
    ]
    assert parrot.begun == Begun(3, 0)
    with pytest.raises(EngineFailed):
        rendered(*beforehand, Failed(EngineFailed("broke")))


def test_an_error_that_comes_first_is_raised() -> None:
    with pytest.raises(EngineFailed):
        rendered(Failed(EngineFailed("broke")))


def test_one_that_waits_is_told_in_comments() -> None:
    comments = [b": waiting position=2 for=slot\n\n", b": waiting position=1 for=slot\n\n"]
    waits = [Waiting(2, "slot"), Waiting(1, "slot")]
    assert rendered(*waits, Begun(3, 0), Token("a")) == [
        *comments,
        framed("hello") + framed("word", text="a"),
    ]
    assert rendered(*waits, Failed(EngineFailed("broke"))) == [
        *comments,
        framed("hello") + framed("sorry", message="broke"),
    ]


def test_a_later_error_is_told() -> None:
    told = rendered(Token("a"), Failed(EngineFailed("broke")))
    assert told[1:] == [framed("sorry", message="broke")]


async def test_listening() -> None:
    parrot = Parrot()
    await read_to_end(stream(Token("a"), done()), parrot, SAME_NAMES)
    assert parrot.taken == [Token("a"), done()]
    with pytest.raises(EngineFailed):
        await read_to_end(stream(Token("a"), Failed(EngineFailed("broke"))), parrot, SAME_NAMES)


async def test_errors_name_fields_as_the_client_does() -> None:
    names = FieldNames({"messages": "input"})
    failed = Failed(PromptTooLong("`messages`: too long", field="messages"))
    with pytest.raises(PromptTooLong, match="`input`: too long") as caught:
        rendered(failed, names=names)
    assert caught.value.field == "input"
    with pytest.raises(PromptTooLong, match="`input`: too long") as caught:
        await read_to_end(stream(Token("a"), failed), Parrot(), names)
    assert caught.value.field == "input"
    told = rendered(Token("a"), failed, names=names)
    assert told[1:] == [framed("sorry", message="`input`: too long")]


@given(st.text())
def test_a_delta_is_the_event_with_another_text(text: str) -> None:
    deltas = Deltas({"type": "t", "text": HOLE, "more": {"a": 1}})
    whole = {"type": "t", "text": text, "more": {"a": 1}}
    assert deltas.write(text) == frames([whole])
    assert deltas.write(text, b',"n":7') == frames([{**whole, "n": 7}])
