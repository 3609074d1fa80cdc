import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from arriero.agent.sequence_id import SequenceId
from arriero.agent.upstream.client import Client
from arriero.agent.upstream.generation import UpstreamGeneration
from arriero.agent.upstream.protocol.address import ApiAddress
from arriero.agent.upstream.protocol.bodies import Server
from arriero.agent.upstream.protocol.failures import UpstreamRefusal
from arriero.shared.continuation import Continuation
from arriero.shared.errors import ShuttingDown, WireError
from arriero.shared.inference import ChatMessage, GenerateRequest, RequestId, Usage
from arriero.shared.messages import Ended, Noticed, Piece, PromptRead, Refused, Start
from tests.agent.fakes import soon
from tests.agent.upstream.protocol.servers import OLLAMA_SERVER, VLLM_SERVER
from tests.agent.upstream.scripted import COUNTS, TEXT, Listener, Scripted, chunk

REQUEST = GenerateRequest(messages=(ChatMessage(role="user", content="hi"),), seed=77)
ONE, TWO = SequenceId(1), SequenceId(2)
R = RequestId("r")


class Side:
    """The port over a scripted server."""

    def __init__(self, scripted: Scripted, client: Client, group: asyncio.TaskGroup) -> None:
        self.scripted = scripted
        self.server: Server | None = VLLM_SERVER
        self.num_suspicions = self.num_served = 0
        self.refusals: list[UpstreamRefusal] = []
        self.listener = Listener()
        self.generation = UpstreamGeneration(
            client,
            group,
            lambda: self.server,
            on_suspicion=self.suspect,
            on_refusal=self.refusals.append,
            on_served=self.serve,
            on_work=lambda: None,
        )

    def suspect(self) -> None:
        self.num_suspicions += 1

    def serve(self) -> None:
        self.num_served += 1

    def start(self, id: SequenceId = ONE, request: GenerateRequest = REQUEST) -> None:
        self.generation.start(id, Start(id=R, request=request), self.listener)

    @property
    def num_running(self) -> int:
        return self.generation.meter.statistics(0.0).num_running


@asynccontextmanager
async def side() -> AsyncIterator[Side]:
    async with (
        Scripted().serving() as scripted,
        Client(ApiAddress.of(scripted.url)) as client,
        asyncio.TaskGroup() as group,
    ):
        yield Side(scripted, client, group)


async def test_a_request_is_answered() -> None:
    async with side() as it:
        it.start()
        items = await it.listener.until_released()
        assert "".join(each.text for each in items if isinstance(each, Piece)) == "Hello"
        assert PromptRead(id=R, prompt_tokens=5, cached_tokens=0) in items
        assert isinstance(items[-1], Ended)
        assert items[-1].usage == Usage(prompt_tokens=5, completion_tokens=2)
        [body] = it.scripted.asked
        assert (body["model"], body["messages"]) == ("m", [{"role": "user", "content": "hi"}])
        assert it.num_running == 0


async def test_to_cancel_ends_with_what_came_and_leaves_the_server() -> None:
    async with side() as it:
        it.scripted.is_stuck = True
        it.start()
        await it.listener.next()
        it.generation.cancel(ONE)
        [end], released = await it.listener.next()
        assert isinstance(end, Ended)
        assert (end.finish_reason, end.usage.completion_tokens) == ("cancelled", 1)
        assert released == (ONE,)
        await soon(it.scripted.was_left.wait())
        it.generation.cancel(ONE)
        assert it.listener.has_heard_all


async def test_to_fail_and_to_discard() -> None:
    async with side() as it:
        it.scripted.is_stuck = True
        it.start(ONE)
        it.start(TWO)
        it.generation.fail(ONE, ShuttingDown("bye"))
        [end], released = await it.listener.next()
        assert isinstance(end, Refused)
        assert (end.error.code, released) == ("shutting_down", (ONE,))
        it.generation.discard(TWO)
        assert await it.listener.next() == ((), (TWO,))
        it.generation.discard(TWO)
        assert (it.listener.has_heard_all, it.num_running) == (True, 0)


async def error_of(it: Side, request: GenerateRequest = REQUEST) -> Any:
    it.start(ONE, request)
    end = (await it.listener.until_released())[-1]
    assert isinstance(end, Refused)
    return end.error


async def test_a_refusal_of_the_request_is_told() -> None:
    async with side() as it:
        it.scripted.refuses = {"top_p": "`top_p` is bad"}
        error = await error_of(it, GenerateRequest(prompt="a", top_p=0.5))
        assert error.code == "invalid_request"
        assert error.message.endswith(": `top_p` is bad")
        assert it.num_suspicions == 0


@pytest.mark.parametrize("status", [429, 503, 401])
async def test_a_server_that_takes_nobody_gives_the_request_back(status: int) -> None:
    async with side() as it:
        it.scripted.status = status
        assert (await error_of(it)).code == "shutting_down"
        assert it.num_suspicions == 1


async def test_a_server_that_is_lost_in_the_middle() -> None:
    async with side() as it:
        it.scripted.breaks_off = True
        error = await error_of(it)
        assert (error.code, it.num_suspicions) == ("agent_lost", 1)
        assert "the upstream server at 127.0.0.1:" in error.message


async def test_a_server_that_speaks_something_else() -> None:
    async with side() as it:
        it.scripted.chunks = ({"choices": [5]},)
        assert "shape of OpenAI's API" in (await error_of(it)).message


async def test_a_server_that_is_known_to_be_away_is_not_asked() -> None:
    async with side() as it:
        it.server = None
        assert (await error_of(it)).code == "shutting_down"
        assert it.scripted.seen == []


async def test_refusals_are_told_while_it_serves_nobody() -> None:
    async with side() as it:
        it.scripted.status = 429
        assert (await error_of(it)).code == "shutting_down"
        assert ([each.status for each in it.refusals], it.num_served) == ([429], 0)
        it.scripted.status, it.scripted.is_stuck = 200, True
        it.start(TWO)
        await it.listener.next()
        assert it.num_served == 1
        it.scripted.status = 429
        assert (await error_of(it)).code == "shutting_down"
        assert len(it.refusals) == 1, "it is only busy"
        it.scripted.retry_after = "3"
        suspicions = it.num_suspicions
        assert (await error_of(it)).code == "shutting_down"
        assert (len(it.refusals), it.num_suspicions) == (2, suspicions), "it says until when"
        it.generation.discard(TWO)


async def test_what_the_server_cannot_do_is_refused_by_name() -> None:
    async with side() as it:
        it.server = OLLAMA_SERVER
        error = await error_of(it, GenerateRequest(prompt="a"))
        assert (error.code, error.field) == ("not_supported", "prompt")


BEGUN = Continuation(text="Hel", num_tokens=1, num_characters=3)


def go_on(it: Side, continuation: Continuation, request: GenerateRequest = REQUEST) -> None:
    it.generation.start(ONE, Start(id=R, request=request, continuation=continuation), it.listener)


async def test_an_answer_that_another_agent_began_goes_on() -> None:
    async with side() as it:
        it.scripted.chunks = (*TEXT[1:], COUNTS)
        go_on(it, BEGUN)
        items = await it.listener.until_released()
        assert "".join(each.text for each in items if isinstance(each, Piece)) == "lo"
        assert isinstance(items[-1], Ended)
        assert items[-1].usage == Usage(prompt_tokens=4, completion_tokens=3)
        [body] = it.scripted.asked
        assert body["messages"][-1] == {"role": "assistant", "content": "Hel"}
        assert it.generation.meter.statistics(0.0).completion_tokens == 2, "its own alone"


async def test_a_client_is_told_which_penalties_begin_anew_once_the_server_goes_on() -> None:
    penalised = replace(REQUEST, presence_penalty=0.5)
    async with side() as it:
        go_on(it, BEGUN, penalised)
        first, *_ = await it.listener.until_released()
        assert isinstance(first, Noticed)
        assert (first.code, first.id) == ("resumed_anew", R)
        it.scripted.refuses = {"continue_final_message": "unknown field"}
        go_on(it, BEGUN, penalised)
        assert len(await it.listener.until_released()) == 1, "nothing goes on"


async def test_an_answer_that_has_all_its_tokens_needs_no_server() -> None:
    async with side() as it:
        go_on(it, BEGUN, replace(REQUEST, max_tokens=1))
        [end], released = await it.listener.next()
        assert isinstance(end, Ended)
        assert (end.finish_reason, end.usage.completion_tokens, released) == ("length", 1, (ONE,))
        assert it.scripted.seen == []


async def gone_on_in_vain(it: Side, continuation: Continuation = BEGUN) -> WireError:
    go_on(it, continuation)
    end = (await it.listener.until_released())[-1]
    assert isinstance(end, Refused)
    return end.error


async def test_a_server_that_does_not_go_on_ends_the_answer() -> None:
    async with side() as it:
        it.scripted.refuses = {"continue_final_message": "unknown field"}
        error = await gone_on_in_vain(it)
        assert error.code == "agent_lost"
        assert error.message.endswith("did not continue the answer: unknown field")
        it.scripted.refuses = {}
        it.scripted.chunks = (chunk({"reasoning_content": "hm"}),)
        assert "began to reason again" in (await gone_on_in_vain(it)).message
        assert it.num_suspicions == 0


async def test_a_server_that_is_away_gives_back_what_it_was_to_go_on_with() -> None:
    async with side() as it:
        it.scripted.status = 503
        assert (await gone_on_in_vain(it)).code == "shutting_down"


async def test_token_ids_are_no_text() -> None:
    async with side() as it:
        error = await gone_on_in_vain(it, Continuation.after((1, 2), num_characters=3))
        assert error.code == "agent_lost"


async def test_a_mistake_of_ours_ends_one_request_alone(caplog: pytest.LogCaptureFixture) -> None:
    async with side() as it:
        it.scripted.is_stuck = True
        it.start(TWO)
        await it.listener.next()
        it.server = 5  # type: ignore[assignment]
        assert (await error_of(it)).code == "internal_error"
        assert "a request failed" in caplog.text
        assert it.num_running == 1
        it.generation.discard(TWO)
