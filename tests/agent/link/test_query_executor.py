import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest

from arriero.agent.engine.embedding.embedder import Withdrawn
from arriero.agent.engine.sequence import SequenceId
from arriero.agent.generation.preparer import Preparer
from arriero.agent.generation.text_queries import TextQueries
from arriero.agent.link.query_executor import QueryExecutor
from arriero.shared.queries import (
    Declined,
    Detokenize,
    Embed,
    Embedded,
    Query,
    Rank,
    Result,
    Tokenize,
    Tokenized,
    Vector,
)
from tests.agent.fakes import byte_model

EMBED = Embed(inputs=("x",))
TOKENIZE = Tokenize(text="ab")


class SlowEmbedder:
    """Answers when the test says so, and notices when nobody waits any more."""

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self.begun = threading.Event()
        self.asked: list[Embed | Rank] = []
        self.was_withdrawn = False
        self.is_free = False

    def answer(self, query: Embed | Rank, is_wanted: Callable[[], bool]) -> Result:
        self.asked.append(query)
        self.begun.set()
        self.may_go_on.wait()
        if not is_wanted():
            self.was_withdrawn = True
            raise Withdrawn
        return Embedded(vectors=(Vector(vector="AAAA", num_tokens=1),))

    def free(self) -> None:
        self.is_free = True


class Room:
    def __init__(self) -> None:
        self.embedder = SlowEmbedder()
        model = byte_model()
        self.executor = QueryExecutor(TextQueries(model.vocab, Preparer(model, 16)), self.embedder)

    def ask(self, query: Query, id: int = 1) -> asyncio.Future[Result]:
        answered: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self.executor.consult(SequenceId(id), query, answered.set_result)
        return answered


@pytest.fixture
def room() -> Iterator[Room]:
    room = Room()
    yield room
    room.embedder.may_go_on.set()
    room.executor.close()
    assert room.embedder.is_free


async def test_texts_do_not_wait_for_embeddings(room: Room) -> None:
    embedded = room.ask(EMBED)
    assert await room.ask(TOKENIZE, 2) == Tokenized(tokens=(97, 98))
    assert not embedded.done()
    room.embedder.may_go_on.set()
    assert isinstance(await embedded, Embedded)


async def test_an_error_is_the_answer(room: Room) -> None:
    declined = await room.ask(Detokenize(tokens=(999,)))
    assert isinstance(declined, Declined)
    assert declined.error.field == "tokens[0]"


async def test_one_that_was_dismissed_stops_and_is_not_answered(room: Room) -> None:
    answered = room.ask(EMBED)
    await asyncio.to_thread(room.embedder.begun.wait)
    room.executor.dismiss(SequenceId(1))
    room.embedder.may_go_on.set()
    assert isinstance(await room.ask(EMBED, 2), Embedded)
    assert room.embedder.was_withdrawn and not answered.done()
    room.executor.dismiss(SequenceId(1))


async def test_one_that_was_dismissed_before_it_began_never_does(room: Room) -> None:
    first = room.ask(EMBED)
    room.ask(Embed(inputs=("never",)), 2)
    room.executor.dismiss(SequenceId(2))
    room.embedder.may_go_on.set()
    await first
    await room.ask(EMBED, 3)
    assert room.embedder.asked == [EMBED, EMBED]


async def test_without_an_embedder_there_are_no_vectors() -> None:
    model = byte_model()
    executor = QueryExecutor(TextQueries(model.vocab, Preparer(model, 16)), None)
    answered: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
    executor.consult(SequenceId(1), EMBED, answered.set_result)
    declined = await answered
    assert isinstance(declined, Declined) and declined.error.code == "not_supported"
    executor.close()


async def test_a_mistake_of_ours_is_logged_and_answered(
    room: Room, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(query: Embed | Rank, is_wanted: Callable[[], bool]) -> Result:
        raise OSError("a mistake of ours")

    room.embedder.answer = broken  # type: ignore[method-assign]
    declined = await room.ask(EMBED)
    assert isinstance(declined, Declined) and declined.error.code == "internal_error"
    assert "a mistake of ours" in caplog.text
