"""An agent that is lost between what it told of a request and its first text."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest
from websockets.asyncio.client import connect

from arriero.balancer.fleet.runtime.agent_socket import PATH
from arriero.shared.inference import AgentId
from arriero.shared.messages import (
    PROTOCOL_VERSION,
    Hello,
    Noticed,
    Output,
    PromptRead,
    encode_from_agent,
)
from arriero.shared.reports.model_info import ModelInfo
from integration_tests.corpus import LONG_CONTEXT, Answer, generate, plain_cases
from integration_tests.daemons import MODEL, Fleet, until
from integration_tests.nobody_else_notices.bystander import Bystander, unnoticed

pytestmark = pytest.mark.asyncio(loop_scope="session")

DISCARDING = {"n_discard": 2 * LONG_CONTEXT}
"""More than can go, of which agents warn."""


async def be_lost(fleet: Fleet, other: str, *warnings: dict[str, str]) -> None:
    """An agent that takes a request, tells what comes before the text, and goes.

    The `other` one takes requests again then.
    """
    url = f"ws://{fleet.balancer.ready['management']}{PATH}"
    model = ModelInfo(
        name=MODEL.stem,
        architecture="none",
        parameters=0,
        size_bytes=0,
        context_size=LONG_CONTEXT,
    )
    hello = Hello(
        protocol=PROTOCOL_VERSION,
        agent_id=AgentId(uuid4().hex),  # the one before it keeps its own for a while
        name="to-be-lost",
        version="test",
        slots=8,
        model=model,
    )
    async with connect(url, compression=None, proxy=None) as socket:
        await socket.send(encode_from_agent(hello), text=True)
        async for frame in socket:
            message = json.loads(frame)
            if message["type"] == "start":
                await fleet.steer(other, "resume")
                id = message["id"]
                notices = [Noticed(id=id, **warning) for warning in warnings]
                read = PromptRead(id=id, prompt_tokens=7, cached_tokens=0)
                frame = encode_from_agent(Output(items=(*notices, read)))
                await socket.send(frame, text=True)
                return
    raise AssertionError("the balancer closed the socket")


def warnings(answer: Answer) -> list[dict[str, str]]:
    return [
        {"code": event["code"], "message": event["message"]}
        for event in answer.events
        if event["event"] == "warning"
    ]


@asynccontextmanager
async def one_to_be_lost(fleet: Fleet, *warnings: dict[str, str]) -> AsyncIterator[None]:
    """The next request goes to an agent that is lost, since the other one takes none meanwhile;
    leaving this checks that it was."""
    [other] = [each["id"] for each in await fleet.view("agents")]
    losing = asyncio.create_task(be_lost(fleet, other, *warnings))

    async def has_joined() -> bool:
        return len(await fleet.view("agents")) == 2

    await until(has_joined)
    await fleet.steer(other, "drain")
    yield
    assert losing.done()
    await losing


async def test_what_was_told_is_not_told_again_by_the_next_agent(long_fleet: Fleet) -> None:
    case = plain_cases()[0]
    body = case.body | DISCARDING

    async def attack(seen: Bystander) -> None:
        told = warnings(await generate(long_fleet.http, long_fleet.inference, body))
        assert [warning["code"] for warning in told] == ["n_discard_clamped"]
        async with one_to_be_lost(long_fleet, *told):
            answer = await generate(long_fleet.http, long_fleet.inference, body)
        assert warnings(answer) == told
        assert answer.text == case.answer

        async with one_to_be_lost(long_fleet):
            message = {"model": MODEL.stem, "max_tokens": 5, "stream": True} | case.body
            url = f"{long_fleet.inference}/v1/messages"
            async with long_fleet.http.post(url, json=message) as response:
                stream = await response.text()
        names = [line for line in stream.splitlines() if line.startswith("event: message_")]
        assert names == [f"event: message_{part}" for part in ("start", "delta", "stop")]

    await unnoticed(long_fleet, attack)
