import asyncio
import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.prompt_store.prompt_store import Ignored, PromptStore
from arriero.agent.engine.prompt_store.stored_prompt import StoredPrompt
from arriero.agent.engine.sequence import NewSequence
from arriero.agent.generation.answers.prepared import Prepared
from arriero.agent.generation.answers.resumption import Outcome, Resume
from arriero.agent.generation.local_generation import LocalGeneration, PromptSaver
from arriero.agent.generation.preparation import NUM_THREADS, Preparation
from arriero.agent.generation.preparer import Preparer
from arriero.agent.sequence_id import SequenceId
from arriero.shared.continuation import Continuation
from arriero.shared.errors import EngineFailed
from arriero.shared.inference import GenerateRequest, Notice
from arriero.shared.inference.prefix_peers import PrefixSource
from arriero.shared.messages import Ended, Item, Noticed, Piece, Refused, Start
from tests.agent.fakes import FakeWorker, byte_model, soon
from tests.agent.generation.outputs import ONE, SAVED, TWO, R, S, a_store
from tests.agent.stored import whole
from tests.waiting import HANGS

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
        self._heard: asyncio.Queue[tuple[tuple[Item, ...], tuple[SequenceId, ...]]] = (
            asyncio.Queue()
        )

    def produced(self, items: tuple[Item, ...], released: tuple[SequenceId, ...]) -> None:
        self._heard.put_nowait((items, released))

    async def next(self) -> tuple[tuple[Item, ...], tuple[SequenceId, ...]]:
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
        self, id: SequenceId = ONE, request: GenerateRequest = REQUEST
    ) -> NewSequence:
        start = Start(id=R if id == ONE else S, request=request)
        self.generation.start(id, start, self.listener)
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
    assert released == (ONE,)


async def test_the_engine_knows_what_is_being_prepared(room: Room) -> None:
    await room.started()
    assert not room.worker.expected  # it was submitted
    too_long = GenerateRequest(prompt="x" * 20, priority=-1)
    room.generation.start(TWO, Start(id=S, request=too_long), room.listener)
    assert list(room.worker.expected.values()) == [True], "it is of a batch"
    [end], _ = await room.listener.next()
    assert isinstance(end, Refused)
    assert not room.worker.expected
    third = SequenceId(3)
    room.generation.start(third, Start(id=S, request=REQUEST), room.listener)
    room.generation.cancel(third)
    assert not room.worker.expected


async def test_a_continuation_that_does_not_fit_ends_alone(room: Room) -> None:
    bystander = await room.started()
    torn = Continuation(packed_tokens=b"torn!")
    room.generation.start(
        TWO, Start(id=S, request=GenerateRequest(prompt="x"), continuation=torn), room.listener
    )
    [refused], released = await room.listener.next()
    assert isinstance(refused, Refused)
    assert (refused.id, refused.error.code, released) == (S, "engine_failed", (TWO,))
    assert not room.worker.expected
    room.worker.say(bystander, "yes")
    [piece], _ = await room.listener.next()
    assert isinstance(piece, Piece) and piece.text == "yes"


async def test_an_answer_goes_on(room: Room) -> None:
    continuation = Continuation.after([*b"ye"], num_characters=2)
    room.generation.start(
        ONE, Start(id=R, request=REQUEST, continuation=continuation), room.listener
    )
    sequence = await room.worker.added.get()
    assert sequence.said == tuple(b"ye")
    room.worker.say(sequence, "s")
    [piece], _ = await room.listener.next()
    assert piece == Piece(id=R, text="s", tokens=tuple(b"s"))


async def test_an_answer_that_is_complete_needs_no_engine(room: Room) -> None:
    request = GenerateRequest(prompt="x", stop=("!",))
    continuation = Continuation.after([*b"a!"], num_characters=1)
    room.generation.start(
        ONE, Start(id=R, request=request, continuation=continuation), room.listener
    )
    [ended], released = await room.listener.next()
    assert isinstance(ended, Ended) and released == (ONE,)
    assert not room.worker.expected
    assert room.worker.added.empty()


async def test_a_save_comes_before_the_end(room: Room, preparer: Preparer) -> None:
    sequence = await room.started(request=SAVING)
    saved = room.worker.kept = whole(sequence.prompt.tokens, b"state")
    room.worker.say(sequence, "yes!", is_last=True)
    _, released = await room.listener.next()
    assert released == ()
    [ended], released = await room.listener.next()
    assert isinstance(ended, Ended) and released == (ONE,)
    assert preparer.prepare(ONE, SAVING).sequence.stored == saved


async def test_cancelled_failed_and_discarded_sequences_leave_the_engine(room: Room) -> None:
    generation = room.generation
    for number, end in enumerate(
        (
            generation.cancel,
            lambda id: generation.fail(id, EngineFailed("gone")),
            generation.discard,
        ),
        1,
    ):
        id = SequenceId(number)
        sequence = await room.started(id)
        end(id)
        assert await room.worker.dropped.get() == sequence.id
        _, released = await room.listener.next()
        assert released == (id,)


async def test_an_answer_that_breaks_ends_alone_and_is_logged(
    room: Room, caplog: pytest.LogCaptureFixture
) -> None:
    guilty, other = await room.started(), await room.started(TWO)
    room.worker.say(guilty, BROKEN)
    [refused], released = await room.listener.next()
    assert isinstance(refused, Refused)
    assert (refused.id, refused.error.code, released) == (R, "internal_error", (ONE,))
    assert await room.worker.dropped.get() == guilty.id
    assert "a mistake of ours" in caplog.text and "Traceback" in caplog.text
    room.worker.say(other, "on", is_last=True)
    items, released = await room.listener.next()
    assert isinstance(items[-1], Ended) and released == (TWO,)


class NoThreads(Preparation):
    def prepare(
        self,
        id: SequenceId,
        request: GenerateRequest,
        reply: Callable[[Outcome], None],
        resume: Resume | None = None,
        scope: str | None = None,
    ) -> None:
        raise RuntimeError("can't start new thread")


async def test_a_preparation_that_cannot_begin_ends_its_request(
    tmp_path: Path, preparer: Preparer, caplog: pytest.LogCaptureFixture
) -> None:
    listener = Listener()
    worker = FakeWorker(Path("m.gguf"))
    generation = LocalGeneration(NoThreads(preparer), worker, PromptSaver(), piece)
    with caplog.at_level(logging.ERROR):
        generation.start(ONE, Start(id=R, request=REQUEST), listener)
    [refused], released = await listener.next()
    assert isinstance(refused, Refused) and released == (ONE,)
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
    room.worker.kept = SAVED
    room.worker.say(sequence, "yes!", is_last=True)
    await room.listener.next()
    [ended], released = await room.listener.next()
    assert isinstance(ended, Ended) and released == (ONE,)
    assert "can't start new thread" in caplog.text
    room.generation.close()


async def test_an_answer_of_which_the_engine_has_nothing_is_not_saved(room: Room) -> None:
    sequence = await room.started(request=SAVING)
    room.worker.say(sequence, "yes!", is_last=True)
    await room.listener.next()
    [notice, ended], released = await room.listener.next()
    assert isinstance(notice, Noticed) and notice.code == "prompt_cache"
    assert isinstance(ended, Ended) and released == (ONE,)


SOURCE = PrefixSource(address="h:1", ticket="t", seconds=5.0)
FETCHING = Start(id=R, request=REQUEST, fetch=SOURCE)


async def test_a_prefix_is_fetched_before_the_engine_gets_the_sequence(room: Room) -> None:
    room.generation.start(ONE, FETCHING, room.listener)
    id, reply = await soon(room.fetcher.asked.get())
    assert id not in room.worker.expected, "nobody waits for it"
    assert room.worker.added.empty()
    reply(SAVED)
    sequence = await room.worker.added.get()
    assert sequence.stored == SAVED


async def test_a_fetch_of_a_request_that_is_cancelled_is_abandoned(room: Room) -> None:
    room.generation.start(ONE, FETCHING, room.listener)
    id, reply = await soon(room.fetcher.asked.get())
    room.generation.cancel(ONE)
    assert room.fetcher.abandoned == [id]
    reply(SAVED)
    assert room.worker.added.empty()


async def test_without_a_fetcher_all_is_computed(tmp_path: Path, preparer: Preparer) -> None:
    worker, listener = FakeWorker(Path("m.gguf")), Listener()
    generation = LocalGeneration(
        Preparation(preparer), worker, PromptSaver(a_store(tmp_path)), piece
    )
    generation.start(ONE, FETCHING, listener)
    assert (await worker.added.get()).stored is None
    await asyncio.to_thread(generation.close)


# ---- the saver


class FullStore(PromptStore):
    def save(self, key: str, prompt: StoredPrompt) -> Ignored | None:
        return Ignored(f"no room for {key}")


class BrokenStore(PromptStore):
    def save(self, key: str, prompt: StoredPrompt) -> Ignored | None:
        raise ValueError("a mistake of ours")


async def outcome_of_save(store_type: type[PromptStore], folder: Path) -> Notice | None:
    saver = PromptSaver(a_store(folder, store_type))
    replied: asyncio.Future[Notice | None] = asyncio.get_running_loop().create_future()
    saver.save("k", SAVED, replied.set_result)
    found = await soon(replied)
    saver.close()
    return found


async def test_a_prompt_is_stored(tmp_path: Path) -> None:
    assert await outcome_of_save(PromptStore, tmp_path) is None
    (_,) = await asyncio.to_thread(os.listdir, tmp_path)


async def test_a_prompt_that_cannot_be_stored_is_told(tmp_path: Path) -> None:
    assert await outcome_of_save(FullStore, tmp_path) == Notice("prompt_cache", "no room for k")


async def test_a_mistake_in_storing_is_logged_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        failure = await outcome_of_save(BrokenStore, tmp_path)
    assert failure is not None and "a mistake of ours" not in failure.message
    assert "a mistake of ours" in caplog.text


async def test_without_a_store_nothing_can_be_saved() -> None:
    with pytest.raises(RuntimeError, match="no prompt store"):
        PromptSaver().save("k", SAVED, lambda _: None)


async def test_a_slow_disk_holds_up_no_preparation(tmp_path: Path) -> None:
    may_go_on = threading.Event()

    class SlowStore(PromptStore):
        def save(self, key: str, prompt: StoredPrompt) -> Ignored | None:
            assert may_go_on.wait(HANGS)
            return None

    saver, preparation = (
        PromptSaver(a_store(tmp_path, SlowStore)),
        Preparation(Preparer(byte_model(), 16)),
    )
    saved: asyncio.Queue[Notice | None] = asyncio.Queue()
    for number in range(NUM_THREADS + 1):
        saver.save(f"k{number}", SAVED, saved.put_nowait)
    prepared: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    preparation.prepare(SequenceId(1), GenerateRequest(prompt="x"), prepared.set_result)
    assert isinstance(await soon(prepared), Prepared)
    assert saved.empty()
    may_go_on.set()
    for _ in range(NUM_THREADS + 1):
        assert await soon(saved.get()) is None
    saver.close()
    preparation.close()


@pytest.mark.parametrize("parts_scopes", [False, True])
async def test_callers_are_told_apart_where_the_agent_does_so(
    preparer: Preparer, parts_scopes: bool
) -> None:
    worker, listener = FakeWorker(Path("m.gguf")), Listener()
    generation = LocalGeneration(
        Preparation(preparer), worker, PromptSaver(), piece, parts_scopes=parts_scopes
    )
    generation.start(ONE, Start(id=R, request=REQUEST, scope="abc"), listener)
    sequence = await worker.added.get()
    assert sequence.prompt.scope == ("abc" if parts_scopes else None)
    generation.close()
