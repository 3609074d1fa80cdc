import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.prompt_store.stored_prompt import StoredPrompt
from arriero.agent.engine.sequence import NewSequence, SequenceId
from arriero.agent.generation.answers.resumption import Outcome, Resume
from arriero.agent.generation.local_generation import LocalGeneration
from arriero.agent.generation.port import NewRequest, Ticket
from arriero.agent.generation.preparation import Preparation
from arriero.agent.generation.preparer import Preparer
from arriero.agent.generation.prompt_saver import PromptSaver
from arriero.shared.continuation import Continuation
from arriero.shared.errors import EngineFailed
from arriero.shared.inference import GenerateRequest, Notice
from arriero.shared.inference.prefix_peers import PrefixSource
from arriero.shared.messages import Ended, Item, Piece, Refused
from tests.agent.fakes import FakeWorker, byte_model, soon
from tests.agent.generation.outputs import FIRST, SAVED, SECOND, R, S, a_store
from tests.agent.stored import whole

REQUEST = GenerateRequest(prompt="x")
SAVING = GenerateRequest(prompt="x", cache_key="k", save_cache=True)
BROKEN = "?"


def piece(token: int) -> bytes:
    if token == ord(BROKEN):
        raise IndexError("a mistake of ours")
    return bytes([token])


class Listener:
    """Keeps what it hears; everything comes soon."""

    def __init__(self) -> None:
        self._heard: asyncio.Queue[tuple[tuple[Item, ...], tuple[Ticket, ...]]] = asyncio.Queue()

    def produced(self, items: tuple[Item, ...], released: tuple[Ticket, ...]) -> None:
        self._heard.put_nowait((items, released))

    async def next(self) -> tuple[tuple[Item, ...], tuple[Ticket, ...]]:
        return await soon(self._heard.get())

    @property
    def has_heard_all(self) -> bool:
        return self._heard.empty()


class HeldFetcher:
    """Replies when the test says so."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[tuple[SequenceId, Callable[[StoredPrompt | None], None]]] = (
            asyncio.Queue()
        )
        self.abandoned: list[SequenceId] = []

    def fetch(
        self,
        id: SequenceId,
        source: PrefixSource,
        prompt: Prompt,
        reply: Callable[[StoredPrompt | None], None],
    ) -> None:
        self.asked.put_nowait((id, reply))

    def abandon(self, id: SequenceId) -> None:
        self.abandoned.append(id)


class Room:
    def __init__(self, saver: PromptSaver, preparer: Preparer) -> None:
        self.worker = FakeWorker(Path("m.gguf"))
        self.listener = Listener()
        self.fetcher = HeldFetcher()
        self.generation = LocalGeneration(
            Preparation(preparer), self.worker, saver, piece, fetcher=self.fetcher
        )
        self.worker.on_step = self.generation.stepped

    async def started(
        self, ticket: Ticket = FIRST, request: GenerateRequest = REQUEST
    ) -> NewSequence:
        self.generation.start(
            NewRequest(ticket, R if ticket == FIRST else S, request), self.listener
        )
        return await self.worker.added.get()


@pytest.fixture
def preparer(tmp_path: Path) -> Preparer:
    return Preparer(byte_model(), 16, store=a_store(tmp_path))


@pytest.fixture
def room(tmp_path: Path, preparer: Preparer) -> Iterator[Room]:
    room = Room(PromptSaver(a_store(tmp_path)), preparer)
    yield room
    room.generation.close()


async def test_a_request_from_start_to_end(room: Room) -> None:
    sequence = await room.started()
    room.worker.say(sequence, "yes")
    [piece], released = await room.listener.next()
    assert isinstance(piece, Piece) and piece.text == "yes"
    assert released == ()
    room.worker.say(sequence, "", is_last=True)
    items, released = await room.listener.next()
    assert isinstance(items[-1], Ended)
    assert released == (FIRST,)


async def test_the_engine_knows_what_is_being_prepared(room: Room) -> None:
    await room.started()
    assert not room.worker.expected  # it was submitted
    too_long = GenerateRequest(prompt="x" * 20, priority=-1)
    room.generation.start(NewRequest(SECOND, S, too_long), room.listener)
    assert list(room.worker.expected.values()) == [True], "it is of a batch"
    [end], _ = await room.listener.next()
    assert isinstance(end, Refused)
    assert not room.worker.expected
    third = Ticket(3)
    room.generation.start(NewRequest(third, S, REQUEST), room.listener)
    room.generation.cancel(third)
    assert not room.worker.expected


async def test_a_continuation_that_does_not_fit_ends_alone(room: Room) -> None:
    bystander = await room.started()
    torn = Continuation(packed_tokens=b"torn!")
    room.generation.start(NewRequest(SECOND, S, GenerateRequest(prompt="x"), torn), room.listener)
    [refused], released = await room.listener.next()
    assert isinstance(refused, Refused)
    assert (refused.id, refused.error.code, released) == (S, "engine_failed", (SECOND,))
    assert not room.worker.expected
    room.worker.say(bystander, "yes")
    [piece], _ = await room.listener.next()
    assert isinstance(piece, Piece) and piece.text == "yes"


async def test_an_answer_goes_on(room: Room) -> None:
    continuation = Continuation.after([*b"ye"], num_characters=2)
    room.generation.start(NewRequest(FIRST, R, REQUEST, continuation), room.listener)
    sequence = await room.worker.added.get()
    assert sequence.said == tuple(b"ye")
    room.worker.say(sequence, "s")
    [piece], _ = await room.listener.next()
    assert piece == Piece(id=R, text="s", tokens=tuple(b"s"))


async def test_an_answer_that_is_complete_needs_no_engine(room: Room) -> None:
    request = GenerateRequest(prompt="x", stop=("!",))
    continuation = Continuation.after([*b"a!"], num_characters=1)
    room.generation.start(NewRequest(FIRST, R, request, continuation), room.listener)
    [ended], released = await room.listener.next()
    assert isinstance(ended, Ended) and released == (FIRST,)
    assert not room.worker.expected
    assert room.worker.added.empty()


async def test_a_save_comes_before_the_end(room: Room, preparer: Preparer) -> None:
    sequence = await room.started(request=SAVING)
    saved = whole(sequence.prompt.tokens, b"state")
    room.worker.say(sequence, "yes!", is_last=True, saved=saved)
    _, released = await room.listener.next()
    assert released == ()
    [ended], released = await room.listener.next()
    assert isinstance(ended, Ended) and released == (FIRST,)
    assert preparer.prepare(SAVING).stored == saved


async def test_cancelled_failed_and_discarded_sequences_leave_the_engine(room: Room) -> None:
    generation = room.generation
    for number, end in enumerate(
        (
            generation.cancel,
            lambda ticket: generation.fail(ticket, EngineFailed("gone")),
            generation.discard,
        ),
        1,
    ):
        ticket = Ticket(number)
        sequence = await room.started(ticket)
        end(ticket)
        assert await room.worker.dropped.get() == sequence.id
        _, released = await room.listener.next()
        assert released == (ticket,)


async def test_an_answer_that_breaks_ends_alone_and_is_logged(
    room: Room, caplog: pytest.LogCaptureFixture
) -> None:
    guilty, other = await room.started(), await room.started(SECOND)
    room.worker.say(guilty, BROKEN)
    [refused], released = await room.listener.next()
    assert isinstance(refused, Refused)
    assert (refused.id, refused.error.code, released) == (R, "internal_error", (FIRST,))
    assert await room.worker.dropped.get() == guilty.id
    assert "a mistake of ours" in caplog.text and "Traceback" in caplog.text
    room.worker.say(other, "on", is_last=True)
    items, released = await room.listener.next()
    assert isinstance(items[-1], Ended) and released == (SECOND,)


class NoThreads(Preparation):
    def prepare(
        self,
        id: SequenceId,
        request: GenerateRequest,
        reply: Callable[[Outcome], None],
        resume: Resume | None = None,
    ) -> None:
        raise RuntimeError("can't start new thread")


async def test_a_preparation_that_cannot_begin_ends_its_request(
    tmp_path: Path, preparer: Preparer, caplog: pytest.LogCaptureFixture
) -> None:
    listener = Listener()
    worker = FakeWorker(Path("m.gguf"))
    generation = LocalGeneration(NoThreads(preparer), worker, PromptSaver(), piece)
    with caplog.at_level(logging.ERROR):
        generation.start(NewRequest(FIRST, R, REQUEST), listener)
    [refused], released = await listener.next()
    assert isinstance(refused, Refused) and released == (FIRST,)
    assert "can't start new thread" in caplog.text


async def test_a_save_that_cannot_begin_does_not_take_the_answer_back(
    preparer: Preparer, caplog: pytest.LogCaptureFixture
) -> None:
    class NoThread(PromptSaver):
        def save(
            self, key: str, prompt: StoredPrompt, reply: Callable[[Notice | None], None]
        ) -> None:
            raise RuntimeError("can't start new thread")

    room = Room(NoThread(), preparer)
    sequence = await room.started(request=SAVING)
    room.worker.say(sequence, "yes!", is_last=True, saved=SAVED)
    await room.listener.next()
    [ended], released = await room.listener.next()
    assert isinstance(ended, Ended) and released == (FIRST,)
    assert "can't start new thread" in caplog.text
    room.generation.close()


FETCHING = NewRequest(FIRST, R, REQUEST, fetch=PrefixSource(address="h:1", ticket="t", seconds=5.0))


async def test_a_prefix_is_fetched_before_the_engine_gets_the_sequence(room: Room) -> None:
    room.generation.start(FETCHING, room.listener)
    id, reply = await soon(room.fetcher.asked.get())
    assert id not in room.worker.expected, "nobody waits for it"
    assert room.worker.added.empty()
    reply(SAVED)
    sequence = await room.worker.added.get()
    assert sequence.stored == SAVED


async def test_a_fetch_of_a_request_that_is_cancelled_is_abandoned(room: Room) -> None:
    room.generation.start(FETCHING, room.listener)
    id, reply = await soon(room.fetcher.asked.get())
    room.generation.cancel(FIRST)
    assert room.fetcher.abandoned == [id]
    reply(SAVED)
    assert room.worker.added.empty()


async def test_without_a_fetcher_all_is_computed(tmp_path: Path, preparer: Preparer) -> None:
    worker, listener = FakeWorker(Path("m.gguf")), Listener()
    generation = LocalGeneration(
        Preparation(preparer), worker, PromptSaver(a_store(tmp_path)), piece
    )
    generation.start(FETCHING, listener)
    assert (await worker.added.get()).stored is None
    await asyncio.to_thread(generation.close)
