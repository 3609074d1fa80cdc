"""Events told one by one, or gathered."""

from collections.abc import AsyncIterator

import pytest

from arriero.balancer.doors.field_names import FieldNames
from arriero.balancer.doors.narration import Json, in_own_words, listen, narrate
from arriero.shared.errors import EngineFailed, PromptTooLong
from arriero.shared.inference import Begun, Event, Failed, Notice, Token
from tests.balancer.doors.fake_switchboard import done


class Parrot:
    """Says the text of tokens, and nothing of anything else."""

    def __init__(self) -> None:
        self.taken: list[Event] = []

    def begin(self) -> list[Json]:
        return [{"type": "hello"}]

    def take(self, event: Event) -> list[Json]:
        self.taken.append(event)
        return [{"type": "word", "text": event.text}] if isinstance(event, Token) else []


async def stream(*events: Event) -> AsyncIterator[Event]:
    for event in events:
        yield event


async def test_each_event_is_one_write() -> None:
    told = narrate(stream(Token("a"), Notice("x", "y"), Token("b"), done()), Parrot())
    hello = b'event: hello\ndata: {"type":"hello"}\n\n'
    a, b = (b'event: word\ndata: {"type":"word","text":"%b"}\n\n' % each for each in (b"a", b"b"))
    assert [chunk async for chunk in told] == [hello + a, b]


async def test_what_is_known_beforehand_is_taken_beforehand() -> None:
    parrot = Parrot()
    beforehand = [Notice("x", "y"), Begun(3, 0)]
    told = narrate(stream(*beforehand, Token("a")), parrot)
    await anext(told)
    assert parrot.taken == [*beforehand, Token("a")]
    with pytest.raises(EngineFailed):
        await anext(narrate(stream(*beforehand, Failed(EngineFailed("broke"))), Parrot()))


async def test_an_error_that_comes_first_is_raised() -> None:
    with pytest.raises(EngineFailed):
        await anext(narrate(stream(Failed(EngineFailed("broke"))), Parrot()))


async def test_a_later_error_is_told() -> None:
    parrot = Parrot()
    failed = Failed(EngineFailed("broke"))
    assert len([chunk async for chunk in narrate(stream(Token("a"), failed), parrot)]) == 1
    assert parrot.taken[-1] == failed


async def test_listening() -> None:
    parrot = Parrot()
    await listen(stream(Token("a"), done()), parrot)
    assert parrot.taken == [Token("a"), done()]
    with pytest.raises(EngineFailed):
        await listen(stream(Token("a"), Failed(EngineFailed("broke"))), parrot)


async def test_errors_name_fields_as_the_client_does() -> None:
    names = FieldNames({"messages": "input"})
    failed = Failed(PromptTooLong("`messages`: too long", field="messages"))
    told = [event async for event in in_own_words(stream(Token("a"), failed), names)]
    assert told == [Token("a"), Failed(PromptTooLong("`input`: too long", field="input"))]
