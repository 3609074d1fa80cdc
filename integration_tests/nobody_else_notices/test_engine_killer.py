"""A request that ends the engine it is given to: it ends with the second, which has no stream."""

import asyncio
import signal
from typing import Any

import pytest

from integration_tests.corpus import ENDLESS, LONG_CONTEXT, generate
from integration_tests.daemons import Daemon, Fleet, until

NUM_TOKENS = 60
STEPS_PER_SECOND = 10
"""So few that no stream ends before the test does."""

PATIENT = {"heartbeat_interval": "1s", "heartbeat_timeout": "600s"}


@pytest.mark.parametrize("state", ["assigned", "streaming"])
async def test_it_takes_no_streams_down(fleet: Fleet, state: str) -> None:
    """`state`: when the engine ends, before its answer or in the middle."""
    await fleet.start_balancer(**PATIENT)
    agents: dict[str, Daemon] = {}
    for number in range(3):
        name = f"host-{number}"
        agents[name] = await fleet.start_agent(name=name, slots=4, context_size=LONG_CONTEXT)
    names = {each["id"]: each["name"] for each in await fleet.view("agents")}
    await fleet.hold()
    body = ENDLESS | {"max_tokens": NUM_TOKENS}
    streams = [asyncio.create_task(generate(fleet.http, fleet.inference, body)) for _ in agents]
    await fleet.until_streaming(len(agents))
    streaming: list[dict[str, Any]] = await fleet.view("requests")
    assert {names[each["agent"]] for each in streaming} == agents.keys(), "one on each"
    known = {each["id"] for each in streaming}
    if state == "streaming":
        for agent in agents.values():
            await agent.pace.slow(STEPS_PER_SECOND)
        await fleet.let_go()

    killer = asyncio.create_task(generate(fleet.http, fleet.inference, ENDLESS))
    hit: list[str] = []

    async def is_over() -> bool:
        """Kills each engine that gets the request, as soon as it has it."""
        for each in await fleet.view("requests"):
            if each["id"] in known or each["state"] != state:
                continue
            name = names[each["agent"]]
            if len(agents[name].engine_pids) == 1 + hit.count(name):
                hit.append(name)
                agents[name].signal_engine(signal.SIGSEGV)
        return killer.done()

    await until(is_over)
    error = (await killer).end["error"]
    assert (error["code"], error["message"].split(" lost")[0]) == ("agent_lost", "2 agents were")
    assert len(hit) == 2
    assert len({*hit}) == 1, "the engine that was restarted, and has no stream"
    for agent in agents.values():
        await agent.pace.slow(None)
    await fleet.let_go()
    answers = await asyncio.gather(*streams)
    assert all(each.end["usage"]["completion_tokens"] == NUM_TOKENS for each in answers)
    assert sorted(each.end["timings"]["moves"] for each in answers) == [0, 0, 1]
