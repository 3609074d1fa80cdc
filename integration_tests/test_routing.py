"""Conversations return to the agent that holds them; what has nothing in common is shared."""

import asyncio
from itertools import pairwise

from integration_tests.corpus import generate
from integration_tests.daemons import Fleet

SYSTEM = "The driver counts the mules, the bells and the bags of salt before each bridge. " * 6


async def test_turns_of_a_conversation_find_their_prefix_beside_other_load(fleet: Fleet) -> None:
    await fleet.start_balancer()
    sizes = {"slots": 2, "context_size": 2048, "threads": 1}
    await asyncio.gather(*(fleet.start_agent(name=name, **sizes) for name in ("one", "two")))

    async def talk(who: str) -> list[tuple[str, int, int]]:
        """Of each turn the agent, the prompt's tokens, and those that were cached."""
        prompt, seen = f"{who} speaks. {SYSTEM}", []
        for turn in range(3):
            prompt += f"And then {turn}? "
            fields = {"prompt": prompt, "max_tokens": 4, "temperature": 0, "ignore_eos": True}
            answer = await generate(fleet.http, fleet.inference, fields)
            usage = answer.end["usage"]
            seen.append((answer.end["agent"], usage["prompt_tokens"], usage["cached_tokens"]))
        return seen

    talks = await asyncio.gather(*(talk(who) for who in ("Ana", "Bo", "Cy", "Di")))
    agents = [{agent for agent, _, _ in talk} for talk in talks]
    # One may go where a slot is free, if that is cheaper than to wait for the agent that knows it.
    assert sum(len(each) == 1 for each in agents) >= 3, "conversations stay where they are"
    assert len(set.union(*agents)) == 2, "and both agents have some"
    turns = (pair for talk in talks for pair in pairwise(talk))
    for (agent, num_before, _), (next_agent, _, num_cached) in turns:
        assert agent != next_agent or num_cached >= num_before - 1

    async with fleet.http.get(f"{fleet.management}/metrics") as response:
        metrics = await response.text()
    lines = dict(line.rsplit(" ", 1) for line in metrics.splitlines())
    num_warm = float(lines['arriero_routed_requests_total{prefix="warm"}'])
    assert 6 <= num_warm <= 8
    assert float(lines['arriero_routed_requests_total{prefix="cold"}']) == 12 - num_warm
