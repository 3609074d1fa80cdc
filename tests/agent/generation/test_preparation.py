import asyncio
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from arriero.agent.engine.grammar.grammars import Ended
from arriero.agent.engine.sequence import SequenceId
from arriero.agent.engine.withdrawal import Withdrawn, check_wanted
from arriero.agent.generation.answers.prepared import Prepared
from arriero.agent.generation.answers.resumption import Outcome, Resume, Resumed
from arriero.agent.generation.preparation import NUM_THREADS, Preparation
from arriero.agent.generation.preparer import Preparer
from arriero.agent.generation.text_length import LONG_TEXT, VERY_LONG_TEXT
from arriero.shared.continuation import Continuation
from arriero.shared.errors import EngineFailed, InternalError, PromptTooLong
from arriero.shared.inference import (
    ChatMessage,
    GenerateRequest,
    ImagePart,
    ImageUrl,
    RegexGrammar,
    RequestId,
)
from arriero.shared.messages import Piece
from tests.agent.fakes import BOS, byte_model, soon
from tests.agent.generation.outputs import ONE
from tests.waiting import HANGS

LONG = "x" * (LONG_TEXT + 1)
VERY_LONG = "x" * (VERY_LONG_TEXT + 1)


class SlowPreparer(Preparer):
    """Begins to prepare when the test says so."""

    def __init__(self) -> None:
        super().__init__(byte_model(), 16)
        self.may_go_on = threading.Event()
        self.is_preparing = threading.Event()
        self.begun: list[object] = []

    def prepare(
        self,
        id: SequenceId,
        request: GenerateRequest,
        scope: str | None = None,
        ended: Ended | None = None,
    ) -> Prepared:
        self.begun.append(request.prompt)
        self.is_preparing.set()
        assert self.may_go_on.wait(HANGS)
        return super().prepare(id, request, scope, ended)


class BrokenPreparer(Preparer):
    def prepare(
        self,
        id: SequenceId,
        request: GenerateRequest,
        scope: str | None = None,
        ended: Ended | None = None,
    ) -> Prepared:
        raise OSError("a mistake of ours")


@pytest.fixture
def slow() -> Iterator[SlowPreparer]:
    preparer = SlowPreparer()
    yield preparer
    preparer.may_go_on.set()


async def outcome(preparation: Preparation, prompt: str, id: SequenceId = ONE) -> Outcome:
    replied: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    preparation.prepare(id, GenerateRequest(prompt=prompt), replied.set_result)
    return await soon(replied)


async def test_a_request_is_prepared() -> None:
    prepared = await outcome(Preparation(Preparer(byte_model(), 16)), "ab")
    assert isinstance(prepared, Prepared)
    assert prepared.sequence.prompt.tokens == (BOS, *b"ab")


async def test_an_error_is_an_outcome() -> None:
    error = await outcome(Preparation(Preparer(byte_model(), 16)), "x" * 99)
    assert isinstance(error, PromptTooLong)


async def test_a_mistake_of_ours_is_logged_and_answered(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        error = await outcome(Preparation(BrokenPreparer(byte_model(), 16)), "x")
    assert isinstance(error, InternalError)
    assert "a mistake of ours" not in error.message
    assert "a mistake of ours" in caplog.text


async def test_the_event_loop_goes_on_meanwhile(slow: SlowPreparer) -> None:
    waiting = asyncio.create_task(outcome(Preparation(slow), "x"))
    await asyncio.to_thread(lambda: None)
    assert not waiting.done()
    slow.may_go_on.set()
    assert isinstance(await soon(waiting), Prepared)


async def test_what_is_abandoned_never_begins_and_never_replies(slow: SlowPreparer) -> None:
    preparation = Preparation(slow)
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
        assert isinstance(await soon(replied.get()), Prepared)
    assert replied.empty()


async def test_nobody_waits_for_a_batch() -> None:
    class SlowWithBatches(SlowPreparer):
        def prepare(
            self,
            id: SequenceId,
            request: GenerateRequest,
            scope: str | None = None,
            ended: Ended | None = None,
        ) -> Prepared:
            if request.priority == -1:
                return super().prepare(id, request, scope, ended)
            return Preparer.prepare(self, id, request, scope, ended)

    slow = SlowWithBatches()
    preparation = Preparation(slow)
    replied: asyncio.Queue[Outcome] = asyncio.Queue()
    for number in range(NUM_THREADS + 2):
        request = GenerateRequest(prompt=str(number), priority=-1)
        preparation.prepare(SequenceId(number), request, replied.put_nowait)
    assert isinstance(await outcome(preparation, "x", SequenceId(99)), Prepared)
    assert slow.begun in ([], ["0"]), "a batch has one thread"
    slow.may_go_on.set()
    for _ in range(NUM_THREADS + 2):
        assert isinstance(await soon(replied.get()), Prepared)


PICTURE = ImagePart(type="image_url", image_url=ImageUrl(url="data:image/png;base64,AA=="))
LENGTHY: list[dict[str, Any]] = [
    {"grammar": RegexGrammar(type="regex", pattern="a")},
    {"tools": ({"name": "f"},)},
    {"prompt": None, "messages": (ChatMessage(role="user", content=(PICTURE,)),)},
]


@pytest.mark.parametrize("fields", LENGTHY, ids=["grammar", "tools", "picture"])
async def test_nobody_waits_for_constraints_and_pictures(fields: dict[str, Any]) -> None:
    class SlowWithThem(SlowPreparer):
        def prepare(
            self,
            id: SequenceId,
            request: GenerateRequest,
            scope: str | None = None,
            ended: Ended | None = None,
        ) -> Prepared:
            if request.prompt != "x":
                super().prepare(id, request, scope, ended)
            return Preparer.prepare(self, id, GenerateRequest(prompt="x"), scope, ended)

    slow = SlowWithThem()
    preparation = Preparation(slow)
    replied: asyncio.Queue[Outcome] = asyncio.Queue()
    for number in range(9):
        request = GenerateRequest(**{"prompt": str(number), **fields})
        preparation.prepare(SequenceId(number), request, replied.put_nowait)
    assert isinstance(await outcome(preparation, "x", SequenceId(99)), Prepared)
    slow.may_go_on.set()
    for _ in range(9):
        await soon(replied.get())


async def test_abandoning_what_is_done_is_nothing() -> None:
    preparation = Preparation(Preparer(byte_model(), 16))
    await outcome(preparation, "x")
    preparation.abandon(ONE)


@pytest.mark.parametrize(
    ("held_up", "newcomer"), [(LONG, "short"), (VERY_LONG, "short"), (VERY_LONG, LONG)]
)
async def test_a_long_text_holds_up_none_that_is_far_shorter(held_up: str, newcomer: str) -> None:
    class SlowWithLongTexts(SlowPreparer):
        def prepare(
            self,
            id: SequenceId,
            request: GenerateRequest,
            scope: str | None = None,
            ended: Ended | None = None,
        ) -> Prepared:
            if request.prompt == held_up:
                return super().prepare(id, request, scope, ended)
            return Preparer.prepare(self, id, request, scope, ended)

    slow = SlowWithLongTexts()
    preparation = Preparation(slow)
    replied: asyncio.Queue[Outcome] = asyncio.Queue()
    for id in range(NUM_THREADS + 1):
        preparation.prepare(SequenceId(id), GenerateRequest(prompt=held_up), replied.put_nowait)
    answer = await outcome(preparation, newcomer, SequenceId(99))
    assert isinstance(answer, Prepared if newcomer == "short" else PromptTooLong)
    assert replied.empty()
    slow.may_go_on.set()
    for _ in range(NUM_THREADS + 1):
        assert isinstance(await soon(replied.get()), PromptTooLong)
    await asyncio.to_thread(preparation.close)


async def test_a_request_goes_on_after_what_another_agent_gave() -> None:
    preparation = Preparation(Preparer(byte_model(), 16))
    replied: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    resume = Resume(RequestId("r"), Continuation.after([*b"xyz"], num_characters=2))
    preparation.prepare(ONE, GenerateRequest(prompt="ab"), replied.set_result, resume)
    outcome = await soon(replied)
    assert isinstance(outcome, Resumed)
    assert outcome.prepared.sequence.said == tuple(b"xyz")
    assert outcome.items == (Piece(id=resume.name, text="z"),)


async def test_what_does_not_fit_is_an_outcome() -> None:
    preparation = Preparation(Preparer(byte_model(), 16))
    replied: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    resume = Resume(RequestId("r"), Continuation(packed_tokens=b"torn!"))
    preparation.prepare(ONE, GenerateRequest(prompt="ab"), replied.set_result, resume)
    assert isinstance(await soon(replied), EngineFailed)


async def test_a_long_answer_that_goes_on_holds_up_no_short_request(slow: SlowPreparer) -> None:
    preparation = Preparation(slow)
    resume = Resume(RequestId("r"), Continuation.after(range(LONG_TEXT // 16)))
    for id in range(NUM_THREADS):
        preparation.prepare(SequenceId(id), GenerateRequest(prompt="long"), lambda _: None, resume)
    await soon(asyncio.to_thread(slow.is_preparing.wait, HANGS))
    slow.is_preparing.clear()
    preparation.prepare(SequenceId(99), GenerateRequest(prompt="short"), lambda _: None)
    await soon(asyncio.to_thread(slow.is_preparing.wait, HANGS))
    assert slow.begun == ["long", "short"]
    slow.may_go_on.set()
    await asyncio.to_thread(preparation.close)


async def test_closing_waits_for_what_is_being_prepared(slow: SlowPreparer) -> None:
    """It uses the model, which is freed after that."""
    preparation = Preparation(slow)
    preparation.prepare(ONE, GenerateRequest(prompt="x"), lambda _: None)
    await soon(asyncio.to_thread(slow.is_preparing.wait, HANGS))
    closing = asyncio.ensure_future(asyncio.to_thread(preparation.close))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(closing), 0.1)
    slow.may_go_on.set()
    await soon(closing)


async def test_what_is_abandoned_ends_before_its_next_part() -> None:
    ended = threading.Event()

    class Giving(SlowPreparer):
        def prepare(self, id: SequenceId, request: GenerateRequest, *others: object) -> Prepared:
            self.is_preparing.set()
            assert self.may_go_on.wait(HANGS)
            try:
                check_wanted()
            except Withdrawn:
                ended.set()
                raise
            raise AssertionError("it is prepared on")

    giving = Giving()
    preparation = Preparation(giving)
    preparation.prepare(ONE, GenerateRequest(prompt="x"), pytest.fail)
    await asyncio.to_thread(giving.is_preparing.wait, HANGS)
    preparation.abandon(ONE)
    giving.may_go_on.set()
    assert await asyncio.to_thread(ended.wait, HANGS)
