"""Two workers of one balancer: one pair of ports, one view, and each may be lost alone."""

import json
import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp

from integration_tests.daemons import Fleet, until

ENDLESS = {"prompt": "Once", "max_tokens": 10**9, "ignore_eos": True, "n_discard": 100}


async def begin(fleet: Fleet, stack: AsyncExitStack) -> tuple[str, aiohttp.ClientResponse]:
    """A stream over a connection of its own, which reaches any worker: its id."""
    session = await stack.enter_async_context(aiohttp.ClientSession())
    url = f"{fleet.inference}/api/v1/generate"
    response = await stack.enter_async_context(session.post(url, json=ENDLESS))
    assert response.status == 200, await response.text()
    first: dict[str, Any] = json.loads(await response.content.readline())
    return first["id"], response


async def workers_of(fleet: Fleet) -> dict[str, str]:
    """The name of the worker that has each request, whichever worker is asked."""
    return {each["id"]: each["balancer"] for each in await fleet.view("requests")}


def pids(fleet: Fleet) -> dict[int, int]:
    """The last process of each worker."""
    lines = [json.loads(each) for each in fleet.balancer.stderr if "a worker starts" in each]
    return {each["worker"]: each["pid"] for each in lines}


async def of_each(fleet: Fleet, path: str) -> dict[str, Any]:
    """What each worker answers, by its name."""
    answers: dict[str, Any] = {}

    async def both_answered() -> bool:
        async with aiohttp.ClientSession(f"{fleet.management}/api/v1/") as session:
            async with session.get("balancers") as response:
                listed = (await response.json())["balancers"]
            (name,) = [each["name"] for each in listed if each["is_here"]]
            async with session.get(path) as response:
                assert response.status == 200, await response.text()
                answers[name] = await response.json()
        return len(answers) == 2

    await until(both_answered)
    return answers


async def until_past(fleet: Fleet, ended: set[str]) -> None:
    """Both workers show these requests as ended, and count them in their history."""

    async def is_told() -> bool:
        told = await of_each(fleet, "requests?state=ended&code=cancelled")
        history = await of_each(fleet, "history?since=10m")
        seen = [{each["id"] for each in answer["requests"]} for answer in told.values()]
        counted = [sum(each["lines"][0]["ended"].get("cancelled", ())) for each in history.values()]
        return seen == [ended, ended] and counted == [len(ended), len(ended)]

    await until(is_told)


async def answer(fleet: Fleet, path: str, **body: Any) -> dict[str, Any]:
    """Over a connection of its own, which reaches any worker."""
    async with (
        aiohttp.ClientSession(fleet.inference) as session,
        session.post(path, json=body) as response,
    ):
        assert response.status == 200, await response.text()
        told: dict[str, Any] = await response.json()
        return told


async def goes_on_anywhere(fleet: Fleet) -> None:
    """Conversations go on over ten connections, which the system spreads over both workers."""
    short = {"input": "Once", "max_output_tokens": 1}
    messages = [{"role": "user", "content": "Once"}]
    thread = {"max_tokens": 1, "messages": messages}
    response = await answer(fleet, "/v1/responses", **short)
    message = await answer(fleet, "/v1/messages", **thread, thread={"type": "create"})
    for _ in range(4):
        response = await answer(
            fleet, "/v1/responses", **short, previous_response_id=response["id"]
        )
        begun = {"type": "continue", "previous_message_id": message["id"]}
        message = await answer(fleet, "/v1/messages", **thread, thread=begun)


async def test_a_worker_is_lost_and_back_and_the_other_one_notices_nothing(
    fleet: Fleet, tmp_path: Path
) -> None:
    state = f"sqlite:///{tmp_path}/state.db"
    await fleet.start_balancer(state=state, workers=2, balancer_name="b")
    await fleet.start_agent(slots=16)
    async with AsyncExitStack() as stack:
        streams: dict[str, aiohttp.ClientResponse] = {}

        async def both_have_one() -> bool:
            assert len(streams) < 16, "the system spreads connections over both"
            id, streams[id] = await begin(fleet, stack)
            return set((await workers_of(fleet)).values()) == {"b/0", "b/1"}

        await until(both_have_one)
        (agent,) = await fleet.view("agents")
        assert agent["slots"]["busy"] == len(streams), "whichever worker is asked"

        where, lost = await workers_of(fleet), pids(fleet)[0]
        kept = [id for id in streams if where[id] == "b/1"]
        os.kill(lost, signal.SIGKILL)

        async def is_back() -> bool:
            if pids(fleet)[0] == lost:
                return False
            names = {each["name"] for each in await fleet.view("balancers")}
            has = {id: name for id, name in where.items() if name == "b/1"}
            return names == {"b/0", "b/1"} and await workers_of(fleet) == has

        await until(is_back)
        async with fleet.http.get(f"{fleet.management}/metrics") as answer:
            told = await answer.text()
        assert all(f'arriero_worker_up{{worker="{number}"}} 1.0' in told for number in (0, 1))
        for id in kept:
            async with fleet.http.delete(f"{fleet.management}/api/v1/requests/{id}") as answer:
                assert answer.status == 202
            events = [json.loads(line) async for line in streams[id].content]
            assert events[-1]["finish_reason"] == "cancelled"
        await until_past(fleet, set(kept))
    await goes_on_anywhere(fleet)
    assert await fleet.balancer.terminate() == 0
