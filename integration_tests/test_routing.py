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
    assert all(len(each) == 1 for each in agents), "a conversation stays where it is"
    assert len(set.union(*agents)) == 2, "and both agents have some"
    for (_, num_before, _), (_, _, num_cached) in (p for t in talks for p in pairwise(t)):
        assert num_cached >= num_before - 1

    async with fleet.http.get(f"{fleet.management}/metrics") as response:
        metrics = await response.text()
    assert 'arriero_routed_requests_total{prefix="warm"} 8.0' in metrics
    assert 'arriero_routed_requests_total{prefix="cold"} 4.0' in metrics
