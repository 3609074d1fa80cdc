import asyncio
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from arriero.agent.engine.prompt_store.prompt_store import Ignored, PromptStore
from arriero.agent.engine.prompt_store.stored_prompt import ModelIdentity, Origin, StoredPrompt
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.sequence import NewSequence, SequenceId
from arriero.agent.generation.preparation import NUM_THREADS, Preparation
from arriero.agent.generation.prepared import Outcome, Prepared
from arriero.agent.generation.preparer import Preparer
from arriero.shared.errors import InternalError, PromptTooLong
from arriero.shared.inference import GenerateRequest, Notice
from tests.agent.fakes import BOS, FakeWorker, byte_model

ONE = SequenceId(1)


class SlowPreparer(Preparer):
    """Begins to prepare when the test says so."""

    def __init__(self) -> None:
        super().__init__(byte_model(), 16)
        self.may_go_on = threading.Event()
        self.begun: list[str | None] = []

    def prepare(self, request: GenerateRequest) -> Prepared:
        self.begun.append(request.prompt)
        self.may_go_on.wait()
        return super().prepare(request)


class BrokenPreparer(Preparer):
    def prepare(self, request: GenerateRequest) -> Prepared:
        raise OSError("a mistake of ours")


@pytest.fixture
def worker() -> FakeWorker:
    return FakeWorker(Path("m.gguf"))


@pytest.fixture
def slow() -> Iterator[SlowPreparer]:
    preparer = SlowPreparer()
    yield preparer
    preparer.may_go_on.set()


async def outcome(preparation: Preparation, prompt: str, id: SequenceId = ONE) -> Outcome:
    replied: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    preparation.prepare(id, GenerateRequest(prompt=prompt), replied.set_result)
    return await replied


async def test_a_request_is_prepared(worker: FakeWorker) -> None:
    prepared = await outcome(Preparation(Preparer(byte_model(), 16), worker), "ab")
    assert isinstance(prepared, Prepared)
    assert prepared.prompt == (BOS, *b"ab")


async def test_an_error_is_an_outcome(worker: FakeWorker) -> None:
    error = await outcome(Preparation(Preparer(byte_model(), 16), worker), "x" * 99)
    assert isinstance(error, PromptTooLong)


async def test_a_mistake_of_ours_is_logged_and_answered(
    worker: FakeWorker, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        error = await outcome(Preparation(BrokenPreparer(byte_model(), 16), worker), "x")
    assert isinstance(error, InternalError)
    assert "a mistake of ours" not in error.message
    assert "a mistake of ours" in caplog.text


async def test_the_event_loop_goes_on_meanwhile(worker: FakeWorker, slow: SlowPreparer) -> None:
    waiting = asyncio.create_task(outcome(Preparation(slow, worker), "x"))
    await asyncio.to_thread(lambda: None)
    assert not waiting.done()
    slow.may_go_on.set()
    assert isinstance(await waiting, Prepared)


async def test_what_is_abandoned_never_begins_and_never_replies(
    worker: FakeWorker, slow: SlowPreparer
) -> None:
    preparation = Preparation(slow, worker)
    replied: asyncio.Queue[Outcome] = asyncio.Queue()
    for number in range(NUM_THREADS + 1):
        request = GenerateRequest(prompt=str(number))
        preparation.prepare(SequenceId(number), request, replied.put_nowait)
    preparation.abandon(SequenceId(NUM_THREADS))
    preparation.abandon(SequenceId(0))
    slow.may_go_on.set()
    assert isinstance(await outcome(preparation, "last", SequenceId(99)), Prepared)
    assert str(NUM_THREADS) not in slow.begun
    for _ in range(NUM_THREADS - 1):
        assert isinstance(await replied.get(), Prepared)
    assert replied.empty()


async def test_abandoning_what_is_done_is_nothing(worker: FakeWorker) -> None:
    preparation = Preparation(Preparer(byte_model(), 16), worker)
    await outcome(preparation, "x")
    preparation.abandon(ONE)


async def test_sequences_go_to_the_worker(worker: FakeWorker) -> None:
    preparation = Preparation(Preparer(byte_model(), 16), worker)
    sequence = NewSequence(id=ONE, prompt=(1,), max_tokens=None, sampling=Sampling(seed=1))
    preparation.run(sequence)
    preparation.finish(ONE)
    preparation.drop(ONE)
    assert worker.added.get_nowait() == sequence
    assert worker.finished.get_nowait() == ONE
    assert worker.dropped.get_nowait() == ONE


class FullStore(PromptStore):
    def save(self, key: str, prompt: StoredPrompt) -> Ignored | None:
        return Ignored(f"no room for {key}")


class BrokenStore(PromptStore):
    def save(self, key: str, prompt: StoredPrompt) -> Ignored | None:
        raise ValueError("a mistake of ours")


async def outcome_of_save(
    store_type: type[PromptStore], folder: Path, worker: FakeWorker
) -> Notice | None:
    origin = Origin(
        model=ModelIdentity(architecture="none", parameters=0, size_bytes=0, digest="d"),
        engine="e",
        cache="c",
    )
    store = store_type(folder, limit_bytes=10_000, origin=origin)
    preparation = Preparation(Preparer(byte_model(), 16, store=store), worker, store)
    replied: asyncio.Future[Notice | None] = asyncio.get_running_loop().create_future()
    preparation.save("k", StoredPrompt((1,), b"state"), replied.set_result)
    return await replied


async def test_a_prompt_is_stored(worker: FakeWorker, tmp_path: Path) -> None:
    assert await outcome_of_save(PromptStore, tmp_path, worker) is None
    (_,) = await asyncio.to_thread(os.listdir, tmp_path)


async def test_a_prompt_that_cannot_be_stored_is_told(worker: FakeWorker, tmp_path: Path) -> None:
    assert await outcome_of_save(FullStore, tmp_path, worker) == Notice(
        "prompt_cache", "no room for k"
    )


async def test_a_mistake_in_storing_is_logged_and_told(
    worker: FakeWorker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        failure = await outcome_of_save(BrokenStore, tmp_path, worker)
    assert failure is not None and "a mistake of ours" not in failure.message
    assert "a mistake of ours" in caplog.text
