"""Events told one by one, or gathered."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.api.common.event_stream import (
    HOLE,
    Deltas,
    EventRenderer,
    Json,
    frames,
)
from arriero.shared.errors import EngineFailed, RequestError
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

    def whole(self) -> list[Event]:
        return self.taken

    def take(self, event: Event, _number: int = 0, /) -> list[Json]:
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


def framed(type: str, **values: str) -> bytes:
    members = "".join(f',"{name}":"{value}"' for name, value in values.items())
    return f'event: {type}\ndata: {{"type":"{type}"{members}}}\n\n'.encode()


def rendered(*events: Event, parrot: Parrot | None = None) -> list[bytes]:
    parrot = parrot or Parrot()
    return [chunk for event in events if (chunk := parrot.render(event))]


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
    assert rendered(*beforehand) == []


def test_one_that_waits_is_told_in_comments() -> None:
    comments = [
        b": waiting position=2 for=slot\n\n",
        b": waiting position=1 for=model seconds_left=2 reason=no agent is connected\n\n",
    ]
    waits = [Waiting(2, "slot"), Waiting(1, "model", 2.0, "no agent\nis connected")]
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


@given(st.text())
def test_a_delta_is_the_event_with_another_text(text: str) -> None:
    deltas = Deltas({"type": "t", "text": HOLE, "more": {"a": 1}})
    whole = {"type": "t", "text": text, "more": {"a": 1}}
    assert deltas.write(text) == frames([whole])
    assert deltas.write(text, b',"n":7') == frames([{**whole, "n": 7}])
