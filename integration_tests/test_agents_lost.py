"""An agent that dies or goes silent: each of its clients gets an answer or an error in time."""

import asyncio
import signal

from integration_tests.corpus import ENDLESS, LONG_CONTEXT, generate, plain_cases
from integration_tests.daemons import Fleet, until

PATIENT = {"heartbeat_interval": "1s", "heartbeat_timeout": "300s"}
"""Silence does not count within a test."""

IMPATIENT = {"heartbeat_interval": "1s", "heartbeat_timeout": "10s"}
"""Silence counts soon, and no agent is as slow as that for being busy."""


async def test_killed_while_streaming_and_nobody_goes_on(fleet: Fleet) -> None:
    await fleet.start_balancer(**PATIENT, buffered_request_timeout="500ms")
    agent = await fleet.start_agent(slots=4, context_size=LONG_CONTEXT)
    await fleet.hold()
    running = [
        asyncio.create_task(generate(fleet.http, fleet.inference, ENDLESS)) for _ in range(4)
    ]
    await fleet.until_streaming(4)

    agent.signal_all(signal.SIGKILL)
    for answer in await asyncio.gather(*running):
        assert answer.end["event"] == "error"
        assert answer.end["error"]["code"] == "agent_lost"
        assert answer.end["error"]["retryable"] is True
    assert not await fleet.view("agents")


async def test_silent_while_streaming_and_nobody_goes_on(fleet: Fleet) -> None:
    await fleet.start_balancer(**IMPATIENT, buffered_request_timeout="500ms")
    agent = await fleet.start_agent(slots=2, context_size=LONG_CONTEXT)
    await fleet.hold()
    running = asyncio.create_task(generate(fleet.http, fleet.inference, ENDLESS))
    await fleet.until_streaming(1)

    agent.signal_all(signal.SIGSTOP)
    assert (await running).end["error"]["code"] == "agent_lost"

    agent.signal_all(signal.SIGCONT)
    await fleet.let_go()

    async def back() -> bool:
        return len(await fleet.view("agents")) == 1

    await until(back)
    answer = await generate(fleet.http, fleet.inference, plain_cases()[0].body)
    assert answer.text == plain_cases()[0].answer


async def test_requests_that_delivered_nothing_move_to_another_agent(fleet: Fleet) -> None:
    await fleet.start_balancer(**IMPATIENT)
    silent = await fleet.start_agent(slots=4)
    await fleet.hold()
    asked = plain_cases()[:4]
    waiting = [
        asyncio.create_task(generate(fleet.http, fleet.inference, case.body)) for case in asked
    ]
    await fleet.until_num_requests(4, "assigned")

    await fleet.start_agent(slots=4)
    silent.signal_all(signal.SIGSTOP)
    answers = await asyncio.gather(*waiting)
    assert [answer.text for answer in answers] == [case.answer for case in asked]
    assert {answer.end["agent"] for answer in answers} == {"agent-2"}
    silent.signal_all(signal.SIGKILL)


async def test_first_token_deadline(fleet: Fleet) -> None:
    await fleet.start_balancer(**PATIENT, first_token_timeout="300ms")
    agent = await fleet.start_agent()
    agent.signal_all(signal.SIGSTOP)
    answer = await generate(fleet.http, fleet.inference, plain_cases()[0].body)
    assert (answer.status, answer.end["error"]["code"]) == (504, "first_token_timeout")
    agent.signal_all(signal.SIGCONT)
    await fleet.until_idle()


async def test_token_deadline(fleet: Fleet) -> None:
    await fleet.start_balancer(**PATIENT, token_timeout="300ms")
    agent = await fleet.start_agent(context_size=LONG_CONTEXT)
    await agent.pace.hand_out(5)
    answer = await generate(fleet.http, fleet.inference, ENDLESS)
    assert answer.end["error"]["code"] == "token_timeout"
    assert answer.text
    await fleet.until_idle()


async def test_whole_request_deadline(fleet: Fleet) -> None:
    await fleet.start_balancer(**PATIENT, request_timeout="5s")
    agent = await fleet.start_agent(context_size=LONG_CONTEXT)
    await agent.pace.hand_out(5)
    answer = await generate(fleet.http, fleet.inference, ENDLESS)
    assert answer.end["error"]["code"] == "request_timeout"
    assert answer.text
    await fleet.until_idle()
