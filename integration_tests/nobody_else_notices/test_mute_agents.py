"""An agent that claims thousands of slots and answers nothing, beside one that answers all."""

import asyncio
from typing import Any

from integration_tests.corpus import LONG_CONTEXT, generate, plain_cases
from integration_tests.daemons import Fleet, until
from integration_tests.nobody_else_notices.bystander import bystander
from integration_tests.rogue_agent import RogueAgent, codes_of

NUM_REQUESTS = 16
FEW = 4
"""Requests that a new agent gets at once."""


async def issues_of(fleet: Fleet, name: str) -> set[str]:
    [agent] = [each for each in await fleet.view("agents") if each["name"] == name]
    return codes_of(agent["issues"])


async def num_moved(fleet: Fleet) -> int:
    async with fleet.http.get(f"{fleet.management}/metrics") as response:
        lines = (await response.text()).splitlines()
    name = 'arriero_moves_total{reason="unanswered"'
    return sum(int(float(line.split()[-1])) for line in lines if line.startswith(name))


async def test_an_agent_that_answers_nothing_gets_little_and_costs_no_request(
    fleet: Fleet,
) -> None:
    await fleet.start_balancer(first_token_timeout=20)
    await fleet.start_agent(context_size=LONG_CONTEXT, slots=NUM_REQUESTS + 1)
    case = plain_cases()[0]

    async def ask() -> Any:
        return await generate(fleet.http, fleet.inference, case.body)

    async with bystander(fleet):
        for _ in range(3):  # so that the good agent has earned its slots
            assert (await ask()).text == case.answer
        async with RogueAgent.dial(fleet, "mute", slots=4096) as rogue:
            answers = await asyncio.gather(*[ask() for _ in range(NUM_REQUESTS)])
            assert [each.text for each in answers] == [case.answer] * NUM_REQUESTS

            async def is_known() -> bool:
                return "unresponsive" in await issues_of(fleet, "mute")

            await until(is_known)
            assert 1 <= await num_moved(fleet) <= FEW
            started = [await rogue.next("start") for _ in range(await num_moved(fleet))]
            stopped = [await rogue.next("cancel") for _ in started]
            assert {each["id"] for each in started} == {each["id"] for each in stopped}
            again = await asyncio.gather(*[ask() for _ in range(NUM_REQUESTS)])
            assert [each.text for each in again] == [case.answer] * NUM_REQUESTS
            assert await num_moved(fleet) == len(started), "it gets a probe a minute"
