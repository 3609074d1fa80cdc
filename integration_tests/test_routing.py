"""Conversations return to the agent that holds them; what has nothing in common is shared."""

import asyncio
from itertools import pairwise

from integration_tests.corpus import generate
from integration_tests.daemons import Fleet

SYSTEM = "The driver counts the mules, the bells and the bags of salt before each bridge. " * 60
"""So long that an agent which seems fast reads it no sooner than a slow one reads what is new."""
SPEAKERS = ("Ana", "Bo", "Cy", "Di")


async def test_turns_of_a_conversation_find_their_prefix_beside_other_load(fleet: Fleet) -> None:
    await fleet.start_balancer()
    sizes = {"slots": 2, "context_size": 2048, "threads": 1}
    await asyncio.gather(*(fleet.start_agent(name=name, **sizes) for name in ("one", "two")))

    async def ask(who: str, num_turns: int) -> tuple[str, int, int]:
        """The agent, the prompt's tokens, and those that were cached."""
        prompt = f"{who} speaks. {SYSTEM}" + "".join(f"And then {n}? " for n in range(num_turns))
        fields = {"prompt": prompt, "max_tokens": 1, "temperature": 0, "ignore_eos": True}
        answer = await generate(fleet.http, fleet.inference, fields)
        usage = answer.end["usage"]
        return answer.end["agent"], usage["prompt_tokens"], usage["cached_tokens"]

    talks: list[list[tuple[str, int, int]]] = [[] for _ in SPEAKERS]
    for turn in range(3):
        # All four are there at once: as many as there are slots, two for each agent.
        await fleet.hold()
        asked = [asyncio.create_task(ask(who, turn + 1)) for who in SPEAKERS]
        await fleet.until_num_requests(4, "assigned")
        await fleet.let_go()
        for talk, answer in zip(talks, await asyncio.gather(*asked), strict=True):
            talk.append(answer)
    agents = [{agent for agent, _, _ in talk} for talk in talks]
    assert all(len(each) == 1 for each in agents), "conversations stay where they are"
    assert len(set.union(*agents)) == 2, "and both agents have some"
    turns = (pair for talk in talks for pair in pairwise(talk))
    for (_, num_before, _), (_, _, num_cached) in turns:
        assert num_cached >= num_before - 1

    async with fleet.http.get(f"{fleet.management}/metrics") as response:
        metrics = await response.text()
    lines = dict(line.rsplit(" ", 1) for line in metrics.splitlines())
    assert float(lines['arriero_routed_requests_total{prefix="warm"}']) == 8
    assert float(lines['arriero_routed_requests_total{prefix="cold"}']) == 4
